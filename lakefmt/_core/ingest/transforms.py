"""What is done with rows between the source and the table: SQL by DuckDB, flattening, a function of the caller (effects)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import foreign, foreign_items, shown
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.ingest.api import RoundRows
from lakefmt._core.schema.types import struct_fields
from lakefmt._core.sorting import spilling
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature

__all__ = [
    "GOING",
    "LEFT_OUT",
    "Part",
    "Transform",
    "load_function",
    "open_transforms",
]


Kinds = npt.NDArray[np.int8] | None

#: Hudi's placeholder for the rows.
_SOURCE: Final = re.compile(r"<SRC>", re.IGNORECASE)
_VIEW: Final = "lakefmt_source"
_KIND: Final = "_lakefmt_row_kind"
_ROW: Final = "_lakefmt_row"
#: DuckDB refuses ``TRY`` over these functions, and over ``ANY`` and ``ALL``, of which it makes queries.
_NOT_TRIED: Final = re.compile(r"\b(any|all|error|rand|random|\w*uuid\w*|nextval|setseed)\s*\(", re.IGNORECASE)
_MOST_SQL_BYTES: Final = 1 << 20
_RESULT_ROWS: Final = 65_536


#: The kind of a new row that the condition leaves out: it deletes its key in every partition.
LEFT_OUT: Final = 4
#: Kinds of rows that are no longer.
GOING: Final = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value, LEFT_OUT)

#: Rows, and the kind of each where there are kinds.
Part = tuple[pa.RecordBatch, Kinds]


class Transform(Protocol):
    """Makes other rows of the rows of a round."""

    def __call__(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Return the rows, and the kind of each, where there are kinds."""


def open_transforms(names: Sequence[str], memory_bytes: int) -> tuple[Transform, ...]:
    """Return a chain of transformers.

    Args:
        names: ``flatten``, ``sql:SELECT … FROM <SRC>`` (``sql:`` may be left out), ``sql-file:PATH``, or ``python:module:function``.
        memory_bytes: rows of a round that a query has in memory.

    Raises:
        InvalidInputError: there is no such transformer.
        UnsupportedFeature: DuckDB is not installed.
    """
    return tuple(_opened(name, memory_bytes) for name in names)


def _opened(name: str, memory_bytes: int) -> Transform:
    prefix, colon, rest = name.partition(":")
    if name == "flatten":
        return _flatten
    if prefix == "python" and colon:
        return _Function(rest)
    if prefix == "sql-file" and colon:
        path = Path(rest.removeprefix("file://"))
        if not path.is_file() or path.stat().st_size > _MOST_SQL_BYTES:
            raise InvalidInputError(f"the SQL of a transformer is not in {rest}")
        return _Sql(path.read_text(encoding="utf-8"), memory_bytes)
    sql = rest if prefix == "sql" and colon else name
    if _SOURCE.search(sql):
        return _Sql(sql, memory_bytes)
    raise InvalidInputError(
        f"{shown(name)} is no transformer: give 'flatten', SQL with <SRC>, 'sql-file:PATH' or 'python:module:function'"
    )


