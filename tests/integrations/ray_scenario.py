"""What tests/integrations/test_workers.py asks of Ray, in an environment that has it: prints ``name: value`` as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# Its services are slow to begin on a busy machine, and listen on this machine alone.
os.environ |= {"RAY_agent_register_timeout_ms": "240000", "RAY_raylet_start_wait_time_s": "240"} | {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data

import lakefmt
from lakefmt.ray import read_ray, write_ray

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("fare", pa.float64())])
ROWS = pa.table(
    {"id": range(60), "city": [None if n % 7 == 3 else f"c{n % 3}" for n in range(60)], "fare": np.arange(60) / 2},
    SCHEMA,
)


def sorted_rows(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"])


def of_ray(dataset: ray.data.Dataset) -> pa.Table:
    blocks = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables(block.select(SCHEMA.names).cast(SCHEMA) for block in blocks if block.num_rows)


def refused(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        causes = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        return " ".join(type(each).__name__ for each in causes)
    return ""


def of_table(root: Path, table_type: str) -> dict[str, object]:
    """Return what went well with a table."""
    table = lakefmt.create_table(
        root, schema=SCHEMA, record_key="id", partition_by="city", ordering="fare", table_type=table_type
    )
    went = {"no rows": read_ray(table).count() == 0}
    bulk = write_ray(ray.data.from_arrow([ROWS.slice(0, 20), ROWS.slice(20, 30)]), table, "bulk_insert")
    went["tasks wrote files"] = bulk.num_inserts == 50 and len(table.timeline.entries) == 1
    table.insert(ROWS.slice(50))
    table.upsert(ROWS.slice(5, 10))
    table.delete([{"id": 8, "city": "c2"}])
    went["all rows"] = sorted_rows(of_ray(read_ray(table))) == sorted_rows(table.read())
    some = read_ray(table, columns=["id", "fare"], filter="city = 'c1' and id > 10")
    expected = table.read(["id", "fare"], "city = 'c1' and id > 10")
    went["columns and rows"] = (some.count(), set(some.schema().names)) == (expected.num_rows, {"id", "fare"})
    went["then"] = read_ray(table, as_of=bulk.instant).count() == 50
    doubled = read_ray(table).map_batches(
        lambda rows: rows.set_column(2, "fare", pc.multiply(rows["fare"], 2.0)), batch_format="pyarrow"
    )
    before = sorted_rows(table.read())
    result = write_ray(doubled, table)
    after = [{**row, "fare": row["fare"] * 2} for row in before]
    went["upsert"] = result.num_updates == len(before) and sorted_rows(table.read()) == after
    frame = ROWS.slice(0, 3).to_pandas()
    went["pandas"] = write_ray(ray.data.from_pandas(frame), table, "insert_overwrite_table").num_inserts == 3
    count = len(table.timeline.entries)

    def fails(rows: pa.Table) -> pa.Table:
        raise ValueError("a task fails")

    failing = ray.data.from_arrow(ROWS).map_batches(fails, batch_format="pyarrow")
    for operation in ("bulk_insert", "upsert"):
        went[f"a task of {operation} fails"] = refused(lambda: write_ray(failing, table, operation)) != ""  # noqa: B023
    strange = ray.data.from_arrow(pa.table({"id": ["x"], "city": ["c0"], "fare": [1.0]}))
    went["other columns"] = "SchemaMismatch" in refused(lambda: write_ray(strange, table, "bulk_insert"))
    went["an unknown operation"] = "InvalidInputError" in refused(lambda: write_ray(strange, table, "merge"))
    went["nothing of these"] = len(lakefmt.open_table(root).timeline.entries) == count
    went["sound"] = table.check("full").is_clean and table.count() == 3
    return went


def begin() -> None:
    """Begin Ray; it gives its services half a minute, which a busy machine may not have for them at first."""
    for attempts_left in range(4, -1, -1):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                _node_ip_address="127.0.0.1",
                object_store_memory=100 << 20,
            )
            return
        except Exception:  # Ray raises no class of its own here
            ray.shutdown()
            if not attempts_left:
                raise


def main(folder: str) -> None:
    """Print what went well, by table type."""
    begin()
    ray.data.DataContext.get_current().enable_progress_bars = False
    for table_type in ("cow", "mor"):
        print("RESULT " + json.dumps({table_type: of_table(Path(folder) / table_type, table_type)}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
