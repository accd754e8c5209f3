"""Overwrites by partition, and named states."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.producers.append_tags import TAGS
from lakefmt.errors import AlreadyExistsError, CorruptFile, InstantNotFound, InvalidInputError

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


def rows(**by_partition: int) -> pa.Table:
    return pa.table({"p": list(by_partition), "n": list(by_partition.values())}, schema=SCHEMA)


def content(table: lakefmt.Table) -> dict[str, list[int]]:
    read = table.read()
    got: dict[str, list[int]] = {}
    for p, n in zip(read["p"].to_pylist(), read["n"].to_pylist(), strict=True):
        got.setdefault(p, []).append(n)
    return got


def make(path: Path, **more: object) -> lakefmt.Table:
    return lakefmt.create_table(str(path / "t"), schema=SCHEMA, kind="append", **more)  # type: ignore[arg-type]


BEFORE = {"a": 1, "b": 2, "c": 3}
#: Partitioned, mode, partitions named, rows, what is left.
MATRIX = [
    (True, "dynamic", None, {"a": 9}, {"a": [9], "b": [2], "c": [3]}),
    (True, "dynamic", None, {}, {"a": [1], "b": [2], "c": [3]}),
    (True, "static", None, {"a": 9}, {"a": [9]}),
    (True, "static", None, {}, {}),
    (True, "dynamic", {"p": "a"}, {"a": 9}, {"a": [9], "b": [2], "c": [3]}),
    (True, "static", {"p": "a"}, {"a": 9}, {"a": [9], "b": [2], "c": [3]}),
    (True, "dynamic", {"p": "a"}, {}, {"a": [1], "b": [2], "c": [3]}),
    (True, "static", {"p": "a"}, {}, {"b": [2], "c": [3]}),
    (True, "static", [{"p": "a"}, {"p": "b"}], {"a": 9}, {"a": [9], "c": [3]}),
    (True, "static", {"p": "new"}, {"new": 9}, {"a": [1], "b": [2], "c": [3], "new": [9]}),
    (False, "dynamic", None, {"a": 9}, {"a": [9]}),
    (False, "dynamic", None, {}, {"a": [1], "b": [2], "c": [3]}),
    (False, "static", None, {"a": 9}, {"a": [9]}),
    (False, "static", None, {}, {}),
]


@pytest.mark.parametrize("order", ["none", "per_bucket"])
@pytest.mark.parametrize(("partitioned", "mode", "named", "given", "left"), MATRIX)
def test_what_an_overwrite_leaves(
    tmp_path: Path, order: str, partitioned: bool, mode: str, named: object, given: dict[str, int], left: object
) -> None:
    table = make(tmp_path, partition_by="p" if partitioned else None, order=order)
    table.append(rows(**BEFORE))
    result = table.overwrite(rows(**given), mode=mode, partitions=named)  # type: ignore[arg-type]
    assert content(table) == left
    if mode == "dynamic" and not given:
        assert result.instant is None


def test_a_row_for_another_partition_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path, partition_by="p")
    table.append(rows(**BEFORE))
    with pytest.raises(InvalidInputError, match="p=b"):
        table.overwrite(rows(a=1, b=2), mode="static", partitions={"p": "a"})
    with pytest.raises(InvalidInputError, match="mode"):
        table.overwrite(rows(a=1), mode="some")
    assert content(table) == {"a": [1], "b": [2], "c": [3]}
    assert not table.client.load().timeline.pending


def test_a_tag_survives_cleans(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(rows(a=1))
    tag = table.tags.create("first")
    table.overwrite(rows(b=2), mode="static")
    for _ in range(3):
        table.overwrite(rows(c=3), mode="static")
    table.clean(options={"hoodie.clean.commits.retained": 1})
    assert table.as_of(tag="first").read()["n"].to_pylist() == [1]
    assert table.tags.list() == (tag,)
    assert "first" in str(tag)
    table.tags.delete("first")
    assert table.tags.list() == ()
    assert table.savepoints() == ()
    assert table.clean(options={"hoodie.clean.commits.retained": 1}).files_deleted >= 1


def test_tags_share_a_state_and_keep_other_savepoints(tmp_path: Path) -> None:
    table = make(tmp_path)
    first = table.append(rows(a=1))
    table.tags.create("one")
    table.tags.create("two", first.instant)
    assert table.tags.create("two") == table.tags.list()[1]
    table.append(rows(b=2))
    with pytest.raises(AlreadyExistsError):
        table.tags.create("two")
    table.tags.delete("one")
    assert len(table.savepoints()) == 1
    table.tags.delete("two")
    assert table.savepoints() == ()
    table.savepoint(comment="by hand")
    table.tags.create("three")
    table.tags.delete("three")
    assert len(table.savepoints()) == 1


def test_restore_to_a_tag(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(rows(a=1))
    table.tags.create("good")
    table.append(rows(b=2))
    table.tags.restore("good")
    assert content(table) == {"a": [1]}
    table.append(rows(c=3))
    assert content(table) == {"a": [1], "c": [3]}


def test_a_tag_a_day(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert table.tags.create_daily() is None
    table.append(rows(a=1))
    table.tags.create("2020-01-01")
    table.append(rows(a=2))
    assert table.tags.create_daily(keep=1) is not None
    assert table.tags.create_daily(keep=1) is None
    assert len(table.tags.list()) == 1


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "x" * 129, "20260101000000000", None, 5])
def test_names_are_checked(tmp_path: Path, name: object) -> None:
    table = make(tmp_path)
    table.append(rows(a=1))
    with pytest.raises(InvalidInputError):
        table.tags.create(name)  # type: ignore[arg-type]
    assert table.savepoints() == ()


def test_damaged_and_missing_tags_are_named(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(rows(a=1))
    with pytest.raises(InstantNotFound, match="missing"):
        table.as_of(tag="missing")
    for text in (b"", b"{}", b"[]", b'{"instant": "../x", "created": "2026-01-01"}', b"[" * 9000):
        table.client.store.put(f"{TAGS}/bad.json", text)
        with pytest.raises(CorruptFile):
            table.tags.list()
        with pytest.raises(CorruptFile):
            table.as_of(tag="bad")
