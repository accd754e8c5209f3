"""What a merge makes of stored rows and source rows (pure).

A stored row and a source row that belong together are a pair. Conditions and values of a clause are computed over pairs as a
table of two structs, ``t`` (the stored row) and ``s`` (the source row), so that ``t.fare`` is a field of a column. The first
clause whose condition holds decides about a pair; a row without a partner is a pair with one side.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import foreign, mapping_argument
from lakefmt._core.arrays import from_numpy, one_array, other_rows
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.read.filters import parse_filter
from lakefmt._core.schema import conform
from lakefmt._core.schema.python_values import arrow_scalar
from lakefmt._core.values import PARTITION_PATH, Filter
from lakefmt.errors import DuplicateKey, InvalidExpression, InvalidFilter, InvalidInputError, SchemaMismatch

if TYPE_CHECKING:
    from lakefmt._core.read.sql_expressions import SqlExpression

__all__ = [
    "Clause",
    "JoinRule",
    "MergePlan",
    "Path",
    "Values",
    "When",
    "WindowResult",
    "column_at",
    "join_rule",
    "merge_window",
    "plan_pairs",
    "unmatched_inserts",
]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: A column, or a field inside structs.
Path = tuple[str, ...]
#: Column → SQL expression (text), Arrow expression or value; None: every column that the source has.
Values = Mapping[str, object] | None

#: The sides of a pair.
TARGET, SOURCE = "t", "s"
#: Pairs of a merge whose condition has no equation are not more than this many at a time.
_MOST_PAIRS = 20_000_000
_ROW = "_lakefmt_row"


class When(enum.Enum):
    """Which rows a clause is for: pairs, source rows without a partner, stored rows without a partner."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"

    @property
    def sides(self) -> tuple[str, ...]:
        """The structs that conditions and values of such a clause see."""
        if self is When.MATCHED:
            return (TARGET, SOURCE)
        return (SOURCE,) if self is When.NOT_MATCHED else (TARGET,)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause as the caller gave it.

    Attributes:
        when: which rows it is for.
        deletes: it deletes the stored row; else it updates it, or inserts the source row.
        values: what an update or an insert stores.
        where: its condition; None: it holds for all.
    """

    when: When
    deletes: bool = False
    values: Values = None
    where: Filter = None


@dataclass(frozen=True, slots=True)
class _Action:
    """A clause whose expressions fit the columns.

    Attributes:
        number: its position among all clauses.
        where: None: it holds for all.
        values: column of the table → expression over a pair; None: the stored row is deleted.
    """

    number: int
    where: pc.Expression | None
    values: Mapping[str, pc.Expression] | None

    def is_plain(self, names: Sequence[str]) -> bool:
        """Return whether an insert stores some columns as they are in the source."""
        values = self.values or {}
        return all(name in values and values[name].equals(pc.field(SOURCE, name)) for name in names)


@dataclass(frozen=True, slots=True)
class JoinRule:
    """Which rows belong together.

    Attributes:
        equal: pairs of columns, of the table and of the source, whose values are equal; null equals nothing.
        condition: what else holds for a pair, as SQL over ``t`` and ``s``; None: nothing.
    """

    equal: tuple[tuple[Path, Path], ...]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge whose clauses fit the columns.

    Attributes:
        rule: which rows belong together.
        schema: the columns of the rows that it stores: the table's, then new ones of the source.
        stored: the columns of the table.
        actions: the clauses, by the rows that they are for, in the caller's order.
        condition: of the rule, as an expression.
        source_keys: the source's columns of the rule, typed as those of the table, one for each of ``rule.equal``.
        source_paths: the partition of each source row, where rows of other partitions are no partners of it; None: they are.
    """

    rule: JoinRule
    schema: pa.Schema
    stored: pa.Schema
    source: pa.Table
    source_keys: pa.Table
    actions: Mapping[When, tuple[_Action, ...]]
    condition: pc.Expression | None = None
    source_paths: pa.StringArray | None = None


# ---------------------------------------------------------------------------------------------------- the join rule


