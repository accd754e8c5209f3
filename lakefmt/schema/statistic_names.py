"""Under which names statistics of a column were stored, before and after it was altered. Pure.

Statistics of a file stand under the names that columns had when they were made: those of the file's instant, of today, or of
any time between. Hudi takes them from a footer, so a name may also mean the column that had it in the file. Each name
that a column had in that time is looked for; a name that was another column's in that time tells of either of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from lakefmt.data_classes import dataclass
from lakefmt.schema.alter import is_followed_by_name
from lakefmt.schema.history import Column, InternalSchema, SchemaHistory, decimal_of

__all__ = ["NamesInPartitions", "StatisticNames", "StoredUnder"]

#: Changes of numbers after which ends of the old type are ends of the new one.
_IN_ORDER = frozenset({("int", "float"), ("long", "float"), ("long", "double"), ("float", "double")})

_WHOLE_NUMBERS = frozenset({"int", "long"})


@dataclass(frozen=True, slots=True)
class StoredUnder:
    """The names under which statistics of a column can be found in files of an instant; none: nothing can be told.

    Attributes:
        own: names that were never another column's: what stands under any of them is true of the column.
        filled: names that were also those of columns that the files do not have: it is true where it tells of values.
        shared: names that were other columns', too: only when something stands under every name, one of it is the column's.
        is_same: neither name nor type was changed since.
        is_absent: a read takes no value from the files, because they have another column under its name.
    """

    own: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    is_same: bool = False
    is_absent: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (*self.own, *self.filled, *self.shared)


@dataclass(frozen=True, slots=True)
class NamesInPartitions:
    """The names under which statistics of data partitions can tell of a column; each was its name at one time only, and no other's.

    Attributes:
        current: its name today; None: it was another column's, or its own before, too.
        since: the instant from which it has that name; None: it always had it.
        first: the name that it had first; None: as above, or it is `current`.
        until: the instant from which it had the next name.
    """

    current: str | None
    since: str | None = None
    first: str | None = None
    until: str = ""


@dataclass(frozen=True, slots=True)
class StatisticNames:
    """The names of columns at any time, from the history of a table's schemas.

    Attributes:
        now: its first schema is the one that rows are read as.
        newest: up to the newest schema, which statistics may be later than what is read.

    Example:
        >>> was, now = (InternalSchema(n, (Column(0, name, "int"),), 0) for n, name in ((0, "a"), (5, "b")))
        >>> history = SchemaHistory("", (now, was))
        >>> names = StatisticNames(history, history)
        >>> names.of("b", "4").own, names.of("b", "5").own
        (('b', 'a'), ('b',))
    """

    now: SchemaHistory
    newest: SchemaHistory
    _found: dict[tuple[str, int], StoredUnder] = field(default_factory=dict, repr=False, compare=False)
    _leaves: dict[int, dict[str, Column]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, column: str, instant: str) -> StoredUnder:
        """Return the names of a column in the statistics of files.

        Args:
            column: its name in the rows that are read, with dots when it is a nested field.
            instant: of the files.
        """
        stored = self.now.at(instant)
        key = column, stored.version
        if key not in self._found:
            self._found[key] = self._find(column, stored)
        return self._found[key]

    def in_partitions(self, column: str) -> NamesInPartitions | None:
        """Return the names of a column in the statistics of data partitions of the newest state; None: they tell nothing of it.

        Hudi joins the statistics of the files that stand under the names of that moment, with ends that it converts to the types of
        that moment: only those of whole numbers stay ends of the values.

        Args:
            column: its name in the rows that are read, with dots when it is a nested field.
        """
        number, kinds = self._number(column), self.kinds(column)
        if number is None or self.now.latest.version != self.newest.latest.version:
            return None
        if len(kinds) > 1 and not kinds <= _WHOLE_NUMBERS:
            return None
        # Each name with the instant from which the column had it, oldest first.
        periods: list[tuple[str, int]] = []
        owners: dict[str, set[int]] = {}
        for schema in sorted(self.newest.schemas, key=lambda each: each.version):
            for name, leaf in self._columns(schema).items():
                owners.setdefault(name, set()).add(leaf.number)
                if leaf.number == number and (not periods or periods[-1][0] != name):
                    periods.append((name, schema.version))
        own = [name if owners[name] == {number} and _is_once(name, periods) else None for name, _ in periods]
        if len(periods) == 1:
            return None if own[0] is None else NamesInPartitions(own[0])
        since, until = (f"{periods[place][1]:017}" for place in (-1, 1))
        return NamesInPartitions(own[-1], since, own[0], until) if own[-1] or own[0] else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, and the fields of structs with dots, in the rows that are read."""
        return tuple(self._columns(self.now.latest))

    def kinds(self, column: str) -> frozenset[str]:
        """Return all types that a column ever had, in Hudi's words."""
        number = self._number(column)
        every = [*self.newest.schemas, *self.now.schemas]
        return frozenset(
            leaf.kind for schema in every for leaf in self._columns(schema).values() if leaf.number == number
        )

    def _number(self, column: str) -> int | None:
        leaf = self._columns(self.now.latest).get(column)
        return None if leaf is None else leaf.number

    def _columns(self, schema: InternalSchema) -> dict[str, Column]:
        # By identity: two histories may have different schemas of one version.
        if id(schema) not in self._leaves:
            self._leaves[id(schema)] = dict(_leaves(schema.columns, ""))
        return self._leaves[id(schema)]

    def _find(self, column: str, stored: InternalSchema) -> StoredUnder:
        number = self._number(column)
        if number is None:
            return StoredUnder()
        of_file, current = self._columns(stored), self.now.latest
        in_file = {leaf.number for leaf in of_file.values()}
        if number not in in_file and column in of_file:
            return StoredUnder(is_absent=True)
        earlier = [each for each in self.newest.schemas if stored.version <= each.version <= current.version]
        later = [each for each in self.newest.schemas if each.version > current.version]
        window = [self._columns(each) for each in (current, stored, *earlier, *later)]
        names = {name: None for leaves in window for name, leaf in leaves.items() if leaf.number == number}
        kinds = [self._kinds_in(some, number) for some in ((current, stored, *earlier), later)]
        if not _are_comparable(self._columns(current)[column].kind, *kinds):
            return StoredUnder()
        owners = {name: {leaves[name].number for leaves in window if name in leaves} - {number} for name in names}
        own = tuple(name for name in names if not owners[name])
        is_same = number in in_file and [*names] == [column] == [*own] and len(kinds[0] | kinds[1]) == 1
        filled = (
            tuple(name for name in names if owners[name] and not owners[name] & in_file) if number in in_file else ()
        )
        # Statistics that were made while the column was not there have no name of it.
        is_always_there = all(any(leaf.number == number for leaf in leaves.values()) for leaves in window)
        shared = tuple(name for name in names if name not in (*own, *filled) and is_always_there)
        return StoredUnder(own, filled, shared, is_same)

    def _kinds_in(self, schemas: Sequence[InternalSchema], number: int) -> frozenset[str]:
        leaves = (leaf for schema in schemas for leaf in self._columns(schema).values())
        return frozenset(leaf.kind for leaf in leaves if leaf.number == number)


def _is_once(name: str, periods: Sequence[tuple[str, int]]) -> bool:
    return sum(each == name for each, _ in periods) == 1


def _leaves(columns: Sequence[Column], prefix: str) -> Iterator[tuple[str, Column]]:
    """Yield columns and fields of records with their paths; statistics know nothing of what lists and maps hold."""
    for column in columns:
        yield prefix + column.name, column
        if column.kind == "record":
            yield from _leaves(column.fields, f"{prefix}{column.name}.")


def _are_comparable(now: str, earlier: frozenset[str], later: frozenset[str]) -> bool:
    """Return whether ends of a column's earlier and later types, where they can be read as its type, bound its values.

    Texts and decimals need no rule: ends of numbers cannot be read as either.
    """
    if now == "double" and "float" in earlier and earlier & {"int", "long"}:
        # The ends were rounded to a float, and the values in the file were not.
        return False
    is_read_exactly = now == "string" or decimal_of(now) is not None
    return all(
        is_read_exactly
        or is_followed_by_name(kind, now)
        or (kind, now) in _IN_ORDER
        or (kind, now) == ("string", "date")
        for kind in earlier
    ) and all(is_followed_by_name(now, kind) for kind in later)
