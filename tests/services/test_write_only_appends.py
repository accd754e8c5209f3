"""What an append does beside a process for services, however many commits wait for its next look: counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakefmt
from lakefmt import services
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteOperation
from lakefmt._core.write.files import base_file
from tests.services.served import WRITE_ONLY, append_table, process, rows


def appended(table: Table, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        table.append(rows(range(number, number + 1)))


@pytest.mark.parametrize("partition_by", [None, "v"])
def test_an_append_lists_no_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: str | None
) -> None:
    table = append_table(str(tmp_path / "t"), process(), partition_by)
    appended(table, 20)
    listed: list[str] = []
    whole, names = LocalStore.list, LocalStore.list_names

    def list_objects(self: LocalStore, prefix: str = "", *, recursive: bool = True) -> Iterator[Any]:
        listed.append(prefix)
        return whole(self, prefix, recursive=recursive)

    def list_names(self: LocalStore, prefix: str) -> list[str]:
        listed.append(prefix)
        return names(self, prefix)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "list", list_objects)
        patch.setattr(LocalStore, "list_names", list_names)
        appended(table, 1, 20)
    assert listed
    assert not [prefix for prefix in listed if not prefix.startswith(".hoodie")]
    assert table.read().num_rows == 21


def test_an_append_leaves_small_files_to_the_services(tmp_path: Path) -> None:
    table = append_table(str(tmp_path / "t"), process())
    appended(table, 40)
    assert {instant.action for instant in table.client.load().timeline.completed} == {Action.COMMIT}, (
        "nothing is merged"
    )
    assert len(table.file_groups()) == 40
    status = services.run(table, once=True)
    assert status.tables[0].steps["packing"].result == "done"
    assert len(table.file_groups()) == 1
    appended(table, 1, 40)
    assert len(table.file_groups()) == 2
    assert sorted(table.read()["id"].to_pylist()) == [f"k{number:05d}" for number in range(41)]
    assert table.check().is_clean


def test_on_a_store_without_locks_small_files_are_left_alone_as_well() -> None:
    """There one writer is alone, and would fill files that a packing takes away."""
    store = MemoryStore("left-alone")
    options = {**WRITE_ONLY, "hoodie.write.concurrency.mode": "single_writer"}
    table = lakefmt.create_table(store.url, schema=rows(range(1)).schema, kind="append", options=options)
    appended(table, 20)
    assert len(table.file_groups()) == 20
    commits = table.client.load()
    written = [table.client.at(commits).commit_metadata(each) for each in commits.timeline.commits]
    assert {each.operation for each in written} == {WriteOperation.INSERT}


def test_without_the_setting_they_are_merged(tmp_path: Path) -> None:
    """The sabotage twin."""
    table = append_table(str(tmp_path / "t"), process())
    for number in range(40):
        table.append(rows(range(number, number + 1)), options={"lakefmt.write.only": False})
    assert len(table.file_groups()) <= 16


def test_generated_keys_are_not_hashed_for_other_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No write asks for them by their hashes; where there are keys of columns, others do."""
    calls: list[object] = []

    def hash_keys(keys: object) -> None:
        calls.append(keys)

    monkeypatch.setattr(base_file, "hash_keys", hash_keys)
    table = append_table(str(tmp_path / "t"), process())
    appended(table, 2)
    assert not calls
    stored = table.read(["_hoodie_record_key", "id"])
    table.delete(stored["_hoodie_record_key"].to_pylist()[:1])
    assert table.read()["id"].to_pylist() == stored["id"].to_pylist()[1:]
    keyed = lakefmt.create_table(str(tmp_path / "keyed"), data=rows(range(1)), record_key="id", options=WRITE_ONLY)
    keyed.insert(rows(range(1, 2)), options={"hoodie.write.concurrency.mode": "optimistic_concurrency_control"})
    assert len(calls) == 1


def test_a_partition_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Other engines remove the directory of a deleted partition; without its metadata file no reader looks into it."""
    table = append_table(str(tmp_path / "t"), process(), "v")
    appended(table, 2)
    (partition,) = [path for path in (tmp_path / "t").iterdir() if path.is_dir() and path.name != ".hoodie"]
    table.delete_partitions([0])
    for path in partition.iterdir():
        path.unlink()
    partition.rmdir()
    appended(table, 1, 2)
    assert table.read()["id"].to_pylist() == ["k00002"]
