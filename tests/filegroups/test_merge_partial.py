"""Rules beyond a merge mode: against a fold over dictionaries, row by row, as Hudi merges (docs/format.md, Merge modes; Partial updates)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.config.merge_rule import DeleteMark, MergeRule, Order, Partial, PartialMode
from lakefmt._core.filegroups.log_reader import LogRows
from lakefmt._core.filegroups.merge import Incoming, merge_into_base
from lakefmt._core.filegroups.merged_slice import merge_logs
from lakefmt._core.filegroups.ordering import is_replaceable, marked_deletes, ordering_columns
from lakefmt._core.filegroups.precombine import combine_rows
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import InvalidInputError
from tests.example_counts import examples

GONE = "__gone"
SCHEMA = pa.schema(
    [
        pa.field(RECORD_KEY, pa.string(), False),
        ("ts", pa.int64()),
        ("seq", pa.string()),
        pa.field("n", pa.int64(), metadata={b"avro.default": b"0"}),
        ("s", pa.string()),
        ("nested", pa.list_(pa.int64())),
        ("op", pa.string()),
    ]
)
Row = dict[str, Any]
row = st.fixed_dictionaries(
    {
        RECORD_KEY: st.sampled_from("abc"),
        "ts": st.one_of(st.none(), st.integers(0, 3)),
        "seq": st.one_of(st.none(), st.sampled_from(["1.9", "1.10", "2.3", "10.1"])),
        "n": st.one_of(st.none(), st.integers(0, 2)),
        "s": st.one_of(st.none(), st.sampled_from([GONE, "x", "y"])),
        "nested": st.one_of(st.none(), st.lists(st.integers(0, 2), max_size=2)),
        "op": st.sampled_from(["i", "i", "i", "D"]),
    }
)
batches = st.lists(row, min_size=6, max_size=16)
ORDERS = [Order(), Order(("ts",)), Order(("ts", "n")), Order(("seq",), numbered=True)]
PARTIALS = [
    None,
    *(
        Partial(mode, GONE, in_batch=a, from_late=b)
        for mode in PartialMode
        for a in (True, False)
        for b in (True, False)
    ),
    Partial(PartialMode.FILL_UNAVAILABLE),
]
MARKS = [None, DeleteMark("op", "d", any_case=True), DeleteMark("op", "D")]
#: Every partial rule with every order; marks and the power of deletes go round.
RULES = [
    MergeRule(order, order, partial, MARKS[(n + m) % 3], deletes_win=(n + m) % 2 == 1)
    for n, order in enumerate(ORDERS)
    for m, partial in enumerate(PARTIALS)
]

# --- the slow model ---------------------------------------------------------------------------------------------------


def _place(order: Order, record: Row) -> list[Any]:
    found = []
    for name in order.fields:
        value = record[name]
        if order.numbered:
            found.append((0, 0, 0) if value is None else (1, *map(int, value.split("."))))
        else:
            found.append((0, 0) if value is None else (1, value))
    return found


def _dead(rule: MergeRule, record: Row) -> bool:
    mark = rule.delete
    return mark is not None and (record["op"].lower() if mark.any_case else record["op"]) == mark.value


def _untimed(rule: MergeRule, record: Row) -> bool:
    """Return whether a record is a delete without an event time, which removes whatever came before it."""
    fields = rule.stored.fields
    return _dead(rule, record) and len(fields) == 1 and record[fields[0]] is None


def _says_nothing(partial: Partial, name: str, value: Any) -> bool:
    if partial.mode is PartialMode.FILL_UNAVAILABLE:
        return name in ("s", "seq", "op") and partial.text is not None and value == partial.text
    if partial.mode is PartialMode.IGNORE_DEFAULTS and name == "n":
        return bool(value == 0 and value is not None)
    return value is None


def _completed(partial: Partial, winner: Row, other: Row) -> Row:
    return {name: other[name] if _says_nothing(partial, name, value) else value for name, value in winner.items()}


def _two(rule: MergeRule, old: Row, new: Row, new_wins: bool, *, fills: bool, late: bool) -> Row:
    """Return what becomes of two records: the winner, completed unless one of them is a delete."""
    winner, other = (new, old) if new_wins else (old, new)
    if rule.partial is None or not fills or (not new_wins and not late) or _dead(rule, new) or _dead(rule, old):
        return winner
    return _completed(rule.partial, winner, other)


def _combined(rule: MergeRule, batch: Sequence[Row]) -> dict[str, Row]:
    found: dict[str, tuple[list[Any], Row]] = {}
    fills = rule.partial is not None and rule.partial.in_batch
    for new in batch:
        key, mine = new[RECORD_KEY], _place(rule.batch, new)
        if key not in found:
            found[key] = mine, new
            continue
        place, old = found[key]
        if _untimed(rule, new) or _untimed(rule, old):
            found[key] = mine, new
            continue
        # The winner keeps its own place, even where an ordering value of it gave way.
        late = rule.partial is not None and rule.partial.from_late
        found[key] = max(mine, place), _two(rule, old, new, mine >= place, fills=fills, late=late)
    return {key: record for key, (_, record) in found.items()}


def _merged(rule: MergeRule, stored: Sequence[Row], incoming: dict[str, Row]) -> tuple[list[Row], list[int]]:
    kept, counts = [], [0, 0, 0]  # updated, deleted, late
    for old in stored:
        new = incoming.get(old[RECORD_KEY])
        if new is None:
            kept.append(old)
            continue
        wins = _place(rule.stored, new) >= _place(rule.stored, old)
        if _dead(rule, new) and (wins or rule.deletes_win or _untimed(rule, new)):
            counts[1] += 1
            continue
        late = rule.partial is not None and rule.partial.from_late
        # A stored row is alive, whatever its mark says.
        alive = {**old, "op": "i"}
        result = _two(rule, alive, new, wins, fills=True, late=late)
        result = {**result, "op": old["op"]} if not wins else result
        counts[0 if wins or result != old else 2] += 1
        kept.append(result)
    known = {old[RECORD_KEY] for old in stored}
    return kept + [r for k, r in incoming.items() if k not in known and not _dead(rule, r)], counts


# --- laws -------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(batches)
def test_a_batch_combines_as_hudi_folds_it(batch: list[Row]) -> None:
    table = pa.Table.from_pylist(batch, schema=SCHEMA)
    codes = np.array([ord(r[RECORD_KEY]) for r in batch], dtype=np.int64)
    for rule in RULES:
        combined = combine_rows(table, codes, rule)
        assert combined is not None, "six rows have three keys"
        found = combined.table.to_pylist()
        assert {r[RECORD_KEY]: r for r in found} == _combined(rule, batch), rule
        assert len(found) == len({r[RECORD_KEY] for r in batch})
        assert combined.winners.tolist() == sorted(combined.winners.tolist())
        assert [batch[at][RECORD_KEY] for at in combined.winners] == [r[RECORD_KEY] for r in found]
        assert combined.table.schema.equals(SCHEMA, check_metadata=True)


@settings(max_examples=examples(25))
@given(st.lists(row, max_size=16), batches)
def test_a_stored_row_merges_as_hudi_does(stored: list[Row], batch: list[Row]) -> None:
    incoming = {r[RECORD_KEY]: r for r in batch}
    table = pa.Table.from_pylist(list(incoming.values()), schema=SCHEMA)
    base = pa.Table.from_pylist(stored, schema=SCHEMA)
    for rule in RULES:
        merged = merge_into_base(base, Incoming(table, marked_deletes(table, rule)), rule=rule)
        expected, (updated, deleted, late) = _merged(rule, stored, incoming)
        assert merged.table.to_pylist() == expected, rule
        assert (merged.updated, merged.deleted, merged.late) == (updated, deleted, late)


@settings(max_examples=examples(8))
@given(st.lists(row, max_size=8), st.lists(row, min_size=1, max_size=16))
def test_logs_fold_and_meet_the_base_file_as_hudi_says(stored: list[Row], rows: list[Row]) -> None:
    stored = list({r[RECORD_KEY]: r for r in stored}.values())
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    base = pa.Table.from_pylist(stored, schema=SCHEMA)
    for rule in (rule for rule in RULES if not rule.deletes_win):
        deletes = marked_deletes(table, rule)
        logs = LogRows(table, deletes, np.zeros(len(rows), dtype=bool), np.zeros(len(rows), np.int64), (None,))
        expected, _ = _merged(rule, stored, _combined(rule.for_logs(), rows))
        assert {r[RECORD_KEY]: r for r in merge_logs(base, logs, rule).to_pylist()} == {
            r[RECORD_KEY]: r for r in expected
        }, rule


def test_a_delete_that_wins_wipes_a_log() -> None:
    rule = MergeRule(Order(("ts",)), partial=Partial(PartialMode.IGNORE_NULLS), deletes_win=True)
    base = pa.table({RECORD_KEY: ["a", "b"], "ts": [5, 5], "v": [1, 1]})
    rows = pa.table({RECORD_KEY: ["a", "b", "b"], "ts": [1, 1, 6], "v": pa.array([None, 2, None], pa.int64())})
    deletes = np.array([True, True, False])
    logs = LogRows(rows, deletes, np.zeros(3, dtype=bool), np.zeros(3, np.int64), (None,))
    assert merge_logs(base, logs, rule).to_pylist() == [{RECORD_KEY: "b", "ts": 6, "v": 1}], (
        "b is completed, as Hudi does"
    )


def test_the_order_of_arrival_matters_and_is_followed() -> None:
    """The second record leads; the third is between them in time, and late: what the first gave stays."""
    rule = MergeRule(batch=Order(("ts",)), partial=Partial(PartialMode.IGNORE_NULLS))
    table = pa.table({"ts": [1, 3, 2], "v": [5, None, 7], "w": [None, None, 8]})
    combined = combine_rows(table, np.zeros(3, dtype=np.int64), rule)
    assert combined is not None
    assert combined.table.to_pylist() == [{"ts": 3, "v": 5, "w": 8}]


def test_a_late_row_that_brings_nothing_changes_nothing() -> None:
    rule = MergeRule(Order(("ts",)), partial=Partial(PartialMode.IGNORE_NULLS))
    base = pa.table({RECORD_KEY: ["a", "b"], "ts": [5, 5], "v": pa.array([None, None], pa.int64())})
    late = pa.table({RECORD_KEY: ["a", "b"], "ts": [1, 1], "v": pa.array([None, 3], pa.int64())})
    merged = merge_into_base(base, Incoming(late, np.zeros(2, dtype=bool)), rule=rule)
    assert (merged.updated, merged.late) == (1, 1)
    assert merged.table.to_pylist() == [{**r, "v": v} for r, v in zip(base.to_pylist(), (None, 3), strict=True)]


def test_meta_columns_are_those_of_the_write_that_changed_the_row() -> None:
    rule = MergeRule(Order(("ts",)), partial=Partial(PartialMode.IGNORE_NULLS))
    columns = {RECORD_KEY: ["won", "late", "none"], "_hoodie_commit_time": ["1"] * 3}
    base = pa.table({**columns, "ts": [1, 9, 9], "v": pa.array([4, None, 6])})
    new = {"_hoodie_commit_time": ["2"] * 3, "ts": [5, 5, 5], "v": pa.array([None, 7, 8])}
    merged = merge_into_base(base, Incoming(pa.table({**columns, **new}), np.zeros(3, dtype=bool)), rule=rule)
    assert merged.table["_hoodie_commit_time"].to_pylist() == ["2", "2", "1"]
    assert merged.table["v"].to_pylist() == [4, 7, 6]


def test_columns_that_a_partial_upsert_lacks_stay() -> None:
    rule = MergeRule(Order(("ts",)), partial=Partial(PartialMode.IGNORE_NULLS))
    base = pa.table({RECORD_KEY: ["a", "b"], "ts": [1, 9], "v": [1, None], "w": [1, None]})
    new = pa.table({RECORD_KEY: ["a", "b"], "ts": [5, 5], "v": [2, 3], "w": pa.array([None, None], pa.int64())})
    merged = merge_into_base(
        base, Incoming(new, np.zeros(2, dtype=bool), frozenset((RECORD_KEY, "ts", "v"))), rule=rule
    )
    assert merged.table.drop_columns([RECORD_KEY]).to_pylist() == [
        {"ts": 5, "v": 2, "w": 1},
        {"ts": 9, "v": 3, "w": None},
    ]


def test_a_column_that_a_late_partial_upsert_lacks_is_nothing_it_brings() -> None:
    rule = MergeRule(Order(("ts",)), partial=Partial(PartialMode.IGNORE_DEFAULTS))
    weak = pa.field("w", pa.int64(), metadata={b"avro.default": b"0"})
    schema = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), weak])
    base = pa.table({RECORD_KEY: ["a"], "ts": [9], "w": [0]}, schema=schema)
    late = pa.table({RECORD_KEY: ["a"], "ts": [5], "w": [None]}, schema=schema)
    merged = merge_into_base(base, Incoming(late, np.zeros(1, dtype=bool), frozenset((RECORD_KEY, "ts"))), rule=rule)
    assert (merged.updated, merged.late, merged.table) == (0, 1, base)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "default", "values", "expected"),
    [
        (pa.int64(), None, [None, 0], [True, False]),
        (pa.int64(), b"7", [None, 7, 8], [False, True, False]),
        (pa.bool_(), b"false", [False, True], [True, False]),
        (pa.string(), b'"-"', ["-", ""], [True, False]),
        (pa.binary(), b'"\\u00ff"', [b"\xff", b"f"], [True, False]),
        (pa.date32(), b"1", [1, 2], [True, False]),
        (pa.timestamp("us", "UTC"), b"1", [1, 2], [True, False]),
        (pa.float64(), b"0.5", [0.5, 0.0], [True, False]),
        (pa.list_(pa.int64()), b"[]", [[], None], [False, False]),
        (pa.list_(pa.int64()), None, [[], None], [False, True]),
    ],
)
def test_which_values_are_defaults(kind: pa.DataType, default: bytes | None, values: list[Any], expected: list[bool]):
    field = pa.field("c", kind, metadata={b"avro.default": default} if default else None)
    column = pa.array(values, pa.int32() if pa.types.is_date(kind) else None)
    column = column.cast(kind) if pa.types.is_temporal(kind) else pa.array(values, kind)
    assert is_replaceable(column, field, Partial(PartialMode.IGNORE_DEFAULTS)).tolist() == expected
    nulls = [value is None for value in values]
    assert is_replaceable(column, field, Partial(PartialMode.IGNORE_NULLS)).tolist() == nulls


def test_an_unavailable_value_is_text_or_bytes() -> None:
    partial = Partial(PartialMode.FILL_UNAVAILABLE, "1")
    for kind, values in ((pa.string(), ["1", None, "2"]), (pa.binary(), [b"1", None, b"2"])):
        assert is_replaceable(pa.array(values, kind), pa.field("c", kind), partial).tolist() == [True, False, False]
    assert not is_replaceable(pa.array([1]), pa.field("c", pa.int64()), partial).any()


def test_places_in_a_log_are_numbers_and_nothing_else() -> None:
    order = Order(("seq",), numbered=True, required=True)
    file, position = ordering_columns(pa.table({"seq": ["000003.000000154", None]}), order)
    assert (file.to_pylist(), position.to_pylist()) == ([3, None], [154, None])
    for wrong in ("mysql-bin.3", "3", "", "99999999999999999999.1"):
        with pytest.raises(InvalidInputError, match="no place"):
            ordering_columns(pa.table({"seq": ["1.1", wrong]}), order)
    base = pa.table({RECORD_KEY: ["a"], "seq": ["1.1"]})
    lacking = Incoming(pa.table({RECORD_KEY: ["a"], "seq": pa.array([None], pa.string())}), np.array([False]))
    with pytest.raises(InvalidInputError, match="null in 1 rows"):
        merge_into_base(base, lacking, rule=MergeRule(order))


def test_ordering_values_inside_structs() -> None:
    rule = MergeRule(Order(("at.ts",)), Order(("at.ts",)))
    base = pa.table({RECORD_KEY: ["a"], "at": [{"ts": 5}]})
    late = pa.table({RECORD_KEY: ["a"], "at": [{"ts": 4}]})
    assert merge_into_base(base, Incoming(late, np.array([False])), rule=rule).late == 1
    both = pa.concat_tables([base, late])
    combined = combine_rows(both, np.zeros(2, dtype=np.int64), rule)
    assert combined is not None
    assert combined.table.to_pylist() == base.to_pylist()
