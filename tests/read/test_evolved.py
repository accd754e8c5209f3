"""Tables whose columns Spark gave ids: refused where names do not tell the columns of older files, else read and written on."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient
from lakefmt.schema.history import LATEST_SCHEMA
from lakefmt.testing.stores import CountingStore
from lakefmt.timeline.commit import encode_commit

RENAMED = Path(__file__).parents[1] / "data" / "evolved" / "v9_mor_renamed_120.zip"
REASON = "column 'c' was called 'b' before"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"id": ["a"], "v": [1]}, schema=SCHEMA)
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.clean.automatic": False, "lakefmt.write.threads": 1}
HISTORY = ".hoodie/.schema"
NUMBERS = itertools.count()


@pytest.fixture
def renamed(tmp_path: Path) -> lakefmt.Table:
    with zipfile.ZipFile(RENAMED) as packed:
        packed.extractall(tmp_path)
    return lakefmt.open_table(str(tmp_path / "renamed"))


CALLS: dict[str, Callable[[lakefmt.Table], object]] = {
    "read": lambda table: table.read(),
    "columns": lambda table: table.read(columns=["id"]),
    "read optimized": lambda table: table.read(query="read_optimized"),
    "schema": lambda table: table.schema,
    "scan": lambda table: list(table.scan()),
    "incremental": lambda table: table.incremental("000"),
    "changes": lambda table: table.changes("000"),
    "upsert": lambda table: table.upsert([{"id": 1, "c": "x"}], partial=True),
    "insert": lambda table: table.insert([{"id": 1, "c": "x"}]),
    "delete": lambda table: table.delete("id = 1"),
    "delete by key": lambda table: table.delete([1]),
    "update": lambda table: table.update("id = 1", {"c": "x"}),
    "overwrite": lambda table: table.insert_overwrite([{"id": 1, "c": "x"}]),
    "compact": lambda table: table.compact(options={"hoodie.compact.inline.max.delta.commits": 1}),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_renamed_column_is_refused(renamed: lakefmt.Table, name: str) -> None:
    def completed() -> list[str]:
        return [str(instant) for instant in renamed.timeline.timeline.commits]

    before = completed()
    with pytest.raises(UnsupportedFeature, match=REASON):
        CALLS[name](renamed)
    assert completed() == before, "nothing was written"


def test_before_the_change_names_are_right(renamed: lakefmt.Table) -> None:
    first, altered, _ = renamed.timeline.timeline.commits
    assert renamed.read(columns=["id", "b"], as_of=first.time).to_pylist() == [
        {"id": 1, "b": "b1"},
        {"id": 2, "b": "b2"},
    ]
    with pytest.raises(UnsupportedFeature, match=REASON):
        renamed.read(as_of=altered.time)


def schemas(*versions: tuple[int, dict[int, str]]) -> list[dict[str, object]]:
    return [
        {
            "version_id": version,
            "type": "record",
            "fields": [{"id": i, "name": n, "optional": True, "type": "string"} for i, n in columns.items()],
        }
        for version, columns in versions
    ]


NAMES = {0: "id", 1: "v"}
GROWN = json.dumps({"schemas": schemas((5, NAMES), (0, {0: "id"}))})


def given_ids(history: str | None = GROWN, **how: object) -> tuple[CountingStore, lakefmt.Table]:
    """A table whose newest commit names ids, as if Spark had added the column v; `history` is what it keeps of them."""
    made = lakefmt.create_table(
        f"memory://evolved-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        options=OPTIONS,
        **how,  # type: ignore[arg-type]
    )
    made.upsert(ROWS)
    state = made.client.load()
    (commit,) = state.timeline.commits
    said = made.client.commit_metadata(state, commit)
    named = {**said.extra_metadata, LATEST_SCHEMA: json.dumps(schemas((5, NAMES))[0])}
    body = encode_commit(replace(said, extra_metadata=named), state.config.version, replace=False)
    made.client.store.put(f"{state.config.timeline_directory}/{commit.file_name}", body)
    if history is not None:
        made.client.store.put(f"{HISTORY}/{commit.time}_{commit.completion}.schemacommit", history.encode())
        made.client.store.put(f"{HISTORY}/{commit.time}.schemacommit.inflight", b"")
    store = CountingStore(made.client.store)
    return store, lakefmt.Table(TableClient(store, OPTIONS))


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_that_has_grown_goes_on_and_keeps_its_ids(version: int, kind: str) -> None:
    _, table = given_ids(table_type=kind, table_version=version)
    assert table.read().to_pylist() == [{"id": "a", "v": 1}]
    table.upsert([{"id": "a", "v": 2}])
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    table.delete(["a"])
    table.insert([{"id": "b", "v": 3}])
    assert table.read().to_pylist() == [{"id": "b", "v": 3}]
    state = table.client.load()
    for commit in state.timeline.commits:
        assert json.loads(table.client.commit_metadata(state, commit).extra_metadata[LATEST_SCHEMA])["version_id"] == 5


def test_columns_that_would_need_an_id_are_refused() -> None:
    _, table = given_ids()
    for data in ([{"id": "b", "v": 1, "more": 2}], [{"id": "b", "v": 0.5}]):
        with pytest.raises(UnsupportedFeature, match="change the columns with ALTER TABLE in Spark"):
            table.upsert(data)
        with pytest.raises(UnsupportedFeature, match="change the columns with ALTER TABLE in Spark"):
            table.upsert(data, dry_run=True)
    assert table.read().num_rows == 1


@pytest.mark.parametrize(
    ("history", "error", "message"),
    [
        (None, UnsupportedFeature, "their history is not in"),
        ("{", CorruptFile, "is no JSON"),
        (json.dumps({"schemas": schemas((5, NAMES), (0, {0: "id", 1: "w"}))}), UnsupportedFeature, "was called 'w'"),
    ],
)
def test_a_history_that_cannot_be_followed(history: str | None, error: type[Exception], message: str) -> None:
    _, table = given_ids(history)
    with pytest.raises(error, match=message):
        table.read()
    with pytest.raises(error, match=message):
        table.upsert(ROWS)


def test_the_history_is_looked_at_where_commits_name_ids_only_and_once() -> None:
    store, table = given_ids()
    table.read()
    assert [one.kind for one in store.log if one.name.startswith(HISTORY)] == ["list", "read"]
    store.reset()
    table.read()
    table.upsert([{"id": "a", "v": 5}])
    table.read()
    assert not [one for one in store.log if one.name.startswith(HISTORY)]
    plain = CountingStore(
        lakefmt.create_table(f"memory://evolved-{next(NUMBERS)}", data=ROWS, record_key="id").client.store
    )
    other = lakefmt.Table(TableClient(plain, OPTIONS))
    other.upsert(ROWS)
    other.read()
    assert plain.log
    assert not [one for one in plain.log if one.name.startswith(HISTORY)]


def test_a_caller_does_not_name_ids() -> None:
    _, table = given_ids()
    with pytest.raises(InvalidInputError, match="'latest_schema' is taken"):
        table.upsert(ROWS, commit_metadata={LATEST_SCHEMA: "{}"})