def join_rule(on: str | Sequence[str] | None, key: Sequence[str], target: pa.Schema, source: pa.Schema) -> JoinRule:
    """Return which rows belong together.

    Args:
        on: names of columns that both have; an SQL condition over ``t`` and ``s``; None: the record key.
        key: the columns of the record key; none: the table generates its keys.
        target: the columns of the table.
        source: the columns of the source.

    Raises:
        InvalidInputError: there is no record key, or one of both lacks a column.
        InvalidFilter: the condition cannot be understood.

    Example:
        >>> columns = pa.schema([("id", pa.string()), ("day", pa.date32())])
        >>> join_rule("t.id = s.id and s.day >= t.day", [], columns, columns).equal
        ((('id',), ('id',)),)
        >>> join_rule(None, ["id"], columns, columns)
        JoinRule(equal=((('id',), ('id',)),), condition=None)
    """
    if isinstance(on, str) and on not in target.names:
        return _rule_of_condition(on, target, source)
    names = list(key) if on is None else [on] if isinstance(on, str) else list(on)
    if not names:
        raise InvalidInputError(
            "the table generates its record keys: say by on= which rows belong together, as columns or as a condition such as "
            '"t.id = s.id"'
        )
    for side, schema in (("table", target), ("source", source)):
        if lacking := [name for name in names if _type_at(schema, tuple(name.split("."))) is None]:
            raise InvalidInputError(f"merge: the {side} has no column {', '.join(map(repr, lacking))}: {schema.names}")
    paths = [tuple(name.split(".")) for name in names]
    # Floats are compared as a condition compares them. A hash join distinguishes 0.0 from -0.0 and matches NaN with NaN.
    by_value = [
        path
        for path, name in zip(paths, names, strict=True)
        if name not in key and not _can_join(target, path, source, path)
    ]
    equal = tuple((path, path) for path in paths if path not in by_value)
    terms = [" = ".join(f"{side}.{_quoted(path)}" for side in (TARGET, SOURCE)) for path in by_value]
    return JoinRule(equal, " and ".join(terms) or None)


def _quoted(path: Path) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)


def _rule_of_condition(condition: str, target: pa.Schema, source: pa.Schema) -> JoinRule:
    import sqlglot  # imported on first use: few programs write SQL
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(condition, dialect="duckdb", into=exp.Condition)
    except (errors.ParseError, errors.TokenError) as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the merge condition {condition!r:.200} is not an SQL condition: {first}") from error
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    equal, others = list[tuple[Path, Path]](), 0
    for part in parts:
        part = part.unnest()
        sides = {} if not isinstance(part, exp.EQ) else dict(map(_side_of, (part.left, part.right)))
        ours, theirs = sides.get(TARGET), sides.get(SOURCE)
        if ours is None or theirs is None or not _can_join(target, ours, source, theirs):
            others += 1
        else:
            equal.append((ours, theirs))
    return JoinRule(tuple(equal), condition if others else None)


def _side_of(tree: object) -> tuple[str, Path]:
    """Return the side that a column of a tree belongs to, and its path there; an empty side: it is no such column."""
    from sqlglot import exp

    parts: list[str] = []
    while isinstance(tree, exp.Dot):
        parts.insert(0, tree.expression.name)
        tree = tree.this
    if not isinstance(tree, exp.Column) or len(tree.parts) < 1:
        return "", ()
    names = [part.name for part in tree.parts] + parts
    return (names[0], tuple(names[1:])) if len(names) > 1 else ("", ())


def _can_join(target: pa.Schema, ours: Path, source: pa.Schema, theirs: Path) -> bool:
    """Return whether equal values of two columns can be found by hashes: others are compared pair by pair."""
    kinds = _type_at(target, ours), _type_at(source, theirs)
    return all(
        data_type is not None and not pt.is_nested(data_type) and not pt.is_floating(data_type) for data_type in kinds
    )


def _type_at(schema: pa.Schema, path: Path) -> pa.DataType | None:
    index = schema.get_field_index(path[0])
    data_type = None if index < 0 else schema.field(index).type
    for name in path[1:]:
        if data_type is None or not pt.is_struct(data_type) or data_type.get_field_index(name) < 0:
            return None
        data_type = data_type.field(data_type.get_field_index(name)).type
    return data_type


