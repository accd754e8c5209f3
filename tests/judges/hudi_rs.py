"""Apache Hudi's Rust reader (the `hudi` wheel) as a judge, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.judges.spark import JudgeError
from tests.judges.table_facts import META_COLUMNS

Filters = Sequence[tuple[str, str, str]]


def hudi_rs_missing() -> str | None:
    """What keeps hudi-rs from judging, or None."""
    try:
        import hudi  # noqa: F401
    except ImportError as error:
        return f"the hudi wheel is not installed ({error})"
    return None


class HudiRsJudge:
    """Reads tables with hudi-rs; every refusal, a panic included, is a :class:`JudgeError`."""

    def __init__(self) -> None:
        import hudi

        self._hudi = hudi
        self.version = str(hudi.__version__)
        self.requests = 0

    def snapshot(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        filters: Filters = (),
        meta_columns: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """The rows of the table.

        Parameters:
            path: the table, a local path or a URL.
            columns: names to read; None: all.
            filters: `(column, operator, text)`, all of which hold.
            meta_columns: with the five `_hoodie_` columns.
            options: `hoodie.read.…` settings.
        """
        self.requests += 1
        try:
            table = self._hudi.HudiTableBuilder.from_base_uri(str(path)).build()
            how = self._hudi.HudiReadOptions(list(filters), list(columns) if columns else None, dict(options or {}))
            batches = table.read(how)
            rows = pa.Table.from_batches(batches, None if batches else table.get_schema_with_meta_fields())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise JudgeError(type(error).__name__, str(error)) from error
        if columns:
            return rows.select(list(columns))
        return rows if meta_columns else rows.drop_columns([name for name in META_COLUMNS if name in rows.column_names])

    def read_optimized(self, path: str | Path, **how: Any) -> pa.Table:
        """The rows of the base files alone."""
        return self._query(path, {"hoodie.read.use.read_optimized.mode": "true"}, how)

    def as_of(self, path: str | Path, instant: str, **how: Any) -> pa.Table:
        """The rows as they stood at an instant (requested or completion time)."""
        return self._query(path, {"hoodie.read.as.of.timestamp": instant}, how)

    def incremental(self, path: str | Path, start: str, end: str | None = None, **how: Any) -> pa.Table:
        """The rows written after `start` up to `end`: completion times, in version 6 requested ones."""
        bounds = {"hoodie.read.start.timestamp": start} | ({"hoodie.read.end.timestamp": end} if end else {})
        return self._query(path, {"hoodie.read.query.type": "incremental", **bounds}, how)

    def base_files(self, path: str | Path) -> list[str]:
        """The names of the base files of the newest slices, as the metadata table lists them if there is one."""
        self.requests += 1
        try:
            table = self._hudi.HudiTableBuilder.from_base_uri(str(path)).build()
            slices = table.get_file_slices(self._hudi.HudiReadOptions([], None, {}))
            return sorted(one.base_file_name for one in slices)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise JudgeError(type(error).__name__, str(error)) from error

    def _query(self, path: str | Path, query: Mapping[str, str], how: Mapping[str, Any]) -> pa.Table:
        return self.snapshot(path, **{**how, "options": {**query, **(how.get("options") or {})}})
