"""``table.alter``: what is altered, what is refused, and what reads, writes and services make of older files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.schema.avro import AVRO_DOC
from lakefmt._core.schema.history import LATEST_SCHEMA
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.values import WriteOperation
from lakefmt.errors import CommitConflict, InvalidInputError, LakefmtError, SchemaMismatch
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "lakefmt.write.threads": 1,
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
COMPACT: dict[str, object] = {"hoodie.compact.inline.max.delta.commits": 1}
STRUCT = pa.struct([("p", pa.int32()), ("r", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("b", pa.string()),
        ("s", STRUCT),
        ("l", pa.list_(pa.struct([("e", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def rows(*ids: str, ts: int = 1, **columns: object) -> pa.Table:
    made = [
        {"id": key, "city": "sf", "ts": ts, "n": n, "f": 1.1, "b": f"b{n}", "s": {"p": n, "r": "r"}, "l": [{"e": n}]}
        for n, key in enumerate(ids)
    ]
    return pa.Table.from_pylist([{**row, **columns} for row in made], schema=SCHEMA)


def created(where: object = None, **how: Any) -> Table:
    how = {"options": OPTIONS, "partition_by": "city", "ordering": "ts", **how}
    table = lakefmt.create_table(
        f"memory://alter-{next(NUMBERS)}" if where is None else str(where), schema=SCHEMA, record_key="id", **how
    )
    table.upsert(rows("a", "b", "c"))
    return table


def column(table: Table, name: str, **how: Any) -> list[object]:
    return list(table.read(**how).sort_by("id").column(name).to_pylist())


ALTERATIONS: dict[str, tuple[Callable[[Table], object], str, pa.DataType, list[object]]] = {
    "add": (lambda t: t.alter.add_column("x", pa.int8()), "x", pa.int32(), [None] * 3),
    "rename": (lambda t: t.alter.rename_column("b", "c"), "c", pa.string(), ["b0", "b1", "b2"]),
    "to long": (lambda t: t.alter.update_column("n", type=pa.int64()), "n", pa.int64(), [0, 1, 2]),
    "to float": (lambda t: t.alter.update_column("n", type=pa.float32()), "n", pa.float32(), [0.0, 1.0, 2.0]),
    "to double": (lambda t: t.alter.update_column("f", type=pa.float64()), "f", pa.float64(), [1.1] * 3),
    "to text": (lambda t: t.alter.update_column("n", type=pa.string()), "n", pa.string(), ["0", "1", "2"]),
    "to decimal": (
        lambda t: t.alter.update_column("d", type=pa.decimal128(12, 4)),
        "d",
        pa.decimal128(12, 4),
        [None] * 3,
    ),
    "number to decimal": (
        lambda t: [t.alter.update_column("n", type=pa.decimal128(12, 2)), t.alter.rename_column("n", "k")],
        "k",
        pa.decimal128(12, 2),
        [pa.scalar(f"{n}.00").cast(pa.decimal128(12, 2)).as_py() for n in range(3)],
    ),
    "in a struct": (
        lambda t: [t.alter.rename_column("s.p", "q"), t.alter.add_column("s.x", pa.int64(), after="q")],
        "s",
        pa.struct([("q", pa.int32()), ("x", pa.int64()), ("r", pa.string())]),
        [{"q": n, "x": None, "r": "r"} for n in range(3)],
    ),
    "in a list": (
        lambda t: [
            t.alter.rename_column("l.element.e", "l.element.z"),
            t.alter.update_column("l.element.z", type=pa.int64()),
        ],
        "l",
        pa.list_(pa.field("element", pa.struct([("z", pa.int64())]))),
        [[{"z": n}] for n in range(3)],
    ),
    "in a map": (
        lambda t: t.alter.update_column("m.value", type=pa.int64()),
        "m",
        pa.map_(pa.string(), pa.int64()),
        [None] * 3,
    ),
    "a whole struct": (lambda t: t.alter.rename_column("s", "z"), "z", STRUCT, [{"p": n, "r": "r"} for n in range(3)]),
    "dropped and added": (
        lambda t: [t.alter.drop_column("b"), t.alter.add_column("b", pa.string())],
        "b",
        pa.string(),
        [None] * 3,
    ),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", list(ALTERATIONS))
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_alteration_keeps_what_is_stored(name: str, kind: str) -> None:
    alter, named, wanted, values = ALTERATIONS[name]
    table = created(table_type=kind)
    table.upsert(rows("a", ts=2))
    alter(table)
    assert table.schema.field(named).type == wanted
    assert column(table, named) == values[:1] + values[1:]
    # A write in the new columns lies beside the older rows; then all of it is written anew.
    before = table.read().sort_by("id")
    table.upsert(before.slice(1, 1).set_column(before.schema.get_field_index("ts"), "ts", pa.array([5])))
    assert column(table, named) == values
    if kind == "mor":
        table.compact(options=COMPACT)
    assert column(table, named) == values
    assert table.read(columns=[named]).schema.field(0).type == wanted
    if kind == "cow":
        check_invariants(table)


def test_places_comments_and_nullability() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
    table = lakefmt.create_table(f"memory://alter-{next(NUMBERS)}", schema=schema, record_key="id", options=OPTIONS)
    table.upsert(pa.table({"id": ["a"], "v": [1]}, schema=schema))
    table.alter.add_column("first", pa.string(), before="id", comment="what it is")
    table.alter.update_column("v", nullable=True, comment="a value", before="id")
    assert table.schema.names == ["first", "v", "id"]
    assert table.schema.field("v").nullable
    assert not table.schema.field("id").nullable
    assert table.schema.field("v").metadata[AVRO_DOC] == b"a value"
    assert table.schema.field("first").metadata[AVRO_DOC] == b"what it is"
    table.upsert(pa.table({"first": ["x"], "v": pa.nulls(1, pa.int64()), "id": ["b"]}))
    assert table.read().sort_by("id").to_pylist() == [
        {"first": None, "v": 1, "id": "a"},
        {"first": "x", "v": None, "id": "b"},
    ]


REFUSED: dict[str, tuple[Callable[[Table], object], type[LakefmtError], str]] = {
    "a key dropped": (lambda t: t.alter.drop_column("id"), SchemaMismatch, "part of the record key"),
    "a key renamed": (lambda t: t.alter.rename_column("id", "key"), SchemaMismatch, "part of the record key"),
    "a partition's type": (
        lambda t: t.alter.update_column("city", type=pa.binary()),
        SchemaMismatch,
        "a partition column",
    ),
    "an ordering column": (lambda t: t.alter.drop_column("ts"), SchemaMismatch, "an ordering column"),
    "narrower": (lambda t: t.alter.update_column("ts", type=pa.int32()), SchemaMismatch, "an ordering column"),
    "int from a text": (lambda t: t.alter.update_column("b", type=pa.int32()), SchemaMismatch, "does not let it"),
    "dates from texts": (lambda t: t.alter.update_column("b", type=pa.date32()), SchemaMismatch, "would be lost"),
    "a small decimal": (
        lambda t: t.alter.update_column("n", type=pa.decimal128(6, 2)),
        SchemaMismatch,
        "not all of its values fit",
    ),
    "fewer digits": (
        lambda t: t.alter.update_column("d", type=pa.decimal128(5, 2)),
        SchemaMismatch,
        "not all of its values fit",
    ),
    "a struct's type": (lambda t: t.alter.update_column("s", type=pa.string()), SchemaMismatch, "the fields in it"),
    "required": (lambda t: t.alter.update_column("b", nullable=False), SchemaMismatch, "cannot become required"),
    "twice": (lambda t: t.alter.add_column("b", pa.string()), SchemaMismatch, "already"),
    "twice but for case": (lambda t: t.alter.add_column("B", pa.string()), SchemaMismatch, "already"),
    "renamed to another": (lambda t: t.alter.rename_column("b", "n"), SchemaMismatch, "already"),
    "into another struct": (lambda t: t.alter.rename_column("b", "s.b"), SchemaMismatch, "stays in its struct"),
    "one of Hudi's": (lambda t: t.alter.drop_column("_hoodie_record_key"), SchemaMismatch, "one of Hudi's own"),
    "a name of Hudi's": (lambda t: t.alter.add_column("_hoodie_x", pa.int8()), SchemaMismatch, "_hoodie_"),
    "no name": (lambda t: t.alter.add_column("", pa.int8()), InvalidInputError, "an empty name"),
    "no legal name": (lambda t: t.alter.add_column("a b", pa.int8()), SchemaMismatch, "cannot be stored"),
    "no such column": (lambda t: t.alter.drop_column("zz"), InvalidInputError, "no column 'zz'"),
    "no such field": (lambda t: t.alter.rename_column("s.zz", "y"), InvalidInputError, "no column 's.zz'"),
    "no struct": (lambda t: t.alter.add_column("b.x", pa.int8()), InvalidInputError, "which has no fields"),
    "no element": (lambda t: t.alter.add_column("l.x", pa.int8()), InvalidInputError, "its part is 'element'"),
    "an element dropped": (lambda t: t.alter.drop_column("l.element"), InvalidInputError, "no column 'l.element'"),
    "the last field": (lambda t: t.alter.drop_column("l.element.e"), SchemaMismatch, "the last one"),
    "no such place": (lambda t: t.alter.add_column("x", pa.int8(), after="zz"), InvalidInputError, "beside 'zz'"),
    "both places": (
        lambda t: t.alter.add_column("x", pa.int8(), after="b", before="n"),
        InvalidInputError,
        "not both",
    ),
    "nothing": (lambda t: t.alter.update_column("b"), InvalidInputError, "what to change"),
    "a type of no name": (lambda t: t.alter.add_column("x", "whole number"), InvalidInputError, "unknown type .whole."),
    "no type for a table": (
        lambda t: t.alter.add_column("x", pa.map_(pa.int32(), pa.int32())),
        SchemaMismatch,
        "only string keys",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused_changes_nothing(name: str) -> None:
    call, error, message = REFUSED[name]
    table = created()
    before = [item.name for item in table.client.store.list()]
    with pytest.raises(error, match=message):
        call(table)
    assert [item.name for item in table.client.store.list()] == before


def test_the_column_of_an_index_is_refused() -> None:
    table = created()
    table.index.create("secondary_index", "b")
    with pytest.raises(SchemaMismatch, match="drop the index first"):
        table.alter.rename_column("b", "c")
    table.index.drop("secondary_index_b")
    table.alter.rename_column("b", "c")
    assert column(table, "c") == ["b0", "b1", "b2"]


def test_a_dry_run_changes_nothing() -> None:
    table = created()
    before = [item.name for item in table.client.store.list()]
    assert table.alter.rename_column("b", "c", dry_run=True).instant is None
    assert [item.name for item in table.client.store.list()] == before


def test_the_commit_is_hudis() -> None:
    table = created()
    told: list[object] = []
    result = table.alter.rename_column("b", "c", commit_metadata={"why": "because"}, on_commit=told.append)
    assert told
    state = table.client.load()
    commit = table.client.at(state).commit_metadata(state.timeline.commits[-1])
    assert (result.operation, commit.operation) == (WriteOperation.ALTER_SCHEMA, WriteOperation.ALTER_SCHEMA)
    assert (commit.stats, commit.extra_metadata["why"]) == ((), "because")
    assert f'"version_id":{result.instant}' in commit.extra_metadata[LATEST_SCHEMA]
    history = table.client.at(state).schema_history()
    assert history is not None
    assert [schema.version for schema in history.schemas] == [int(str(result.instant)), 0]


# ------------------------------------------------------------------------------------------------------ states and changes


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_earlier_state_has_its_own_columns_or_those_of_now(kind: str, version: int) -> None:
    table = created(table_type=kind, table_version=version)
    first = table.timeline.timeline.commits[0].time
    table.alter.rename_column("b", "c")
    table.upsert(table.read(filter="id = 'a'").set_column(7, "c", pa.array(["new"])))
    then = table.timeline.timeline.commits[-1].time
    table.alter.drop_column("c")
    table.alter.add_column("c", pa.int64())
    table.alter.rename_column("n", "b")
    assert column(table, "b", as_of=first) == ["b0", "b1", "b2"]
    assert column(table, "c", as_of=then) == ["new", "b1", "b2"]
    assert column(table, "b", as_of=first, schema_of="now") == [0, 1, 2]
    assert column(table, "c", as_of=first, schema_of="now") == [None] * 3
    assert table.read(as_of=first, schema_of="now").schema.equals(table.schema)
    assert table.snapshot(first, schema_of="now").read(filter="b = 1").num_rows == 1
    with pytest.raises(InvalidInputError, match="unknown schema_of"):
        table.read(schema_of="tomorrow")


@product_or_diagonal(mode=["DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY", "NONE"], kind=["cow", "mor"])
def test_increments_and_changes_across_alterations(kind: str, mode: str) -> None:
    capture = {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": mode}
    if mode == "NONE":
        capture = {}
    table = created(table_type=kind, properties=capture)
    table.upsert(rows("a", ts=2, b="second"))
    table.alter.rename_column("b", "c")
    table.alter.update_column("n", type=pa.string())
    table.update("id = 'b'", {"c": "third", "ts": 9})
    table.delete(["c"])
    increment = table.incremental("000").sort_by("id")
    assert increment.column("c").to_pylist() == ["second", "third"]
    changes = table.changes("000").to_pylist()
    assert [(one["op"], (one["before"] or {}).get("c"), (one["after"] or {}).get("c")) for one in changes] == [
        ("i", None, "b0"),
        ("i", None, "b1"),
        ("i", None, "b2"),
        ("u", "b0", "second"),
        ("u", "b1", "third"),
        ("d", "b2", None),
    ]
    assert {(one["after"] or one["before"])["n"] for one in changes} == {"0", "1", "2"}


def test_an_undone_alteration_leaves_the_columns_as_they_were() -> None:
    table = created()
    result = table.alter.rename_column("b", "c")
    table.rollback(str(result.instant))
    assert column(table, "b") == ["b0", "b1", "b2"]
    table.alter.rename_column("n", "m2")
    assert column(table, "m2") == [0, 1, 2]
    history = table.client.at(table.client.load()).schema_history()
    assert history is not None
    assert len(history.schemas) == 2, "the one that was undone does not count"


# ------------------------------------------------------------------------------------------------- statistics and indexes


@pytest.mark.parametrize("indexed_first", [True, False])
def test_statistics_never_leave_out_what_an_alteration_moved(indexed_first: bool) -> None:
    table = created(partition_by=None, ordering=None)
    kinds = ("column_stats", "record_index")
    for kind in kinds if indexed_first else ():
        table.index.create(kind)
    first = table.timeline.timeline.commits[0].time
    for number in range(12):
        table.insert(rows(f"k{number}", b=f"c{number}", n=100 + number))
    table.alter.rename_column("b", "old")
    table.alter.rename_column("n", "b")
    table.alter.add_column("n", pa.int32())
    table.upsert(table.read(filter="id = 'a'").set_column(3, "b", pa.array([7], pa.int32())))
    for kind in () if indexed_first else kinds:
        table.index.create(kind)
    assert column(table, "id", filter="b = 101") == ["k1"]
    assert column(table, "id", filter="old = 'c3'") == ["k3"]
    assert column(table, "id", filter="n is null and b < 3") == ["b", "c"]
    assert column(table, "id", filter="b = 7") == ["a"]
    assert column(table, "id", filter="b = 'b1'", as_of=first) == ["b"]
    assert not table.index.check().findings


# -------------------------------------------------------------------------------------------------------- schema on write

NULLS = ("hoodie.datasource.write.reconcile.schema", "hoodie.write.set.null.for.missing.columns")
DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"


@pytest.mark.parametrize("altered", [False, True])
@pytest.mark.parametrize("setting", [*NULLS, DROP])
def test_data_that_lack_columns(setting: str, altered: bool) -> None:
    table = created(partition_by=None)
    if altered:
        table.alter.add_column("x", pa.int64())
        table.upsert(table.read())
    data = rows("a", ts=2).select(["id", "city", "ts", "n", "s"]).append_column("new", pa.array([7]))
    data = data.set_column(4, "s", pa.array([{"p": 5}]))
    with pytest.raises(SchemaMismatch, match="the data lack"):
        table.upsert(data)
    with pytest.raises(SchemaMismatch, match="the mode is strict"):
        table.upsert(data, options={setting: True}, schema_change="strict")
    table.upsert(data, options={setting: True})
    names = ["id", "city", "ts", "n", "f", "d", "day", "b", "s", "l", "m", *(["x"] if altered else []), "new"]
    assert table.schema.names == (["id", "city", "ts", "n", "s", "new"] if setting == DROP else names)
    assert column(table, "s")[0] == ({"p": 5} if setting == DROP else {"p": 5, "r": None})
    assert column(table, "new") == [7, None, None]
    if setting != DROP:
        assert column(table, "b") == [None, "b1", "b2"]
    check_invariants(table)


def test_a_column_that_the_table_is_built_on_is_not_dropped() -> None:
    table = created(partition_by=None)
    before = [item.name for item in table.client.store.list()]
    with pytest.raises(SchemaMismatch, match="'ts', which cannot be dropped: it is an ordering column"):
        table.upsert(rows("a").drop_columns(["ts"]), options={DROP: True})
    assert [item.name for item in table.client.store.list()] == before


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_dropped_column_does_not_come_back_as_another(kind: str) -> None:
    """Files without ids are read by name: the table could not be read any more."""
    table = created(partition_by=None, table_type=kind)
    kept = rows("k").drop_columns(["b"])
    kept = kept.set_column(kept.schema.get_field_index("s"), "s", pa.array([{"p": 5}]))
    table.upsert(kept, options={DROP: True})
    wrong = kept.append_column("b", pa.array([7]))
    with pytest.raises(SchemaMismatch, match="'b' cannot be added as int64"):
        table.upsert(wrong)
    inside = kept.set_column(kept.schema.get_field_index("s"), "s", pa.array([{"p": 5, "r": 1.5}]))
    with pytest.raises(SchemaMismatch, match=r"'s\.r' cannot be added as double"):
        table.upsert(inside)
    for kind_of_b in (pa.int64(), pa.string()):
        with pytest.raises(SchemaMismatch, match="'b' cannot be added"):
            table.alter.add_column("b", kind_of_b)
    table.alter.add_column("other", pa.int64())
    with pytest.raises(SchemaMismatch, match="'b' cannot be added"):
        table.alter.add_column("b", pa.int64())
    table.alter.drop_column("other")
    table.alter.add_column("other", pa.string())  # that one had an id
    same = kept.append_column("other", pa.array(["o"])).append_column("b", pa.array(["back"]))
    table.upsert(same)
    assert sorted(column(table, "b"), key=str) == ["b0", "b1", "b2", "back"]


@pytest.mark.parametrize("what", ["ordering", "index"])
def test_a_field_that_the_table_is_built_on_is_not_dropped(what: str) -> None:
    """A field inside a struct was dropped: later rows had no event time, an index no column."""
    schema = pa.schema([("id", pa.string()), ("m", pa.struct([("ts", pa.int64()), ("x", pa.int64())]))])
    index = {"kind": "secondary_index", "columns": ["m.ts"], "name": "by_ts"}
    how: dict[str, Any] = {"ordering": "m.ts"} if what == "ordering" else {"indexes": ["record_index", index]}
    table = lakefmt.create_table(
        f"memory://alter-field-{what}", schema=schema, record_key="id", table_version=9, options=OPTIONS, **how
    )
    table.upsert(pa.table({"id": ["a"], "m": [{"ts": 5, "x": 1}]}, schema=schema))
    lacking = pa.table({"id": ["b"], "m": [{"x": 1}]})
    with pytest.raises(SchemaMismatch, match=r"'m\.ts', which cannot be dropped: it is"):
        table.upsert(lacking, options={DROP: True})
    assert table.schema.equals(schema)


# ------------------------------------------------------------------------------------------------------------ beside others


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda t: t.alter.rename_column("b", "c"), "changed the table's schema"),
        (lambda t: t.alter.add_column("x", pa.int64()), "altered"),
        (lambda t: [t.alter.drop_column("b"), t.alter.add_column("b", pa.string())], "altered|changed"),
    ],
)
def test_a_write_that_began_before_an_alteration_is_made_again(alter: Callable[[Table], object], message: str) -> None:
    beside: dict[str, object] = {
        **{key: value for key, value in OPTIONS.items() if "heartbeat" not in key},
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    }
    table = created(options=beside)
    context = lowlevel.begin_write(table, schema=SCHEMA)
    alter(table)
    statuses = [lowlevel.write_files(context, *each) for each in lowlevel.assign(context, rows("z"))]
    with pytest.raises(CommitConflict, match=message):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert column(table, "id") == ["a", "b", "c"]


def test_a_compaction_that_was_planned_before_an_alteration() -> None:
    table = created(table_type="mor", partition_by=None)
    table.upsert(rows("a", ts=2, b="log"))
    table.compact(schedule=True, options=COMPACT)
    table.alter.rename_column("b", "c")
    table.alter.add_column("b", pa.int64())
    table.upsert(table.read(filter="id = 'b'").set_column(2, "ts", pa.array([9])).set_column(7, "c", pa.array(["new"])))
    table.compact(options=COMPACT)
    assert column(table, "c") == ["log", "new", "b2"]
    assert column(table, "b") == [None] * 3


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_clustering_before_and_after_an_alteration(kind: str) -> None:
    table = created(table_type=kind, partition_by=None)
    table.insert(rows("d", b="b0"))
    table.cluster(["b"], schedule=True)
    table.alter.rename_column("b", "c")
    table.alter.add_column("b", pa.int64())
    table.cluster()
    assert column(table, "c") == ["b0", "b1", "b2", "b0"], "planned before, done after"
    assert column(table, "b") == [None] * 4
    table.insert(table.read(filter="id = 'a'").set_column(0, "id", pa.array(["e"])))
    table.alter.rename_column("c", "name")
    table.cluster(["name"])
    assert column(table, "name") == ["b0", "b1", "b2", "b0", "b0"]
    assert column(table, "n") == [0, 1, 2, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_death_at_any_effect_leaves_the_old_or_the_new_name(version: int) -> None:
    made = MemoryStore(f"alter-{next(NUMBERS)}")
    created(made.url, table_version=version).alter.rename_column("n", "number")
    for number in itertools.count(1):
        store = MemoryStore(f"alter-{next(NUMBERS)}")
        for found in made.list():
            store.put(found.name, made.read(found.name))
        faulty = FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True))
        try:
            Table(TableClient(faulty, OPTIONS)).alter.rename_column("b", "c")
            break
        except SimulatedCrash:
            pass
        healthy = Table(TableClient(store, OPTIONS))
        name = "c" if "c" in healthy.schema.names else "b"
        assert column(healthy, name) == ["b0", "b1", "b2"], number
        healthy.alter.rename_column(name, "z")
        healthy.upsert(healthy.read())
        assert column(healthy, "z") == ["b0", "b1", "b2"], number
        assert column(healthy, "number") == [0, 1, 2], number
        check_invariants(healthy)
        check_no_orphans(healthy)
    assert number > 4


@pytest.mark.judge_rs
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_rs_reads_what_names_tell(tmp_path: Path, hudi_rs_judge: HudiRsJudge, kind: str) -> None:
    """hudi-rs goes by names: it reads what was added and widened, and rows that were written after a change."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("b", pa.string())])
    data = pa.table({"id": ["a", "b"], "ts": [1, 1], "n": [1, 2], "b": ["x", "y"]}, schema=schema)
    table = lakefmt.create_table(
        str(tmp_path / "t"), data=data, record_key="id", ordering="ts", table_type=kind, options=OPTIONS
    )
    table.upsert(data)
    table.alter.add_column("more", pa.string())
    table.alter.drop_column("b")
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="added and dropped")
    table.alter.rename_column("n", "number")
    with pytest.raises(AssertionError):
        assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="renamed: names do not tell")
    table.insert_overwrite_table(table.read())
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="written anew")
