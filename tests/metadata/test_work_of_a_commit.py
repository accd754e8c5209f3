"""What a small commit reads and decodes of the metadata table: counted, and the same for a handle that is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import lakefmt
from lakefmt._core.formats.hfile_container import HFileReader
from lakefmt._core.metadata.metadata_files import WrittenGroups
from lakefmt._core.metadata.timeline import MetadataInstant
from lakefmt._core.table import Table
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_table import make, rows

#: No compaction of the table or of its metadata table comes in between.
QUIET: dict[str, object] = {
    "hoodie.metadata.index.bloom.filter.enable": "false",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": "false",
    "hoodie.metadata.compact.max.delta.commits": 30,
}


def again(table: Table) -> Table:
    return lakefmt.open_table(table.client.store.url, options=dict(table.client.options))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Yield the HFiles that are opened, by partition of the metadata table, and the commits of it that are read."""
    opened: Counter[str] = Counter()
    loaded: Counter[str] = Counter()
    init, load = HFileReader.__init__, WrittenGroups._load

    def open_hfile(self: HFileReader, read_at: object, size: int, what: str) -> None:
        opened[what.split("/")[-2]] += 1
        init(self, read_at, size, what)  # type: ignore[arg-type]

    def load_commit(self: WrittenGroups, instant: MetadataInstant) -> None:
        loaded[instant.time] += 1
        load(self, instant)

    with monkeypatch.context() as patch:
        patch.setattr(HFileReader, "__init__", open_hfile)
        patch.setattr(WrittenGroups, "_load", load_commit)
        yield opened, loaded


@pytest.mark.parametrize("version", [8, 9])
def test_statistics_of_a_partition_are_decoded_from_the_newest_log(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make("mor", version, more=QUIET)
    table.upsert(rows(0, 20, 0))
    for number in range(6):
        again(table).upsert(rows(0, 6, number))
    with counted(monkeypatch) as (opened, _):
        again(table).upsert(rows(0, 6, 9))
    # Every file group of the partition has its newest log, and only that one is decoded.
    assert 0 < opened["partition_stats"] <= 1
    check_metadata_table(again(table))


@pytest.mark.parametrize("version", [8, 9])
def test_commits_of_the_metadata_table_are_read_once_by_a_handle(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("mor", version, more=QUIET)
    table.upsert(rows(0, 20, 0))
    again(table).upsert(rows(0, 6, 1))
    used = again(table)
    with counted(monkeypatch) as (_, loaded):
        used.upsert(rows(0, 6, 2))
        used.upsert(rows(0, 30, 3))
    assert loaded
    assert set(loaded.values()) == {1}