class _Sql:
    """A query over the rows of a round. Rows with kinds are asked part by part: what a query makes of a row says nothing of its kind."""

    def __init__(self, sql: str, memory_bytes: int) -> None:
        try:
            import duckdb  # the engine of the query; lakefmt's own expressions are no queries
        except ImportError:
            raise UnsupportedFeature("SQL over rows needs lakefmt[ingest]: install it with pip") from None
        self._duckdb, self._memory = duckdb, memory_bytes
        self._text = _SOURCE.sub(_VIEW, sql.strip().rstrip(";"))
        foreign(lambda: duckdb.extract_statements(self._text), "the SQL of a transformer cannot be read")
        self._text_of_gone = _with_unknown(self._text)
        self._parts_of_new = _split_by_condition(self._text, has_try=_has_try(duckdb.__version__))

    def __call__(self, parts: Iterable[Part]) -> Iterator[Part]:
        with closing(RoundRows(self._memory)) as plain:
            for rows, kinds in parts:
                if kinds is None:
                    plain.add(rows)
                else:
                    if plain.num_rows:  # those that came before
                        yield from ((batch, None) for batch in self._query_all(plain))
                        plain.clear()
                    for kind_code, part in _by_kind(pa.Table.from_batches([rows]), kinds):
                        yield from self._query_rows_of_kind(part, kind_code)
            if plain.schemas:
                yield from ((batch, None) for batch in self._query_all(plain))

    def _query_rows_of_kind(self, rows: pa.Table, kind_code: int) -> Iterator[Part]:
        """Yield what the query makes of rows of one kind; new rows that its condition leaves out go from the table."""
        if self._parts_of_new is None or kind_code in GOING[:2]:
            for batch in self._query(rows, self._text_of_gone if kind_code in GOING else self._text):
                yield batch, np.full(batch.num_rows, kind_code, np.int8)
            return
        passing, left_out = self._parts_of_new
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        queries = [(LEFT_OUT, left_out)] if kind_code == LEFT_OUT else [(kind_code, passing), (LEFT_OUT, left_out)]
        results = [
            pa.Table.from_batches([batch]).append_column(_KIND, pa.array(np.full(batch.num_rows, code, np.int8)))
            for code, sql in queries
            for batch in self._query(numbered, sql if kind_code != LEFT_OUT else f"{left_out} OR TRUE")
        ]
        both = pa.concat_tables(results, promote_options="permissive").sort_by(_ROW)
        batch = _one_batch(both.drop_columns([_ROW, _KIND]))
        yield batch, both[_KIND].to_numpy().astype(np.int8)

    def _query_all(self, rows: RoundRows) -> Iterator[pa.RecordBatch]:
        """Yield what the query makes of all rows; many of them are scanned in a temporary file, as often as it asks."""
        schema = rows.unified(pa.schema([]))
        if not rows.are_many:
            yield from self._query(pa.concat_tables([schema.empty_table(), *rows.tables(schema)]), self._text)
            return
        import pyarrow.dataset as ds  # few rounds are larger than memory

        with TemporaryDirectory(prefix="lakefmt-sql-") as folder:
            path = Path(folder) / "rows.arrow"
            with spilling(), pa.ipc.new_file(str(path), schema) as writer:
                for table in rows.tables(schema):
                    writer.write_table(table)
            yield from self._query(ds.dataset(str(path), format="arrow"), self._text)

    def _query(self, rows: Any, sql: str) -> Iterator[pa.RecordBatch]:
        what = "the SQL of a transformer failed"
        with self._duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
            connection.register(_VIEW, rows)
            result: Any = foreign(lambda: connection.sql(sql), what)
            if result is None:
                raise InvalidInputError(f"{what}: it is no query")
            reader: pa.RecordBatchReader = foreign(lambda: _reader(result), what)
            empty = True
            for batch in foreign_items(reader, what):
                empty = False
                yield batch
            if empty:
                yield pa.RecordBatch.from_pylist([], reader.schema)


def _with_unknown(sql: str) -> str:
    """Return a query that also lets rows through of which its condition is not known: of a row that goes the key may be all that came.

    Example:
        >>> _with_unknown("SELECT id FROM t WHERE n > 0")
        'SELECT id FROM t WHERE NOT (n > 0) IS FALSE'
        >>> _with_unknown("SELECT id FROM t")
        'SELECT id FROM t'
    """
    import sqlglot  # part of few jobs
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb")
    except (errors.ParseError, errors.TokenError, RecursionError):
        return sql  # DuckDB says what is wrong, or knows more
    where = tree.args.get("where")
    if not isinstance(tree, exp.Select) or where is None:
        return sql
    condition = exp.Not(this=exp.Is(this=exp.Paren(this=where.this), expression=exp.Boolean(this=False)))
    tree.set("where", exp.Where(this=condition))
    return tree.sql(dialect="duckdb")


