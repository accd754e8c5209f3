"""Tables whose columns have ids: read by them, written on, and the history of their schemas."""

from __future__ import annotations

import itertools
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.schema.history import LATEST_SCHEMA, parse_history, parse_internal_schema
from lakefmt._core.timeline.commit import encode_commit
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.testing.stores import CountingStore

RENAMED = Path(__file__).parents[1] / "data" / "evolved" / "v9_mor_renamed_120.zip"
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


CHANGED = [
    {"id": 1, "c": "b1"},
    {"id": 2, "c": "b2"},
]


def test_a_renamed_column_of_sparks_keeps_its_values(renamed: lakefmt.Table) -> None:
    assert "b" not in renamed.schema.names
    assert renamed.read(columns=["id", "c"]).sort_by("id").to_pylist() == CHANGED
    assert renamed.read(columns=["id", "c"], filter="c = 'b2'").to_pylist() == CHANGED[1:]
    assert pa.Table.from_batches(renamed.scan(columns=["id", "c"])).sort_by("id").to_pylist() == CHANGED
    assert renamed.read(columns=["c"], query="read_optimized").num_rows == 2
    assert renamed.incremental("000", columns=["id", "c"]).sort_by("id").to_pylist() == CHANGED


def test_a_table_with_a_renamed_column_goes_on(renamed: lakefmt.Table) -> None:
    renamed.upsert([{"id": 1, "c": "x"}], partial=True, options=OPTIONS)
    renamed.update("id = 2", {"c": "y"}, options=OPTIONS)
    expected = [{"id": 1, "c": "x"}, {"id": 2, "c": "y"}]
    assert renamed.read(columns=["id", "c"]).sort_by("id").to_pylist() == expected
    renamed.compact(options={"hoodie.compact.inline.max.delta.commits": 1, **OPTIONS})
    assert renamed.read(columns=["id", "c"]).sort_by("id").to_pylist() == expected
    renamed.delete([1], options=OPTIONS)
    assert renamed.read(columns=["id", "c"]).to_pylist() == expected[1:]


def test_the_texts_are_those_of_hudi(renamed: lakefmt.Table) -> None:
    state = renamed.client.load()
    internal = renamed.client.at(state).internal_schema()
    assert internal is not None
    assert parse_internal_schema(internal, "Spark's").text() == internal
    (*_, newest) = sorted(info.name for info in renamed.client.store.list(HISTORY) if info.name.endswith("commit"))
    text = renamed.client.store.read(newest).decode()
    assert parse_history(text, newest).text == text


def test_a_state_from_before_the_change_has_the_names_of_then(renamed: lakefmt.Table) -> None:
    first, altered, _ = renamed.timeline.timeline.commits
    assert renamed.read(columns=["id", "b"], as_of=first.time).to_pylist() == [
        {"id": 1, "b": "b1"},
        {"id": 2, "b": "b2"},
    ]
    assert renamed.read(columns=["id", "c"], as_of=altered.time).sort_by("id").to_pylist() == CHANGED


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
    said = made.client.at(state).commit_metadata(commit)
    internal = parse_internal_schema(json.dumps(schemas((5, NAMES))[0]), "a test").text()
    named = {**said.extra_metadata, LATEST_SCHEMA: internal}
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
        assert (
            json.loads(table.client.at(state).commit_metadata(commit).extra_metadata[LATEST_SCHEMA])["version_id"] == 5
        )


def test_new_columns_of_a_write_get_ids() -> None:
    _, table = given_ids()
    table.upsert([{"id": "b", "v": 1, "more": 2}])
    state = table.client.load()
    history = table.client.at(state).schema_history()
    assert history is not None
    assert [(column.name, column.number) for column in history.latest.columns if column.number > 1] == [("more", 2)]
    assert history.latest.version == int(state.timeline.commits[-1].time)
    with_half = table.upsert([{"id": "c", "v": 0.5, "more": 2}])
    assert table.client.at(table.client.load()).schema_history().latest.version == int(with_half.instant)
    assert [row["v"] for row in table.read().sort_by("id").to_pylist()] == [1.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("history", "error", "message"),
    [
        (None, UnsupportedFeature, "their history is not in"),
        ("{", CorruptFile, "is no JSON"),
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
    assert [one.kind for one in store.log if one.name.startswith(HISTORY)] == ["put"], "each commit stores it"
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
