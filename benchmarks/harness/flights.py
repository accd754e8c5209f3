"""The 336,776 flights of the quickstart as a dataset of the benchmarks: real values, nulls, skewed keys."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness.data import Dataset, store_table
from examples.quickstart.flights import extract_flights, read_flights

KEY, PARTITION, ORDERING = "id", "month", "updated"


def prepare_flights(folder: Path) -> Dataset:
    """Make the dataset of the flights under `folder` unless it is there.

    The four key columns become one text, so that every peer has the same simple key; 12 months are the partitions, the
    time of the report in microseconds is the ordering value. ``late`` changes 1 % of the rows: half of the last month,
    the others of any.
    """
    made = Dataset("flights", folder / "flights", KEY, PARTITION, ORDERING)
    if Path(made.path("lookup")).exists():
        return made
    with tempfile.TemporaryDirectory() as place:
        raw = read_flights(extract_flights(Path(place)), tuple(range(1, 13)))
    rows = _simple(raw)
    rng = np.random.default_rng(1)
    last = np.flatnonzero(np.asarray(raw["month"]) == 12)
    count = rows.num_rows // 200
    chosen = np.unique(np.concatenate([rng.choice(last, count, False), rng.choice(rows.num_rows, count, False)]))
    late = rows.take(pa.array(chosen))
    for name, by in (("arr_delay", 1), (ORDERING, 86_400_000_000)):
        at = late.schema.get_field_index(name)
        late = late.set_column(at, late.schema.field(at), pc.add(late[name], pa.scalar(by, late[name].type)))
    wanted = rows.select([KEY]).take(pa.array(rng.choice(rows.num_rows, 100, replace=False)))
    for part, table in {"base": rows, "late": late, "lookup": wanted}.items():
        store_table(Path(made.path(part)), table)
    return made


def _simple(raw: pa.Table) -> pa.Table:
    when = raw["scheduled"].cast(pa.int64()).cast(pa.string())
    key = pc.binary_join_element_wise(raw["carrier"], raw["flight"].cast(pa.string()), raw["origin"], when, "-")
    months = pc.utf8_lpad(raw["month"].cast(pa.string()), 2, "0")
    table = raw.drop_columns(["month", "scheduled", "updated"])
    table = table.append_column(PARTITION, months).append_column(ORDERING, raw["updated"].cast(pa.int64()))
    return table.add_column(0, KEY, key)
