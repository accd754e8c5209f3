"""Small base files are rewritten together: each is what it would be if it had been rewritten alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.write.files import bundles as small_rewrites

PARTITIONS = [f"p{number:02d}" for number in range(12)]
FIELDS = [
    ("id", pa.string()),
    ("part", pa.string()),
    ("ts", pa.int64()),
    ("v", pa.float64()),
    ("tags", pa.list_(pa.string())),
]
SCHEMA = pa.schema([*FIELDS, ("_hoodie_is_deleted", pa.bool_())])
OF_THE_WRITE = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")


def rows(seed: int, numbers: range, ts: range, deletes: float) -> pa.Table:
    """Return rows whose keys are in several partitions, one of them beyond ASCII."""
    random = np.random.default_rng(seed)
    pairs = [(f"k{number}é" if number % 7 == 0 else f"k{number}", part) for number in numbers for part in PARTITIONS]
    picked = [
        (
            *pair,
            int(random.integers(ts.start, ts.stop)),
            float(random.random()) if pair[1] != PARTITIONS[3] or len(pair[0]) == 3 else float("nan"),
            [pair[0]],
            bool(random.random() < deletes),
        )
        for pair in pairs
        if random.random() < 0.4
    ]
    return pa.table(list(zip(*picked, strict=True)), schema=SCHEMA)


def told_of_columns(metadata: pq.FileMetaData) -> list[tuple[object, ...]]:
    """Return how the columns of a file are encoded, and what it tells of their values."""
    columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    return [
        (c.path_in_schema, c.encodings, c.statistics.has_min_max, c.statistics.null_count)
        for c in columns
        if c.statistics is not None
    ]


def stored_files(table: lakefmt.Table, folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the rows, in their order, and the footer of each partition's file, without what names the write."""
    found = {}
    for piece in table.file_groups():
        path = folder / piece.base.path
        names = set(pq.read_table(path, partitioning=None)["_hoodie_file_name"].to_pylist())
        assert names <= {piece.base.name}
        kept = pq.read_table(path, partitioning=None).drop_columns(OF_THE_WRITE)
        metadata = pq.read_metadata(path)
        # As text: NaN is not equal to itself.
        found[piece.partition] = str(kept.to_pylist()), dict(metadata.metadata), told_of_columns(metadata)
    return found


def counts(result: lakefmt.CommitResult) -> dict[str, tuple[int, ...]]:
    """Return what the commit says of each partition's file."""
    assert result.num_inserts + result.num_updates + result.num_deletes > 0
    return {
        stat.partition_path: (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes)
        for stat in result.files
    }


@pytest.fixture
def make(tmp_path: Path):
    def made(name: str, **given: object) -> lakefmt.Table:
        return lakefmt.create_table(
            str(tmp_path / name),
            schema=SCHEMA,
            record_key="id",
            partition_by="part",
            ordering="ts",
            options={"lakefmt.durability": "none"},
            **given,
        )

    return made


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_each_file_is_what_it_would_be_alone(make, monkeypatch, tmp_path, verb):
    table = make("together", table_version=6)
    table.upsert(rows(1, range(25), range(10, 20), 0.0))
    shutil.copytree(tmp_path / "together", tmp_path / "alone")
    alone = lakefmt.open_table(str(tmp_path / "alone"), options={"lakefmt.durability": "none"})
    change = rows(2, range(3, 40), range(5, 25), 0.2)
    if verb == "delete":
        change = change.select(["id", "part"])
    bundles = []
    bundled = small_rewrites.rewrite_together
    monkeypatch.setattr(
        "lakefmt._core.write.files.bundles.rewrite_together", lambda *a, **k: bundles.append(a) or bundled(*a, **k)
    )
    result = getattr(table, verb)(change)
    assert sum(len(bundle[1]) for bundle in bundles) == len(PARTITIONS)
    monkeypatch.setattr(small_rewrites, "FEWEST_FILES", 1000)
    expected = getattr(alone, verb)(change)
    assert stored_files(table, tmp_path / "together") == stored_files(alone, tmp_path / "alone")
    assert counts(result) == counts(expected)


def test_a_second_attempt_adopts_what_the_first_one_wrote(make, monkeypatch):
    table = make("t")
    table.upsert(rows(1, range(25), range(10, 20), 0.0))
    bundled, seen = small_rewrites.rewrite_together, []

    def twice(*given, announced):
        first = bundled(*given, announced=announced)
        second = bundled(*given, announced=False)  # as if the markers of another attempt had been there
        seen.extend(zip(first, second, strict=True))
        return second

    monkeypatch.setattr("lakefmt._core.write.files.bundles.rewrite_together", twice)
    table.upsert(rows(2, range(3, 40), range(5, 25), 0.2))
    assert len(seen) == len(PARTITIONS)
    for first, second in seen:
        assert (first.adopted, second.adopted) == (False, True)
        assert (first.stat, first.rows_in, first.num_late) == (second.stat, second.rows_in, second.num_late)


def test_only_the_file_with_nan_tells_no_ends(make, tmp_path):
    table = make("t")
    table.upsert(rows(1, range(25), range(10, 20), 0.0))
    table.upsert(rows(2, range(3, 40), range(5, 25), 0.2))
    ends = {
        part: {path: has_ends for path, _, has_ends, _ in told}["v"]
        for part, (_, _, told) in stored_files(table, tmp_path / "t").items()
    }
    assert ends == {f"part={part}": part != PARTITIONS[3] for part in PARTITIONS}


@pytest.mark.parametrize("count", [300, 1_500])
def test_columns_are_encoded_as_in_a_file_alone(make, monkeypatch, tmp_path, count):
    """Files of a few hundred rows have dictionaries, larger ones where values repeat."""
    keys = [(f"k{number}", part) for part in PARTITIONS for number in range(count)]
    everything = pa.table(
        {
            "id": [key for key, _ in keys],
            "part": [part for _, part in keys],
            "ts": pa.array(range(len(keys))),
            "v": [number % 7 / 2 for number in range(len(keys))],
            "tags": [[part] for _, part in keys],
            "_hoodie_is_deleted": [False] * len(keys),
        },
        schema=SCHEMA,
    )
    table = make("together")
    table.upsert(everything)
    shutil.copytree(tmp_path / "together", tmp_path / "alone")
    alone = lakefmt.open_table(str(tmp_path / "alone"), options={"lakefmt.durability": "none"})
    change = everything.filter(pa.array([number % 100 == 0 for number in range(len(keys))]))
    change = change.set_column(2, SCHEMA.field("ts"), pa.array([10**6] * change.num_rows))
    table.upsert(change)
    monkeypatch.setattr(small_rewrites, "FEWEST_FILES", 1000)
    alone.upsert(change)
    together = stored_files(table, tmp_path / "together")
    assert together == stored_files(alone, tmp_path / "alone")
    encodings = {path: "RLE_DICTIONARY" in how for path, how, _, _ in together["part=p00"][2]}
    assert (encodings["v"], encodings["ts"]) == (True, count < 1_000)