def column_at(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return a column, or a field inside structs."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


# -------------------------------------------------------------------------------------------------------- the plan


def plan_pairs(rule: JoinRule, clauses: Sequence[Clause], stored: pa.Schema, source: pa.Table) -> MergePlan:
    """Return a merge whose clauses fit the columns.

    Args:
        rule: which rows belong together.
        clauses: in the caller's order.
        stored: the columns of the table.
        source: the source's rows.

    Raises:
        InvalidInputError: a clause names a column that is not there.
        InvalidFilter: a condition cannot be understood.
        SchemaMismatch: a value, or a column by which rows are joined, does not fit.
    """
    takes_all = any(not clause.deletes and clause.values is None for clause in clauses)
    known = set(stored.names)
    new = [each.with_nullable(True) for each in source.schema if each.name not in known] if takes_all else []
    schema = pa.schema([*stored, *new])
    actions: dict[When, list[_Action]] = {when: [] for when in When}
    for number, clause in enumerate(clauses):
        structs = _pair_schema(clause.when, stored, source.schema)
        values = None if clause.deletes else _expressions(clause, schema, stored, source.schema, structs)
        where = None if clause.where is None else _condition(clause.where, structs)
        actions[clause.when].append(_Action(number, where, values))
    condition = None
    if rule.condition is not None:
        condition = _condition(rule.condition, _pair_schema(When.MATCHED, stored, source.schema))
    return MergePlan(
        rule,
        schema,
        stored,
        source,
        _typed_keys(rule, stored, source),
        {when: tuple(some) for when, some in actions.items()},
        condition,
    )


def _typed_keys(rule: JoinRule, stored: pa.Schema, source: pa.Table) -> pa.Table:
    columns = {}
    for number, (ours, theirs) in enumerate(rule.equal):
        name = f"s.{'.'.join(theirs)}"
        try:
            typed = conform(pa.table({name: column_at(source, theirs)}), pa.schema([(name, _type_at(stored, ours))]))
        except SchemaMismatch as error:
            raise SchemaMismatch(f"the source cannot be joined by t.{'.'.join(ours)} = {name}: {error}") from None
        columns[str(number)] = typed.column(0)
    return pa.table(columns)


def _pair_schema(when: When, stored: pa.Schema, source: pa.Schema) -> pa.Schema:
    columns = {TARGET: stored, SOURCE: source}
    return pa.schema([pa.field(side, pa.struct(list(columns[side]))) for side in when.sides])


def _condition(where: Filter, structs: pa.Schema) -> pc.Expression:
    if isinstance(where, str):
        parsed = _parsed(where, structs)
        if not (pt.is_boolean(parsed.type) or pt.is_null(parsed.type)):
            raise InvalidExpression(f"{where!r:.200} is of type {parsed.type}: a condition is expected")
        return parsed.expression
    condition = parse_filter(where, structs)
    return pc.scalar(True) if condition is None else condition.exact


def _parsed(sql: str, structs: pa.Schema, target: pa.DataType | None = None) -> SqlExpression:
    from lakefmt._core.read.sql_expressions import parse_expression  # brings a parser along

    try:
        return parse_expression(sql, structs, target=target)
    except InvalidExpression as error:
        raise InvalidExpression(f"{error}; {_sides_text(structs)}") from None


def _sides_text(structs: pa.Schema) -> str:
    texts = {TARGET: "t.<column> is a column of the table", SOURCE: "s.<column> one of the source"}
    return "in this clause " + ", ".join(texts[name] for name in structs.names)


def _expressions(
    clause: Clause, schema: pa.Schema, stored: pa.Schema, source: pa.Schema, structs: pa.Schema
) -> dict[str, pc.Expression]:
    """Return what a clause stores in every column."""
    assignments: Mapping[str, object]
    known = set(stored.names)
    if clause.values is None:
        assignments = {name: pc.field(SOURCE, name) for name in source.names}
    else:
        assignments = mapping_argument(clause.values, "values")
        if unknown := [name for name in assignments if name not in known]:
            raise InvalidInputError(f"no column {', '.join(map(repr, unknown))}; the table has {stored.names}")
        if not assignments:
            raise InvalidInputError(f"a clause for {clause.when.value} rows sets no column")
    updates = clause.when is not When.NOT_MATCHED
    made: dict[str, pc.Expression] = {}
    for each in schema:
        if each.name in assignments:
            made[each.name] = _value(assignments[each.name], each, structs)
        elif updates and each.name in known:
            made[each.name] = pc.field(TARGET, each.name)
        else:
            made[each.name] = pc.scalar(pa.scalar(None, each.type))
    return made


def _value(value: object, column: pa.Field, structs: pa.Schema) -> pc.Expression:
    if isinstance(value, pc.Expression):
        return value
    if isinstance(value, str):
        return _parsed(value, structs, column.type).expression
    if isinstance(value, pa.Scalar):
        value = value.as_py()  # one value that the caller gave
    return pc.scalar(arrow_scalar(value, column.type, column.name))


# ----------------------------------------------------------------------------------------------------- the decision


@dataclass(frozen=True, slots=True)
class WindowResult:
    """What a merge makes of some stored rows.

    Attributes:
        updated: the new rows, in the columns of the plan.
        updates: for each of them the number of the stored row that it replaces.
        deletes: the numbers of stored rows that are deleted.
        matched: for each source row whether it has a partner among these.
    """

    updated: pa.Table
    updates: Rows
    deletes: Rows
    matched: Mask


@dataclass(slots=True)
class _Chosen:
    """Rows by the clause that decides about them: stored rows, and the rows of pairs where there is a source row."""

    updated: list[pa.Table] = field(default_factory=list)
    updates: list[Rows] = field(default_factory=list)
    deletes: list[Rows] = field(default_factory=list)


def merge_window(plan: MergePlan, target: pa.Table) -> WindowResult:
    """Return what becomes of some stored rows.

    Args:
        plan: the merge.
        target: stored rows, which have the columns of ``plan.stored``, or those of its rule where it only inserts; and their
            partition path where the plan has ``source_paths``.

    Raises:
        DuplicateKey: two source rows change one stored row.
        SchemaMismatch: a value cannot be computed, or does not fit its column.
    """
    held = set(target.column_names)
    columns = target.select([name for name in plan.stored.names if name in held])
    ours, theirs = _pairs(plan, columns)
    if plan.source_paths is not None:
        together = to_mask(pc.equal(target.column(PARTITION_PATH).take(ours), plan.source_paths.take(theirs)))
        ours, theirs = ours[together], theirs[together]
    matched = np.zeros(plan.source.num_rows, bool)
    matched[theirs] = True
    chosen = _Chosen()
    actions = plan.actions[When.MATCHED]
    if actions and len(ours):
        pairs = _structs({TARGET: (columns, ours), SOURCE: (plan.source, theirs)})
        by_action = _first_that_holds(pairs, actions)
        _check_one_source_row(actions, by_action, ours)
        _choose(plan, actions, by_action, pairs, ours, chosen)
    actions = plan.actions[When.NOT_MATCHED_BY_SOURCE]
    if actions:
        alone = other_rows(columns.num_rows, ours)
        pairs = _structs({TARGET: (columns, alone)})
        _choose(plan, actions, _first_that_holds(pairs, actions), pairs, alone, chosen)
    empty = [np.empty(0, np.int64)]
    return WindowResult(
        pa.concat_tables([plan.schema.empty_table(), *chosen.updated]),
        np.concatenate(empty + chosen.updates),
        np.unique(np.concatenate(empty + chosen.deletes)),
        matched,
    )


def unmatched_inserts(plan: MergePlan, matched: Mask) -> pa.Table:
    """Return the rows that a merge inserts, in the columns of the plan.

    Args:
        plan: the merge.
        matched: for each source row whether it has a partner.

    Raises:
        SchemaMismatch: a value cannot be computed, or does not fit its column.
    """
    actions, alone = plan.actions[When.NOT_MATCHED], np.flatnonzero(~matched)
    pairs = _structs({SOURCE: (plan.source, alone)})
    chosen = _Chosen()
    _choose(plan, actions, _first_that_holds(pairs, actions), pairs, alone, chosen)
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *chosen.updates]), kind="stable")
    rows = pa.concat_tables([plan.schema.empty_table(), *chosen.updated])
    return rows.take(from_numpy(order)) if len(chosen.updated) > 1 else rows


