"""`lakefmt alter`: adds, drops, renames and changes columns, and says so."""

from __future__ import annotations

import json

import pyarrow as pa

import lakefmt


def test_columns_are_altered(run, trips):
    before = lakefmt.open_table(trips).schema.names
    run("alter", "rename-column", trips, "city", "town", status=1)  # a partition column
    made = json.loads(run("alter", "add-column", trips, "tip", "decimal(10,2)", "--after", before[0], "--json").stdout)
    assert (made["operation"], made["num_inserts"]) == ("alter_schema", 0)
    run(
        "alter",
        "update-column",
        trips,
        "tip",
        "--type",
        "decimal(12,2)",
        "--comment",
        "what was given",
        "--before",
        before[0],
    )
    run("alter", "rename-column", trips, "tip", "extra")
    table = lakefmt.open_table(trips)
    assert table.schema.names == ["extra", *before]
    assert table.schema.field("extra").type == pa.decimal128(12, 2)
    assert "confirm" in run("alter", "drop-column", trips, "extra", status=1).stderr
    assert table.schema.names == ["extra", *before]
    run("alter", "drop-column", trips, "extra", "--yes")
    assert table.schema.names == before
    first = table.timeline.timeline.commits[0].time
    rows = run("read", trips, "--as-of", first, "--schema-of", "now", "--json").stdout.splitlines()
    assert set(json.loads(rows[0])) == set(before)


def test_wrong_words_change_nothing(run, trips):
    assert "no column 'zz'" in run("alter", "drop-column", trips, "zz", "--yes", status=1).stderr
    assert "unknown type" in run("alter", "add-column", trips, "x", "huge", status=1).stderr
    assert "what to change" in run("alter", "update-column", trips, "id", status=1).stderr
