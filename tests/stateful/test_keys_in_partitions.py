"""A key that is stored in several partitions: what a filter selects goes, every copy of it and nothing else."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import lakefmt
from tests.kit import THOROUGH

KEYS, CITIES = [f"k{n}" for n in range(5)], ["oslo", "sf", "bern"]
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
Model = dict[tuple[str, str], int]
#: The index that finds keys, and those of the metadata table.
CASES: dict[str, tuple[str, ...]] = {
    "default": ("bloom",),
    "default, record index": ("bloom", "column_stats", "record_index"),
    "simple, secondary index": ("simple", "record_index"),
    "record index": ("record_index",),
    "global bloom, record index": ("global_bloom", "record_index"),
    "global simple": ("global_simple",),
}


def rows(*places: tuple[str, str], v: int) -> pa.Table:
    columns = [[key for _, key in places], [city for city, _ in places], [v] * len(places)]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def make(name: str, story: str) -> lakefmt.Table:
    version, table_type, case = name.split("|")
    arguments = CASES[case]
    table = lakefmt.create_table(
        f"memory://copies-{name}-{story}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_version=int(version),
        table_type=table_type,
        index=arguments[0],
        indexes=list(arguments[1:]) or None,
    )
    if "secondary" in case and version != "6":
        table.upsert(rows(("oslo", "first"), v=0))
        table.index.create("secondary_index", "v")
        table.delete(["first"])
    return table


def step(table: lakefmt.Table, model: Model, copied: set[str], draw: random.Random, v: int, *, is_global: bool) -> None:
    """Change the table and its model in the same way; remember the keys that were in several partitions."""
    city, key = draw.choice(CITIES), draw.choice(KEYS)
    places = [(draw.choice(CITIES), each) for each in KEYS if draw.random() < 0.6] or [(city, key)]
    verb = draw.choice(["upsert", "upsert", "insert_overwrite", "city", "key", "both", "value", "keys", "update"])
    gone: list[tuple[str, str]] = []
    if verb == "upsert":
        if is_global:  # a global index knows one copy of a key that overwrites stored in several partitions, or none
            places = [p for p in places if p[1] not in copied and all(q == p for q in model if q[1] == p[1])]
        if places:
            table.upsert(rows(*places, v=v))
        model.update(dict.fromkeys(places, v))
    elif verb == "insert_overwrite":
        table.insert_overwrite(rows(*[(city, each) for _, each in places], v=v))
        for place in [place for place in model if place[0] == city]:
            del model[place]
        model.update({(city, each): v for _, each in places})
    elif verb == "update" and not is_global:
        table.update(f"id = '{key}'", {"v": v})
        model.update({place: v for place in model if place[1] == key})
    elif verb == "keys" and not is_global:
        gone = [place for place in model if place[1] == key]
        assert table.delete([key]).num_deletes == len(gone)
    else:
        old = draw.choice([0, *model.values()])
        condition, gone = {
            "city": (f"city = '{city}'", [place for place in model if place[0] == city]),
            "both": (f"id = '{key}' and city = '{city}'", [place for place in model if place == (city, key)]),
            "value": (f"v = {old}", [place for place, value in model.items() if value == old]),
        }.get(verb, (f"id = '{key}'", [place for place in model if place[1] == key]))
        assert table.delete(condition).num_deletes == len(gone)
    for place in gone:
        del model[place]
    copied.update(key for key in KEYS if sum(place[1] == key for place in model) > 1)


@pytest.mark.slow
@pytest.mark.in_turn(2)  # each index on one of the two types of table
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9] if THOROUGH else [9])
def test_law_a_filter_changes_every_copy_that_it_selects_and_no_other(case: str, table_type: str, version: int) -> None:
    for seed in range(40 if THOROUGH else 3):
        draw, model, copied = random.Random(f"{case} {table_type} {version} {seed}"), Model(), set[str]()
        table = make(f"{version}|{table_type}|{case}", str(seed))
        for v in range(1, 13):
            step(table, model, copied, draw, v, is_global=case == "record index" or "global" in case)
            found = sorted((row["city"], row["id"], row["v"]) for row in table.read(["city", "id", "v"]).to_pylist())
            assert found == sorted((*place, value) for place, value in model.items()), f"seed {seed}, step {v}"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_record_index_goes_on_naming_the_copy_that_stays(table_type: str) -> None:
    table = make(f"9|{table_type}|default, record index", "named")
    table.upsert(rows(("sf", "k0"), v=1))
    table.upsert(rows(("oslo", "k0"), v=2))
    table.delete("city = 'sf'")
    assert table.read(["city", "v"], filter="id = 'k0'").to_pylist() == [{"city": "oslo", "v": 2}]
    assert not table.index.check().findings