def _choose(
    plan: MergePlan, actions: Sequence[_Action], by_action: Rows, pairs: pa.Table, rows: Rows, chosen: _Chosen
) -> None:
    for number, action in enumerate(actions):
        some = np.flatnonzero(by_action == number)
        if not len(some):
            continue
        if action.values is None:
            chosen.deletes.append(rows[some])
        else:
            chosen.updated.append(_computed(pairs.take(from_numpy(some)), action.values, plan.schema))
            chosen.updates.append(rows[some])


def _structs(sides: Mapping[str, tuple[pa.Table, Rows]]) -> pa.Table:
    """Return pairs as a table of structs: of each side some rows by number."""
    return pa.table({name: _struct(table.take(from_numpy(rows))) for name, (table, rows) in sides.items()})


def _struct(table: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays([one_array(column) for column in table.columns], fields=list(table.schema))


def _pairs(plan: MergePlan, target: pa.Table) -> tuple[Rows, Rows]:
    """Return the numbers of stored rows and source rows that belong together, ascending."""
    ours, theirs = _equal_pairs(plan, target) if plan.rule.equal else _all_pairs(plan, target)
    if plan.condition is not None and len(ours):
        pairs = _structs({TARGET: (target, ours), SOURCE: (plan.source, theirs)})
        holds = _holds(pairs, plan.condition)
        ours, theirs = ours[holds], theirs[holds]
    order = np.lexsort((theirs, ours))
    return ours[order], theirs[order]


def _equal_pairs(plan: MergePlan, target: pa.Table) -> tuple[Rows, Rows]:
    names = [str(n) for n in range(len(plan.rule.equal))]
    columns = {name: column_at(target, ours) for name, (ours, _) in zip(names, plan.rule.equal, strict=True)}
    left = pa.table({**columns, _ROW: from_numpy(np.arange(target.num_rows))})
    right = plan.source_keys.append_column(_ROW + SOURCE, from_numpy(np.arange(plan.source.num_rows)))
    joined = left.join(right, names, join_type="inner", use_threads=False)
    return tuple(joined.column(name).to_numpy().astype(np.int64) for name in (_ROW, _ROW + SOURCE))


def _all_pairs(plan: MergePlan, target: pa.Table) -> tuple[Rows, Rows]:
    if target.num_rows * plan.source.num_rows > _MOST_PAIRS:
        raise InvalidInputError(
            f"the merge condition has no equation between a column of the table and one of the source, and "
            f"{target.num_rows:,} × {plan.source.num_rows:,} pairs are too many to be compared: add one, such as t.id = s.id"
        )
    ours = np.repeat(np.arange(target.num_rows), plan.source.num_rows)
    return ours, np.tile(np.arange(plan.source.num_rows), target.num_rows)


def _first_that_holds(pairs: pa.Table, actions: Sequence[_Action]) -> Rows:
    """Return for each pair the first action whose condition holds; -1: none does."""
    by_action = np.full(pairs.num_rows, -1, np.int64)
    for number, action in enumerate(actions):
        open_pairs = np.flatnonzero(by_action < 0)
        if not len(open_pairs):
            break
        if action.where is not None:
            open_pairs = open_pairs[_holds(pairs.take(from_numpy(open_pairs)), action.where)]
        by_action[open_pairs] = number
    return by_action


def _check_one_source_row(actions: Sequence[_Action], by_action: Rows, rows: Rows) -> None:
    """Refuse that two source rows change one stored row; that several delete it is no contradiction."""
    changing = by_action >= 0
    changed = rows[changing]
    twice = np.flatnonzero(changed[1:] == changed[:-1])
    if not len(twice):
        return
    updates = np.array([action.values is not None for action in actions])[by_action[changing]]
    if (updates[twice] | updates[twice + 1]).any():
        raise DuplicateKey(
            f"several source rows match one row of the table, and would change it: {len(np.unique(changed[twice]))} rows are "
            "concerned. Leave one source row for each, or let the clauses' conditions choose it"
        )


def _holds(pairs: pa.Table, condition: pc.Expression) -> Mask:
    computed = _projected(pairs, {"holds": condition}).column("holds")
    # A condition that is NULL, whatever the row, has the type of null.
    return to_mask(pc.fill_null(computed.cast(pa.bool_()), False))


def _computed(pairs: pa.Table, values: Mapping[str, pc.Expression], schema: pa.Schema) -> pa.Table:
    return conform(_projected(pairs, values), schema, allow_null_list_elements=True)


def _projected(pairs: pa.Table, values: Mapping[str, pc.Expression]) -> pa.Table:
    import pyarrow.dataset as ds  # takes long to import, and few calls need it

    return foreign(
        lambda: ds.InMemoryDataset(pairs).to_table(columns=dict(values), use_threads=False),
        "a value or a condition of the merge cannot be computed",
        SchemaMismatch,
    )