def _has_try(version: str) -> bool:
    """Return whether a release of DuckDB knows ``TRY``."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) >= (1, 3)


def _split_by_condition(sql: str, *, has_try: bool = True) -> tuple[str, str] | None:
    """Return a query with the number of each row, and the same for the rows that its condition leaves out; None: it has none.

    What is computed of a row that is left out may fail, and is null then (DuckDB 1.3). Only a query whose rows each come of one row is parted.

    Example:
        >>> _split_by_condition("SELECT id, n + 1 AS n FROM t WHERE n > 0")[1]
        'SELECT id, TRY(n + 1) AS n, _lakefmt_row FROM t WHERE NOT (n > 0) IS TRUE'
        >>> _split_by_condition("SELECT id FROM t") is None
        True
    """
    import sqlglot  # part of few jobs
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb")
    except (errors.ParseError, errors.TokenError, RecursionError):
        return None
    where = tree.args.get("where")
    unsupported = (exp.AggFunc, exp.Window, exp.Subquery, exp.Join, exp.Lateral, exp.Unnest, exp.Union, exp.CTE)
    if not isinstance(tree, exp.Select) or where is None or len(list(tree.find_all(exp.Select))) > 1:
        return None
    changed_by = ("distinct", "group", "limit", "offset", "order", "qualify", "having")
    if any(tree.args.get(each) for each in changed_by) or tree.find(*unsupported):
        return None
    passing, left_out = tree.copy(), tree.copy()
    has_star = any(isinstance(each, exp.Star) or each.find(exp.Star) for each in tree.expressions)
    number = [] if has_star else [exp.column(_ROW)]
    passing.set("expressions", [*passing.expressions, *number])
    left_out.set(
        "expressions",
        [*(_with_try(each) if has_try else each for each in left_out.expressions), *(each.copy() for each in number)],
    )
    is_true = exp.Is(this=exp.Paren(this=where.this.copy()), expression=exp.Boolean(this=True))
    left_out.set("where", exp.Where(this=exp.Not(this=is_true)))
    return passing.sql(dialect="duckdb"), left_out.sql(dialect="duckdb")


def _with_try(tree: Any) -> Any:
    """Return an expression that is null where it fails; columns do not, and there are some that DuckDB does not try."""
    from sqlglot import exp

    if isinstance(tree, exp.Column | exp.Star) or _NOT_TRIED.search(tree.sql("duckdb")):
        return tree
    if isinstance(tree, exp.Alias):
        value = tree.this if isinstance(tree.this, exp.Column) else exp.Anonymous(this="TRY", expressions=[tree.this])
        return exp.Alias(this=value, alias=tree.args["alias"])
    return exp.Alias(
        this=exp.Anonymous(this="TRY", expressions=[tree]), alias=exp.to_identifier(tree.sql("duckdb"), quoted=True)
    )


def _reader(result: Any) -> pa.RecordBatchReader:
    """Return a result of DuckDB as a stream, by the name that its release has for it."""
    make = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
    reader: pa.RecordBatchReader = make(_RESULT_ROWS)
    return reader


def _by_kind(rows: pa.Table, kinds: Kinds) -> list[tuple[int, pa.Table]]:
    """Return runs of rows of one kind, in their order."""
    if kinds is None or not len(kinds):
        return [(0, rows)]
    borders = np.flatnonzero(np.diff(kinds)) + 1
    begins = [0, *borders.tolist()]
    ends = [*borders.tolist(), len(kinds)]
    return [(int(kinds[begin]), rows.slice(begin, end - begin)) for begin, end in zip(begins, ends, strict=True)]


class _Function:
    """A function of the caller over an Arrow table, which returns one; it is called for each batch."""

    def __init__(self, name: str) -> None:
        self._name, self._function = name, load_function(name, "a transformer")

    def __call__(self, parts: Iterable[Part]) -> Iterator[Part]:
        return (self._apply(rows, kinds) for rows, kinds in parts)

    def _apply(self, rows: pa.RecordBatch, kinds: Kinds) -> Part:
        table = pa.Table.from_batches([rows])
        if kinds is not None:
            table = table.append_column(_KIND, pa.array(kinds, pa.int8()))
        result: Any = foreign(lambda: self._function(table), f"transformer {self._name!r} failed")
        if not isinstance(result, pa.Table):
            raise InvalidInputError(f"transformer {self._name!r} returned {shown(result)}, not a pyarrow.Table")
        if kinds is not None:
            if _KIND not in result.schema.names:
                raise SchemaMismatch(
                    f"transformer {self._name!r} dropped the column {_KIND}, which tells deletes from other rows"
                )
            kinds = result[_KIND].to_numpy().astype(np.int8)
            result = result.drop_columns([_KIND])
        return _one_batch(result), kinds


def _flatten(parts: Iterable[Part]) -> Iterator[Part]:
    """Flatten structs at any depth into columns named by the field path, joined by underscores."""
    return ((_flattened(rows), kinds) for rows, kinds in parts)


def _flattened(rows: pa.RecordBatch) -> pa.RecordBatch:
    names, columns = list[str](), list[pa.Array]()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        _flatten_column(name, column, names, columns)
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise SchemaMismatch(f"flattening makes two columns {sorted(doubled)[0]!r}")
    return pa.record_batch(columns, names=names)


def _flatten_column(name: str, column: pa.Array, names: list[str], columns: list[pa.Array]) -> None:
    if not pa.types.is_struct(column.type):
        names.append(name)
        columns.append(column)
        return
    for each, part in zip(struct_fields(column.type), column.flatten(), strict=True):
        _flatten_column(f"{name}_{each.name}", part, names, columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function ``module:name``.

    Args:
        name: of the function.
        what: it is for, in messages.

    Raises:
        InvalidInputError: there is none.

    Example:
        >>> load_function("json:dumps", "a hook")([1])
        '[1]'
    """
    if ":" not in name:
        raise InvalidInputError(f"{what} is named module:function, not {name!r}")
    function = foreign(lambda: resolve_name(name), f"{what} {name!r} cannot be imported")
    if not callable(function):
        raise InvalidInputError(f"{what}: {name!r} is no function")
    return function  # type: ignore[no-any-return]
