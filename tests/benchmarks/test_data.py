"""The generated rows are what the tables of figures say they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import charts
from benchmarks.harness import expected
from benchmarks.harness.data import DAYS, late_batch, late_days, load_table, make_base, prepare, streamed
from benchmarks.harness.digest import digest


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("data"), 20_000, small=5, upserts=3)


def test_a_row_has_fourteen_columns_and_a_key_of_36_characters(data):
    base = load_table(data.path("base"))
    assert base.num_rows == 20_000
    assert base.num_columns == 14
    assert pc.unique(pc.utf8_length(base["uuid"])).to_pylist() == [36]
    assert len(pc.unique(base["uuid"])) == 20_000
    assert sorted(pc.unique(base["day"]).to_pylist()) == DAYS


def test_rows_follow_from_size_and_seed():
    assert digest(make_base(500)) == digest(make_base(500)) != digest(make_base(500, seed=2))


def test_a_late_batch_hits_stored_keys_of_their_day_mostly_the_newest(data):
    base, late = load_table(data.path("base")), load_table(data.path("late"))
    assert late.num_rows == 200
    assert len(pc.unique(late["uuid"])) == 200
    day_of = dict(zip(base["uuid"].to_pylist(), base["day"].to_pylist(), strict=True))
    stored = [
        (day_of[key], day)
        for key, day in zip(late["uuid"].to_pylist(), late["day"].to_pylist(), strict=True)
        if key in day_of
    ]
    assert all(was == now for was, now in stored)
    assert 160 <= len(stored) <= 195  # some keys are new
    newest = sum(day >= DAYS[-3] for day in late["day"].to_pylist())
    assert 140 <= newest < 200
    assert min(late["ts"].to_pylist()) >= max(base["ts"].to_pylist())


def test_the_tiny_batches_are_of_the_newest_day_and_ever_younger(data):
    tiny = load_table(data.path("tiny"))
    assert pc.unique(tiny["day"]).to_pylist() == DAYS[-1:]
    times = [tiny["ts"].slice(start, 100).to_pylist() for start in (0, 100, 200)]
    assert max(times[0]) < min(times[1])
    assert max(times[1]) < min(times[2])


def test_too_few_rows_for_a_late_batch_are_refused():
    with pytest.raises(ValueError, match="too few"):
        late_batch(make_base(100), 90, 1)


def test_a_dataset_is_made_once(data):
    before = [load_table(data.path("base"))["uuid"][0], data.folder.joinpath("base.arrow").stat().st_mtime_ns]
    again = prepare(data.folder.parent, 20_000, small=5, upserts=3)
    assert [load_table(again.path("base"))["uuid"][0], again.folder.joinpath("base.arrow").stat().st_mtime_ns] == before


def test_what_is_expected_is_what_a_dictionary_of_rows_would_hold(data):
    batches = [load_table(data.path("late")), load_table(data.path("tiny")).slice(0, 100)]
    rows = {}
    for table in (load_table(data.path("base")), *batches):
        for row in table.to_pylist():
            key = (row["uuid"], row["day"])
            if key not in rows or row["ts"] >= rows[key]["ts"]:
                rows[key] = row
    assert expected.after_upserts(data, batches) == digest(
        pa.Table.from_pylist(list(rows.values()), load_table(data.path("base")).schema)
    )
    assert expected.after_upserts(data, batches[:1]) != expected.after_upserts(data, batches)


def test_the_rows_looked_up_are_those_of_the_keys(data):
    base, wanted = load_table(data.path("base")), load_table(data.path("lookup"))
    found = base.filter(pc.is_in(base["uuid"], value_set=wanted["uuid"].combine_chunks()))
    assert found.num_rows == 100
    assert expected.of_keys(data) == digest(found)


def test_a_stream_has_the_rows_asked_for():
    batches = list(streamed(2_500, batch=1_000))
    assert [batch.num_rows for batch in batches] == [1_000, 1_000, 500]
    assert batches[0].schema == make_base(10).schema


@pytest.mark.parametrize(
    ("rows", "batch"),
    [*((size, charts.FIXED_BATCH) for size in charts.SIZES), *((1_000_000, batch) for batch in charts.BATCHES)],
)
def test_the_newest_day_has_enough_rows_for_the_batches_of_the_charts(rows, batch):
    days = late_days(batch, np.random.default_rng(77))
    assert np.bincount(days).max() < 0.98 * rows / len(DAYS)
