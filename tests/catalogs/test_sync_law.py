"""After any commits and syncs, some of which died at any request, a last sync gives exactly the catalog of the table."""

from __future__ import annotations

import itertools
import os
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.data_classes import replace
from lakefmt.catalogs import MemoryCatalog
from lakefmt.errors import StorageError
from tests.catalogs.law import OPTIONS, Dying, Model, check, play, steps
from tests.example_counts import count_in_turn, examples

NAMES = {"cow": ["trips"], "mor": ["trips_ro", "trips_rt", "trips"]}


@settings(deadline=None, max_examples=examples(120))
@given(steps, st.sampled_from(["cow", "mor"]), st.sampled_from([6, 8, 9]))
def test_a_last_sync_gives_the_catalog_of_the_table(played, table_type, version):
    place = f"memory://sync-law-{uuid4().hex}"
    play(Model(place, table_type, version), MemoryCatalog(), played, NAMES[table_type], "db", place)


@pytest.mark.parametrize("after", [False, True])
def test_a_first_or_later_sync_may_die_at_every_request(after):
    for number in count_in_turn(1, 2):
        place = f"memory://sync-dies-{uuid4().hex}"
        model, catalog = Model(place, "mor"), MemoryCatalog()
        model.do("upsert", ["sf", "oslo"])
        deaths = 0
        for step in (("upsert", ["sf", "rio/x"]), ("add", "string"), ("drop", "sf"), ("upsert", ["a b"])):
            model.do(*step)
            try:
                model.table.sync(Dying(catalog, number, after), database="db", name="trips", options=OPTIONS)
            except StorageError:
                deaths += 1
        play(model, catalog, [], NAMES["mor"], "db", place, first_changes=None)
        if not deaths:
            break
    assert number > 20


@pytest.mark.parametrize("call", ["replace_table", "add_partitions", "replace_partitions", "drop_partitions"])
def test_the_law_sees_a_catalog_that_forgets(call):
    place = f"memory://sync-forgets-{uuid4().hex}"
    catalog = MemoryCatalog()
    played = [("upsert", ["sf", "oslo"]), ("sync", None), ("add", "string"), ("upsert", ["a b"]), ("drop", "sf")]
    model = Model(place)
    setattr(catalog, call, lambda *_: None)
    with pytest.raises((AssertionError, KeyError)):
        play(model, catalog, played, NAMES["cow"], "db", place)


@pytest.fixture
def glue(monkeypatch):
    pytest.importorskip("moto")
    from moto import mock_aws

    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setitem(os.environ, name, value)
    with mock_aws():
        from lakefmt.catalogs import open_catalog

        yield open_catalog("glue:")


class DyingGlue:
    """Glue whose n-th request to the service fails, before it takes effect or after."""

    def __init__(self, catalog, number, after):
        from lakefmt._core.catalogs.glue import GlueCatalog

        self.catalog = GlueCatalog(Wire(catalog._client, number, after))

    def __getattr__(self, name):
        return getattr(self.catalog, name)


class Wire:
    def __init__(self, client, number, after):
        self.client, self.left, self.after = client, number, after
        self.meta, self.exceptions = client.meta, client.exceptions

    def __getattr__(self, name):
        def request(**arguments):
            self.left -= 1
            if self.left == 0 and not self.after:
                raise OSError("the request got lost")
            answer = getattr(self.client, name)(**arguments)
            if self.left == 0:
                raise OSError("the answer got lost")
            return answer

        return request


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_last_sync_gives_glue_the_catalog_of_the_table(glue, table_type):
    @settings(deadline=None, max_examples=examples(60))
    @given(steps)
    def play_once(played):
        place, database = f"memory://sync-glue-{uuid4().hex}", f"d{uuid4().hex}"
        play(Model(place, table_type), glue, played, NAMES[table_type], database, place, DyingGlue)

    play_once()


class Passed:
    """A catalog that lets `beside` happen before its n-th request."""

    def __init__(self, catalog, number, beside):
        self.catalog, self.left, self.beside = catalog, number, beside
        self.what = catalog.what

    def __getattr__(self, name):
        act = getattr(self.catalog, name)

        def request(*arguments):
            self.left -= 1
            if self.left == 0:
                self.beside()
            return act(*arguments)

        return request


@pytest.mark.parametrize(
    ("first", "then"), [(("drop", "sf"), ("upsert", ["sf"])), (("upsert", ["a b"]), ("add", "string"))]
)
def test_a_sync_that_another_one_passes_leaves_what_the_newer_one_wrote(first, then):
    """Else it takes partitions away that came back, or columns, until the next sync."""
    for number in itertools.count(1):
        place = f"memory://sync-passed-{uuid4().hex}"
        model, catalog = Model(place), MemoryCatalog()

        def sync(target, model=model):
            model.table.sync(target, database="db", name="trips", options=OPTIONS)

        def beside(model=model, catalog=catalog, sync=sync):
            model.do(*then)
            model.do("upsert", ["rio/x"])
            sync(catalog)

        model.do("upsert", ["sf", "oslo"])
        sync(catalog)
        model.do(*first)
        passed = Passed(catalog, number, beside)
        sync(passed)
        if passed.left > 0:
            break
        entry = catalog.load_table("db", "trips")
        catalog.replace_table(replace(entry, properties={**entry.properties, "team": "ours"}))
        check(model, catalog, NAMES["cow"], "db", place)
    assert number > 5
