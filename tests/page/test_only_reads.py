"""A page reads: whatever is asked, no store sees a put, a deletion or a directory; a store that is asked to write refuses."""

from __future__ import annotations

import pytest

from lakefmt._core.storage.open import open_store
from lakefmt.testing.stores import CountingStore
from tests.page.kit import BY_SPARK, id_of, make_hostile_table, make_table, served, unpack

READING = {"read", "info", "list", "list_directories", "range", "list_names", "list_level", "list_tree", "identity"}
VIEWS = (
    "",
    "?sizes=1",
    "/timeline",
    "/timeline?archived=1",
    "/instants?archived=1",
    "/files",
    "/size",
    "/partition?partition={partition}",
    "/plans",
    "/rows",
    "/rows?where=v%20%3E%203",
    "/explain",
    "/schema",
    "/columns",
    "/services",
    "/advice",
    "/settings",
    "/health",
)
PAGES = (
    "/timeline",
    "/files",
    "/files?part=plans",
    "/rows",
    "/rows?part=columns",
    "/services",
    "/services?part=advice",
    "/health",
)


def effects_of(path, partition):
    stores = []

    def counted(place, options):
        stores.append(CountingStore(open_store(place, options)))
        return stores[-1]

    with served(path, open_with=counted) as page:
        base = f"/tables/{id_of(page)}"
        for view in VIEWS:
            page.ask(f"/api/v1{base}{view.format(partition=partition)}")
        for view in PAGES:
            page.ask(f"{base}{view}")
        for entry in page.facts(f"{base}/instants")["instants"]:
            page.ask(f"{base}/instants/{entry['time']}?action={entry['action']}")
    return [access for store in stores for access in store.log if access.kind not in READING], stores


@pytest.mark.parametrize("name", ["own", "hostile", BY_SPARK[0], BY_SPARK[-1]])
@pytest.mark.slow
def test_nothing_is_written(tmp_path, name):
    if name == "own":
        make_table(tmp_path / name)
    elif name == "hostile":
        make_hostile_table(tmp_path / name)
    path = tmp_path / name if name in ("own", "hostile") else unpack(name, tmp_path)
    effects, stores = effects_of(path, "city%3Doslo")
    assert effects == []
    assert sum(len(store.log) for store in stores) > 20, "the spy was asked"


def test_the_spy_sees_a_write(tmp_path):
    make_table(tmp_path / "t", commits=1)
    store = CountingStore(open_store(str(tmp_path / "t"), None))
    store.put("x", b"1")
    assert [access.kind for access in store.log if access.kind not in READING] == ["put"]
