"""The test suite of the index protocol: what every index must keep, as tests to be inherited.

An index's author subclasses :class:`IndexSuite` and gives it a fixture ``index_arguments`` that returns the arguments of
``create_table`` that name the index. The tests write through :class:`lakefmt._core.table.Table` and compare with
:class:`lakefmt.testing.model.ModelTable`: the file formats, commits and logs are the real ones, only the store is in
memory. Needs pytest.
"""

# ruff: noqa: D102 - the names of tests are sentences

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from lakefmt import open_table
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index import IndexKeys, capabilities_of, choose_index, places_new_keys
from lakefmt._core.table import Table
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import LakefmtError
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.operations import TableShape, Verb, perform
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at

__all__ = ["IndexSuite"]

_SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
_CITIES = ("oslo", "sf")
_NUMBERS = itertools.count()
_FAST: Mapping[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.client.heartbeat.tolerable.misses": 0,  # a dead writer is dead at once
}


class IndexSuite:
    """The contract of an :class:`~lakefmt._core.index.api.Index`.

    The ``options`` among its arguments are used by every handle; where each table needs other ones, they are a function
    that returns them, which is called for every table.

    Attributes:
        table_types: the types of tables that the index is for.
        seeds: how many random histories are written.
        commits: how many commits each of them has.
        effects_apart: a write dies at the first of its effects on the store, and at later ones this far apart.

    Example:
        >>> class TestMine(IndexSuite):
        ...     @pytest.fixture
        ...     def index_arguments(self):
        ...         return {"options": {"hoodie.index.class": "my_index:MyIndex"}}
    """

    table_types: ClassVar[tuple[str, ...]] = ("cow", "mor")
    seeds: ClassVar[int] = 3
    commits: ClassVar[int] = 8
    effects_apart: ClassVar[int] = 1

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, object]:
        """Arguments of ``create_table`` that name the index; its ``options`` are used by every handle."""
        raise NotImplementedError("a subclass of IndexSuite names its index by a fixture index_arguments")

    # ------------------------------------------------------------------------------------------------------- finding

    def test_a_key_is_stored_once(self, index_arguments: Mapping[str, object]) -> None:
        for table, shape in self._tables(index_arguments):
            for value in range(4):
                table.upsert(_rows(range(value, value + 6), value))
                table = _again(table)
            expected = [{"id": f"k{n}", "city": _city(n), "v": min(n, 3)} for n in range(9)]
            _compare(table, shape.as_table(expected))

    def test_random_histories_are_those_of_a_dictionary(self, index_arguments: Mapping[str, object]) -> None:
        for seed in range(self.seeds):
            rng = np.random.default_rng(seed)
            for table, shape in self._tables(index_arguments):
                model = shape.model()
                for verb in itertools.islice(_verbs(rng), self.commits):
                    fitted = verb.fitted(model)
                    if fitted is None:
                        continue
                    perform(fitted, shape, table, model)
                    table = _again(table)
                    _compare(table, shape.as_table(model.rows()), f"seed {seed}, {fitted}")
                if shape.table_type == "cow":
                    check_invariants(table, global_keys=shape.is_global)

    def test_a_deleted_key_can_be_written_again(self, index_arguments: Mapping[str, object]) -> None:
        for table, shape in self._tables(index_arguments):
            table.upsert(_rows(range(6), 1))
            table.delete(["k1", "k2", "nowhere"])
            _compare(table, shape.as_table(_rows((0, 3, 4, 5), 1).to_pylist()))
            _again(table).upsert(_rows((1, 2), 2))
            _compare(table, pa.concat_tables([_rows((0, 3, 4, 5), 1), _rows((1, 2), 2)]))

    def test_a_deleted_key_is_not_stored(self, index_arguments: Mapping[str, object]) -> None:
        for table, shape in self._tables(index_arguments):
            table.upsert(_rows(range(6), 1))
            table.delete(["k1"])
            if shape.table_type == "mor":
                table.compact()
            table.delete(["k2"])
            _again(table).insert(_rows(range(8), 2), drop_duplicates=True)
            _compare(table, pa.concat_tables([_rows((0, 3, 4, 5), 1), _rows((1, 2, 6, 7), 2)]))

    def test_rows_of_stored_keys_can_be_left_out(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            table.upsert(_rows(range(4), 1))
            table.upsert(_rows((2,), 2))
            _again(table).insert(_rows(range(6), 3), drop_duplicates=True)
            _compare(table, pa.concat_tables([_rows((0, 1, 3), 1), _rows((2,), 2), _rows((4, 5), 3)]))

    def test_what_was_undone_does_not_count(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            table.upsert(_rows(range(4), 1))
            undone = table.upsert(_rows(range(2, 8), 2))
            table.rollback(str(undone.instant))
            table = _again(table)
            _compare(table, _rows(range(4), 1))
            table.upsert(_rows(range(3, 8), 3))
            _compare(table, pa.concat_tables([_rows(range(3), 1), _rows(range(3, 8), 3)]))

    def test_what_was_replaced_does_not_count(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            table.upsert(_rows(range(6), 1))
            table.insert_overwrite_table(_rows((0, 1), 2))
            _again(table).upsert(_rows(range(4), 3))
            _compare(table, _rows(range(4), 3))

    def test_nothing_is_found_in_an_empty_table(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            assert table.delete(["k1"]).instant is None
            assert table.index.explain(["k1", "k2"]).found == 0

    # ------------------------------------------------------------------------------------------------------- crashes

    def test_after_any_crash_the_next_write_finds_its_keys(self, index_arguments: Mapping[str, object]) -> None:
        before = pa.concat_tables([_rows(range(4), 1), _rows(range(4, 6), 2)])
        after = pa.concat_tables([_rows((0, 1), 1), _rows(range(2, 9), 3)])
        for table_type in self.table_types:
            for mode in (FaultMode.BEFORE, FaultMode.AFTER):
                for effect in itertools.count(1, self.effects_apart):
                    table, _ = self._table(index_arguments, table_type)
                    table.upsert(_rows(range(4), 1))
                    table.upsert(_rows(range(4, 6), 2))
                    faulty = FaultStore(table.client.store, fail_at(effect, mode))
                    with contextlib.suppress(SimulatedCrash, LakefmtError):
                        Table(TableClient(faulty, table.client.options)).upsert(_rows(range(2, 9), 3))
                    if len(faulty.effects) < effect:
                        break
                    healthy = _again(table)
                    ended = not multiset_difference(healthy.read(), after)
                    assert ended or not multiset_difference(healthy.read(), before), f"effect {effect}"
                    healthy.upsert(_rows(range(12), 4))
                    _compare(healthy, _rows(range(12), 4), f"{table_type}, effect {effect} {mode.value}")

    # ------------------------------------------------------------------------------------------------------- placing

    def test_a_placing_index_keeps_each_key_in_its_file_group(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            state = table.client.load()
            settings = resolve_settings({}, table.client.options, state.config.properties)
            index = choose_index(table.client, settings, state.config)
            if not places_new_keys(index):
                pytest.skip("this index does not place new keys")
            file_ids: dict[tuple[str, str], str] = {}
            for value in range(3):
                rows = _rows(range(3 * value, 3 * value + 20), value)
                table.upsert(rows)
                if value:
                    table.bulk_insert(_rows(range(100 * value, 100 * value + 9), value))
                slices = table.file_groups()
                for file_slice in slices:
                    assert file_slice.base is not None, "its first rows came at once"
                    keys = table.client.reader.rows(file_slice.base, [RECORD_KEY]).column(RECORD_KEY).combine_chunks()
                    codes = pa.array(np.zeros(len(keys), np.int32))
                    meant = pa.DictionaryArray.from_arrays(codes, pa.array([str(file_slice.partition)]))
                    placed = index.place(IndexKeys(keys, meant), slices, lambda: "no new one is needed")
                    assert set(placed.file_groups) == {(file_slice.partition, file_slice.file_id)}
                    for key in keys.to_pylist():
                        assert (
                            file_ids.setdefault((str(file_slice.partition), key), file_slice.file_id)
                            == file_slice.file_id
                        )

    def test_a_plan_names_the_files_of_the_write(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            table.upsert(_rows(range(6), 1))
            plan = table.upsert(_rows((1, 2), 2), dry_run=True)
            _compare(table, _rows(range(6), 1))
            done = table.upsert(_rows((1, 2), 2))
            assert {a.file_id for a in plan.assignments} == {file.file_id for file in done.files}  # type: ignore[attr-defined]

    def test_capabilities_are_honest(self, index_arguments: Mapping[str, object]) -> None:
        for table, _ in self._tables(index_arguments):
            state = table.client.load()
            settings = resolve_settings({}, table.client.options, state.config.properties)
            index = choose_index(table.client, settings, state.config)
            capabilities = capabilities_of(index)
            assert not capabilities.places_new_keys or callable(getattr(index, "place", None))
            assert not capabilities.on_commit or callable(getattr(index, "on_commit", None))
            assert capabilities.needs_file_reader or callable(getattr(index, "key_locations", None))

    # ------------------------------------------------------------------------------------------------------- helpers

    def _tables(self, arguments: Mapping[str, object]) -> Iterator[tuple[Table, TableShape]]:
        for table_type in self.table_types:
            yield self._table(arguments, table_type)

    def _table(self, arguments: Mapping[str, Any], table_type: str) -> tuple[Table, TableShape]:
        further = {
            name: value for name, value in arguments.items() if name not in ("index", "options", "table_version")
        }
        index, version = arguments.get("index", "bloom"), arguments.get("table_version", 8)
        shape = TableShape(_SCHEMA, "id", "city", index=index, table_type=table_type, table_version=version)
        given = arguments.get("options", {})
        options = {**_FAST, **(given() if callable(given) else given)}
        return shape.create(f"memory://index-suite-{next(_NUMBERS)}", options, **further), shape


def _city(number: int) -> str:
    return _CITIES[number % len(_CITIES)]


def _rows(numbers: Any, value: int) -> pa.Table:
    given = list(numbers)
    columns = {"id": [f"k{n}" for n in given], "city": [_city(n) for n in given], "v": [value] * len(given)}
    return pa.table(columns, schema=_SCHEMA)


def _verbs(rng: np.random.Generator) -> Iterator[Verb]:
    """Yield random writes of a few keys, which keep their city."""
    names = ("upsert", "upsert", "upsert", "insert_new", "delete", "insert_overwrite", "delete_partitions", "rollback")
    for value in itertools.count():
        name = str(rng.choice(names))
        numbers = rng.choice(12, int(rng.integers(1, 7)), replace=False)
        if name == "delete":
            yield Verb(name, keys=tuple(f"k{n}" for n in numbers))
        elif name == "delete_partitions":
            yield Verb(name, places=(_city(int(numbers[0])),))
        else:
            yield Verb(name, rows=() if name == "rollback" else tuple(_rows(numbers, value).to_pylist()))


def _again(table: Table) -> Table:
    return open_table(table.client.store.url, options=table.client.options)


def _compare(table: Table, expected: pa.Table, story: str = "") -> None:
    different = multiset_difference(table.read(), expected)
    assert not different, f"{story}: {different}"
