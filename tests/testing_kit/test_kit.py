"""The rest of the test kit: strategies and verbs find a table that lies, stores tell what they promise, all of it is documented."""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakefmt.testing
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import UnsupportedFeature
from lakefmt.testing import strategies
from lakefmt.testing.crash import count_effects
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.operations import VERBS, TableShape, Verb, perform
from lakefmt.testing.stores import Effect, WatchStore
from lakefmt.testing.strategies import TYPES, batches, shapes, values, verbs
from tests.example_counts import examples

NUMBERS = itertools.count()
PAGE = Path(__file__).resolve().parents[2] / "docs/dev/testing.md"
SHAPE = TableShape(pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]))


# --- strategies and verbs -----------------------------------------------------------------------------------------


@settings(max_examples=examples(20))
@given(st.data())
def test_what_is_drawn_makes_tables_and_fits_them(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    table, model = shape.create(f"memory://kit-drawn-{next(NUMBERS)}"), shape.model()
    assert table.schema.names == shape.schema.names
    assert table.properties.version.value == shape.table_version
    rows = data.draw(batches(shape))
    assert shape.as_table(rows).schema == shape.schema
    perform(Verb("upsert", rows=rows), shape, table, model)
    assert not multiset_difference(table.read(), shape.as_table(model.rows()))


@pytest.mark.parametrize("kind", list(TYPES), ids=str)
def test_every_value_fits_its_column(kind: pa.DataType) -> None:
    assert pa.array([*TYPES[kind], None], kind).null_count == 1
    assert not values(kind).is_empty


def test_every_verb_can_be_drawn_run_and_played() -> None:
    shape = TableShape(SHAPE.schema, partition_by="city", ordering="ts")
    for name in VERBS:
        table, model = shape.create(f"memory://kit-verb-{name}"), shape.model()
        some: tuple[dict[str, Any], ...] = ({"id": "k0", "city": "sf", "ts": 1, "v": 1},)
        perform(Verb("upsert", rows=some), shape, table, model)
        verb = Verb(
            name, rows=some, columns=("id", "city"), keys=("k0",), where=("v", 1), values={"v": 2}, places=("sf",)
        )
        if name == "soft_delete":
            verb = Verb(name, keys=("k0",), columns=shape.free_columns)
        assert verb.fitted(model) is not None
        perform(verb, shape, table, model)
        assert not multiset_difference(table.read(), shape.as_table(model.rows())), name


def test_verbs_are_cut_to_what_is_promised() -> None:
    shape = TableShape(SHAPE.schema, partition_by="city", ordering="ts", index="global_bloom")
    model = shape.model()
    assert Verb("rollback").fitted(model) is None
    assert Verb("delete_partitions", places=("sf",)).fitted(model) is None
    model.upsert([{"id": "a", "city": "sf", "ts": 1}])
    rows = ({"id": "a", "city": "sf"}, {"id": "b", "city": "oslo"}, {"id": "b", "city": "sf"})
    fitted = Verb("insert", rows=rows).fitted(model)
    assert fitted is not None
    assert fitted.rows == rows[2:], "a plain insert would store a known key twice"
    overwriting = Verb("insert_overwrite", rows=({"id": "a", "city": "oslo"},)).fitted(model)
    assert overwriting is None, "its key is in a partition that would stay"
    duplicated = TableShape(SHAPE.schema).model()
    duplicated.insert([{"id": "a"}, {"id": "a"}])
    assert Verb("update", where=("v", 1), values={"v": 2}).fitted(duplicated) is None


class Forgetful(Table):
    """Loses the last row of every batch."""

    def upsert(self, data: Any, **how: Any) -> Any:
        return super().upsert(data.slice(0, max(1, data.num_rows - 1)), **how)


def test_a_table_that_loses_rows_is_found_out() -> None:
    @settings(max_examples=50, database=None, phases=[Phase.generate])
    @given(batches(SHAPE, min_rows=1, max_rows=4))
    def explore(rows: Any) -> None:
        honest, model = SHAPE.create(f"memory://kit-forgetful-{next(NUMBERS)}"), SHAPE.model()
        perform(Verb("upsert", rows=rows), SHAPE, Forgetful(honest.client), model)
        assert not multiset_difference(honest.read(), SHAPE.as_table(model.rows()))

    with pytest.raises(AssertionError):
        explore()


def test_a_refused_verb_leaves_the_model_alone() -> None:
    table, model = SHAPE.create("memory://kit-refused"), SHAPE.model()
    verb = Verb("update", where=("v", 1), values={"id": "x"})
    with pytest.raises(lakefmt.LakefmtError):
        perform(verb, SHAPE, table, model)
    assert model.commits == 0


def test_verbs_that_need_partitions_are_left_out_without_them() -> None:
    assert verbs(SHAPE, ["delete_partitions"]).is_empty
    assert not verbs(SHAPE, ["delete"]).is_empty


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(UnsupportedFeature, match="pip install 'hypothesis"):
        runpy.run_path(strategies.__file__)


def test_only_the_strategies_need_hypothesis() -> None:
    modules = [
        f"lakefmt.testing.{name}"
        for name in names_of_modules()
        if name not in ("strategies", "suites", "locks", "indexes")
    ]
    text = f"import sys\nsys.modules['hypothesis'] = sys.modules['pytest'] = None\nimport {', '.join(modules)}"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", text], check=True, env=environ, timeout=100)


# --- stores and kills (the other stores: tests/storage/test_wrappers.py) ---------------------------------------------


def test_a_watcher_is_told_after_every_effect_also_a_failed_one() -> None:
    inner = MemoryStore()
    seen: list[tuple[Effect, bool]] = []
    store = WatchStore(inner, lambda effect: seen.append((effect, inner.info("a") is not None)))
    store.put("a", b"xy")
    store.put_if_absent("a", b"z")
    with store.create("b") as sink:
        sink.file.write(b"b")
        sink.put_if_absent()
    store.delete(["a", "b"])
    assert [(e.number, e.kind, e.name, there) for e, there in seen] == [
        (1, "put", "a", True),
        (2, "put_if_absent", "a", True),
        (3, "sink.put_if_absent", "b", True),
        (4, "delete", "a", False),
        (5, "delete", "b", False),
    ]
    with pytest.raises(lakefmt.LakefmtError):
        store.put("../a", b"")
    assert seen[-1][0].number == 6


def test_effects_are_counted_as_they_would_kill(tmp_path: Path) -> None:
    counted = count_effects()
    (tmp_path / "a").write_bytes(b"x")
    os.replace(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b").read_bytes()
    assert counted() == 2


# --- documentation --------------------------------------------------------------------------------------------------


def names_of_modules() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(lakefmt.testing.__path__)]


@pytest.mark.parametrize("name", names_of_modules())
def test_every_public_name_says_what_it_is_and_the_page_shows_it(name: str) -> None:
    module = importlib.import_module(f"lakefmt.testing.{name}")
    values_of = {n: getattr(module, n) for n in module.__all__}
    explained = {n: v for n, v in values_of.items() if inspect.isclass(v) or inspect.isfunction(v)}
    mute = [n for n, value in explained.items() if not inspect.getdoc(value)]
    assert not mute
    page = PAGE.read_text("utf-8")
    assert f"lakefmt.testing.{name}" in page
    missing = [n for n in module.__all__ if f"`{n}" not in page]
    assert not missing, f"docs/dev/testing.md does not name {missing}"
