"""A read of the newest state stands whatever cleans remove while it works; a pinned one fails only for files that are gone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import open_store
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.arrow_filesystem import ArrowHandler
from lakefmt._core.table import Table
from lakefmt.errors import SnapshotExpired
from lakefmt.testing.store_wrapper import WrapperStore

NUMBERS = itertools.count()
KEEP_LITTLE = {"hoodie.clean.commits.retained": 1, "hoodie.clean.automatic": False}
TYPES = pytest.mark.parametrize("table_type", ["cow", "mor"])


class BusyStore(WrapperStore):
    """Lets others write and clean right before a file is opened, or right after a directory was listed."""

    def __init__(self, url: str, before_open: Callable[[str], None], after_list: Callable[[], None]) -> None:
        super().__init__(open_store(url))
        self._before_open = before_open
        self._after_list = after_list

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        found = [*super().list(prefix, recursive=recursive)]
        if not prefix.startswith(".hoodie"):
            self._after_list()
        return iter(found)

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        def open_late(name: str) -> pa.NativeFile:
            self._before_open(name)
            fs, prefix = self.inner.arrow_filesystem()
            return fs.open_input_file(prefix + name)

        return pafs.PyFileSystem(ArrowHandler(self, open_late)), ""


class Others:
    """Writers that update every row and clean, so often and no more."""

    def __init__(self, table: Table, times: int) -> None:
        self.table, self.left, self.last = table, times, 0

    def work(self) -> None:
        if self.left:
            self.left -= 1
            for _ in range(2):
                self.last += 1
                self.table.upsert(rows(self.last))
                if self.table.properties.table_type.value == "MERGE_ON_READ":
                    self.table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
            self.table.clean(options=KEEP_LITTLE)


def rows(n: int) -> pa.Table:
    return pa.table({"id": ["a", "b", "c"], "city": ["x", "y", "y"], "n": [n] * 3})


def busy(table_type: str, times: int, moment: str) -> tuple[Table, Others]:
    """Return a handle beside others who work at each such moment, so many times."""
    url = f"memory://busy-{next(NUMBERS)}"
    made = lakefmt.create_table(
        url, data=rows(0), record_key="id", partition_by="city", table_type=table_type, options=KEEP_LITTLE
    )
    made.upsert(rows(0))
    others = Others(made, times)
    moments: dict[str, Any] = {"before_open": lambda name: None, "after_list": lambda: None}
    moments |= {moment: others.work if moment == "after_list" else lambda name: others.work()}
    return Table(TableClient(BusyStore(url, **moments))), others


def values(found: pa.Table) -> list[int]:
    return sorted(set(found["n"].to_pylist()))


READS: dict[str, Callable[[Table], list[int]]] = {
    "read": lambda table: values(table.read()),
    "scan": lambda table: values(table.scan().read_all()),
    "incremental": lambda table: values(table.incremental("000")),
    "to_pandas": lambda table: sorted(set(table.to_pandas()["n"])),
    "filter": lambda table: values(table.read(columns=["n"], filter=[("city", "=", "y")])),
}


@pytest.mark.slow
@TYPES
@pytest.mark.parametrize("moment", ["before_open", "after_list"])
@pytest.mark.parametrize("verb", READS)
def test_reads_of_the_newest_state_stand(table_type: str, moment: str, verb: str) -> None:
    table, others = busy(table_type, 4, moment)
    found = READS[verb](table)
    assert others.left == 0 or (verb, moment) == ("incremental", "after_list"), "the others were at work each time"
    assert len(found) == 1, "one state"
    assert found[0] >= others.last - 1, "of those that clean leaves"
    assert len(table.read()) == 3


@TYPES
def test_a_pinned_snapshot_is_read_until_its_files_are_gone(table_type: str) -> None:
    table, others = busy(table_type, 0, "before_open")
    pinned = table.snapshot()
    instant = pinned.instant
    assert instant is not None
    others.table.upsert(rows(1))
    assert values(pinned.read()) == values(table.read(as_of=instant)) == [0]
    others.left = 2
    others.work()
    others.work()
    for read in (pinned.read, lambda: table.read(as_of=instant), lambda: table.scan(as_of=instant).read_all()):
        with pytest.raises(SnapshotExpired):
            read()


@pytest.mark.parametrize("verb", READS)
def test_a_file_that_the_newest_state_misses_is_told(verb: str) -> None:
    """Nobody cleans: the file is listed and cannot be opened, and a read that is planned for ever would never say so."""
    table, others = busy("cow", 0, "before_open")
    opened = []

    def lose(name: str) -> None:
        if name.startswith("city=y"):
            opened.append(name)
            assert len(opened) < 20, "it is planned for ever"
            others.table.upsert(rows(len(opened)).slice(0, 1))  # the timeline moves on, and this partition stays
            raise FileNotFoundError(name)

    lost = Table(TableClient(BusyStore(table.client.store.url, lose, lambda: None)))
    with pytest.raises(SnapshotExpired, match="is gone"):
        READS[verb](lost)


def test_a_stream_that_has_begun_does_not_begin_again() -> None:
    table, others = busy("cow", 0, "before_open")
    reader = table.scan()
    assert reader.read_next_batch().num_rows
    others.left = 1
    others.work()
    try:
        rest = sum(batch.num_rows for batch in reader)
    except SnapshotExpired:
        return
    assert rest <= 2, "rows that were seen do not come twice"


@pytest.mark.parametrize(("table_type", "version"), [("cow", 8), ("mor", 9)])
def test_a_planned_clean_hides_no_partition_that_statistics_leave_out(table_type: str, version: int) -> None:
    """Such a read took what the clean is going to remove there for files that it needs: SnapshotExpired until the clean ran."""
    numbers = range(12)  # the statistics of fewer partitions are not asked
    rows = pa.table({"id": [f"k{n:02}" for n in numbers], "city": [f"c{n:02}" for n in numbers], "n": [*numbers]})
    table = lakefmt.create_table(
        f"memory://beside-cleans-{next(NUMBERS)}",
        schema=rows.schema,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        table_version=version,
        indexes=["column_stats", "partition_stats"],
        options={**KEEP_LITTLE, "hoodie.compact.inline.max.delta.commits": 1},
    )
    for _ in range(3):
        table.upsert(rows)
        if table_type == "mor":
            table.compact()
    snapshot = table.snapshot()
    assert table.clean(schedule=True).plan is not None
    assert "partition_stats" in [step.name for step in table.explain("n = 7").steps]
    assert table.read(filter="n = 7")["id"].to_pylist() == ["k07"]
    table.clean()
    assert snapshot.read(filter="n = 7")["id"].to_pylist() == ["k07"]
