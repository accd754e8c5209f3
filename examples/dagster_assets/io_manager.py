"""An IO manager of Dagster that keeps assets in lakefmt tables: copy it and change what you like.

What an asset's metadata say decides how it is stored: ``record_key`` makes a materialization an upsert, ``partition_column`` one that replaces
the rows of the run's partition, neither replaces all rows. Each is safe to run again.
"""

from __future__ import annotations

from typing import Any

import dagster
import pyarrow as pa

import lakefmt


class LakefmtTables(dagster.ConfigurableIOManager):
    """Keeps each asset in the table ``base/KEY/OF/ASSET``; hands it on as a pandas DataFrame, or as an Arrow table where that is annotated."""

    base: str
    storage_options: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)

    def handle_output(self, context: dagster.OutputContext, obj: Any) -> None:
        """Store what an asset's function returned."""
        told = {name: str(entry) for name, entry in (context.definition_metadata or {}).items()}
        key, column = told.get("record_key"), told.get("partition_column")
        result = lakefmt.write_table(
            self._path(context.asset_key),
            obj,
            record_key=key,
            ordering=told.get("ordering"),
            partition_by=column,
            operation="insert_overwrite" if column else None,
            mode="append" if column else "upsert" if key else "overwrite",
            storage_options=self.storage_options,
            # Who looks at the table finds the run.
            commit_metadata={"dagster.run": context.run_id},
        )
        context.add_output_metadata({"instant": result.instant or "", "rows": result.num_inserts + result.num_updates})

    def load_input(self, context: dagster.InputContext) -> Any:
        """Return an asset for the function that takes it: the run's partitions, where both have partitions."""
        table = lakefmt.open_table(self._path(context.asset_key), storage_options=self.storage_options)
        upstream = context.upstream_output
        column = None if upstream is None else (upstream.definition_metadata or {}).get("partition_column")
        wanted = (
            [(str(column), "in", list(context.asset_partition_keys))]
            if column and context.has_asset_partitions
            else None
        )
        is_arrow = context.dagster_type.typing_type is pa.Table
        return table.read(filter=wanted) if is_arrow else table.to_pandas(filter=wanted)

    def _path(self, key: dagster.AssetKey) -> str:
        return "/".join([self.base.rstrip("/"), *key.path])
