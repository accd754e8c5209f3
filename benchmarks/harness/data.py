"""The generated data of the benchmarks: made once, kept as Arrow IPC files, handed to every peer by memory map.

A row has 14 columns: a random key of 36 characters, one of 30 days, an ordering value, five doubles, four integers and
two strings of few values. Everything follows from the number of rows and a seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY, PARTITION, ORDERING = "uuid", "day", "ts"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 31)]
#: Of a late batch: this share is spread evenly over all days, the rest falls off by half per day from the newest on.
TAIL = 0.1
#: Of a late batch: this share are keys that are not stored yet.
NEW_KEYS = 0.1
VERSION = 5


@dataclass(frozen=True)
class Dataset:
    """Where the files of one generated dataset are, and which columns mean what."""

    name: str
    folder: Path
    key: str = KEY
    partition: str = PARTITION
    ordering: str = ORDERING
    tiny_rows: int = 100

    def path(self, part: str) -> str:
        """Return the path of one part: base, late, small_00 …, lookup."""
        return str(self.folder / f"{part}.arrow")

    def described(self) -> dict[str, str]:
        """Return the columns' meaning as peers are told."""
        return {"key": self.key, "partition": self.partition, "ordering": self.ordering}


def further(data: Dataset, name: str, make: Callable[[pa.Table], pa.Table]) -> str:
    """Return the path of a part beyond those of :func:`prepare`; `make` makes it from the base rows on first use."""
    path = Path(data.path(name))
    if not path.exists():
        store_table(path, make(load_table(data.path("base"))))
    return str(path)


def late_batches(base: pa.Table, count: int, rows: int, seed: int, ts: int, new: float = NEW_KEYS) -> pa.Table:
    """Return `count` late batches of `rows` rows, one after the other, each younger than all before it."""
    each = (late_batch(base, rows, seed + 2 * n, ts=ts + n * 10**12, new=new) for n in range(count))
    return pa.concat_tables(each)


def load_table(path: str) -> pa.Table:
    """Return the table of an IPC file; its columns stay in the map."""
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()


def store_table(path: Path, table: pa.Table) -> None:
    """Write `table` as one IPC file, in batches of 64k rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=65_536)


def random_keys(rows: int, rng: np.random.Generator) -> pa.Array:
    """Return keys like UUIDs: 36 characters, hyphens where a UUID has them."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (rows, 36), dtype=np.uint8)]
    digits[:, [8, 13, 18, 23]] = ord("-")
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(digits.reshape(-1))])


def make_rows(days: np.ndarray[Any, Any], seed: int, ts: int = 0, names: list[str] = DAYS) -> pa.Table:
    """Return one row for each number of a day in `days`, of the days `names`; ordering values begin at `ts`."""
    rng, rows = np.random.default_rng(seed), len(days)
    columns: dict[str, Any] = {
        KEY: random_keys(rows, rng),
        PARTITION: pa.array(names).take(pa.array(days)),
        ORDERING: pa.array(ts + rng.integers(0, 10**12, rows)),
    }
    columns |= {f"f{number}": pa.array(rng.random(rows)) for number in range(5)}
    columns |= {f"i{number}": pa.array(rng.integers(0, 10**6, rows)) for number in range(4)}
    for name, count in (("name", 1000), ("city", 100)):
        columns[name] = pa.array([f"{name}-{number}" for number in range(count)]).take(
            pa.array(rng.integers(0, count, rows))
        )
    return pa.table(columns)


def make_base(rows: int, seed: int = 1) -> pa.Table:
    """Return `rows` rows, their days at random."""
    return make_rows(np.random.default_rng(seed).integers(0, len(DAYS), rows), seed + 1)


def late_days(rows: int, rng: np.random.Generator, count: int = len(DAYS)) -> np.ndarray[Any, Any]:
    """Return which of `count` days each row of a late batch has: mostly the newest, half as many for every day before, and a tail over all."""
    age = np.minimum(rng.geometric(0.5, rows) - 1, count - 1)
    newest_first = np.where(rng.random(rows) < TAIL, rng.integers(0, count, rows), age)
    return count - 1 - newest_first


def late_batch(
    base: pa.Table,
    rows: int,
    seed: int,
    *,
    newest_only: bool = False,
    ts: int = 10**12,
    new: float = NEW_KEYS,
    names: list[str] = DAYS,
) -> pa.Table:
    """Return `rows` late rows for `base`: stored keys with new values and a larger ordering value, and some new keys.

    `new` is the share of new keys, `names` are the days of `base`. With `newest_only` all are of the newest day; ordering values begin at `ts`. Raises ValueError when `base` is too small
    to hold that many different keys of the wanted days.
    """
    rng = np.random.default_rng(seed)
    days = np.full(rows, len(names) - 1) if newest_only else late_days(rows, rng, len(names))
    batch = make_rows(days, seed + 1, ts=ts, names=names)
    stored = np.asarray(pc.index_in(base[PARTITION], pa.array(names)))
    order = rng.permutation(len(stored))
    order = order[np.argsort(stored[order], kind="stable")]  # the rows of each day, shuffled
    first = np.searchsorted(stored[order], np.arange(len(names) + 1))
    nth = np.empty(rows, np.int64)  # the n-th row of this batch that falls on its day takes the n-th row of that day
    by_day = np.argsort(days, kind="stable")
    nth[by_day] = np.arange(rows) - np.searchsorted(days[by_day], days[by_day])
    position = first[days] + nth
    if np.any(position >= first[days + 1]):
        raise ValueError(f"{len(stored):,} rows are too few for a late batch of {rows:,}")
    keys = base[KEY].combine_chunks().take(pa.array(order[position]))
    is_new = pa.array(rng.random(rows) < new)
    return batch.set_column(0, KEY, pc.if_else(is_new, batch[KEY], keys))


def small_batch(number: int, rows: int = 100) -> pa.Table:
    """Return the `number`-th batch of new rows, all of the newest day."""
    return make_rows(np.full(rows, len(DAYS) - 1), 1_000_000 + number, ts=2 * 10**12)


def prepare(folder: Path, rows: int, small: int = 500, upserts: int = 20) -> Dataset:
    """Make the dataset of `rows` rows under `folder` unless it is there.

    Parts: ``base``; ``late``, 1 % of the rows; ``small``, `small` batches of 100 new rows in one file; ``tiny``,
    `upserts` late batches of 100 rows (of small tables 1 %) of the newest day; ``lookup``, 100 stored keys at random.
    """
    made = Dataset(f"{rows:,} rows", folder / f"rows-{rows}", tiny_rows=min(100, rows // 100))
    stamp = made.folder / "made.json"
    wanted = {"version": VERSION, "rows": rows, "small": small, "upserts": upserts}
    if stamp.exists() and json.loads(stamp.read_text("utf-8")) == wanted:
        return made
    for path in (stamp, *made.folder.glob("*.arrow")):
        path.unlink(missing_ok=True)
    base = make_base(rows)
    parts = {"base": base, "late": late_batch(base, max(rows // 100, 1), 11)}
    parts["small"] = pa.concat_tables(small_batch(number) for number in range(small))
    # Each batch is younger than all before it: a peer without ordering values must arrive at the same rows.
    parts["tiny"] = pa.concat_tables(
        late_batch(base, made.tiny_rows, 1000 + 2 * n, newest_only=True, ts=(n + 2) * 10**12) for n in range(upserts)
    )
    chosen = np.random.default_rng(7).choice(rows, min(100, rows), replace=False)
    parts["lookup"] = base.select([KEY]).take(pa.array(chosen))
    for part, table in parts.items():
        store_table(Path(made.path(part)), table)
    stamp.write_text(json.dumps(wanted), "utf-8")
    return made


def streamed(rows: int, batch: int = 100_000) -> Iterator[pa.RecordBatch]:
    """Yield `rows` rows in batches that are made one after the other: a source that holds nothing."""
    for number, start in enumerate(range(0, rows, batch)):
        days = np.random.default_rng(number).integers(0, len(DAYS), min(batch, rows - start))
        yield make_rows(days, 2_000_000 + number).combine_chunks().to_batches()[0]


#: The days of a large table, each a partition.
MANY_DAYS = [str(np.datetime64("2026-01-01") + number) for number in range(120)]
#: What the rows of a large table are compared by: how many there are of a day, and these columns' sums.
SUMMED = ("i0", "i1")
Totals = dict[str, list[int]]
#: Rows of a batch of a large table.
_BATCH_ROWS = 100_000


def totals(batches: Iterable[pa.RecordBatch]) -> Totals:
    """Return of each day the number of rows and the sums of :data:`SUMMED`."""
    found: Totals = {}
    for batch in batches:
        sums = (
            pa.Table.from_batches([batch])
            .group_by(PARTITION)
            .aggregate([([], "count_all"), *((name, "sum") for name in SUMMED)])
        )
        for day, *values in zip(
            sums[PARTITION].to_pylist(),
            *(sums[name].to_pylist() for name in sums.column_names if name != PARTITION),
            strict=True,
        ):
            _add(found, {day: values}, 1)
    return dict(sorted(found.items()))


def stored_batches(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an IPC file, each read when it is asked for."""
    with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def prepare_large(folder: Path, rows: int) -> Dataset:
    """Make the dataset of `rows` rows of 120 days under `folder` unless it is there; at no time are all rows in memory.

    Parts: ``base``; ``late``, 1 % of the rows, nine in ten of them stored keys; ``lookup``, 100 stored rows. ``totals.json`` has what
    :func:`totals` gives of the base rows, and of the rows after the upsert.
    """
    made = Dataset(f"{rows:,} rows", folder / f"large-{rows}")
    stamp = made.folder / "totals.json"
    if stamp.exists():
        return made
    made.folder.mkdir(parents=True, exist_ok=True)
    loaded: Totals = {}
    replaced: Totals = {}
    late: list[pa.Table] = []
    chosen: list[pa.Table] = []
    asked = np.arange(0, rows, max(rows // 100, 1))[:100]
    schema = make_rows(np.zeros(1, np.int64), 0, names=MANY_DAYS).schema
    with pa.OSFile(made.path("base"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for number, start in enumerate(range(0, rows, _BATCH_ROWS)):
            count = min(_BATCH_ROWS, rows - start)
            days = np.random.default_rng(number).integers(0, len(MANY_DAYS), count)
            batch = make_rows(days, 3_000_000 + number, names=MANY_DAYS)
            writer.write_table(batch, max_chunksize=_BATCH_ROWS)
            late.append(late_batch(batch, max(count // 100, 1), 5_000_000 + 2 * number, names=MANY_DAYS))
            again = batch.filter(pc.is_in(batch[KEY], late[-1][KEY].combine_chunks()))
            _add(loaded, totals(batch.to_batches()), 1)
            _add(replaced, totals(again.to_batches()), 1)
            chosen.append(batch.take(pa.array(asked[(asked >= start) & (asked < start + count)] - start)))
    store_table(Path(made.path("late")), pa.concat_tables(late))
    store_table(Path(made.path("lookup")), pa.concat_tables(chosen))
    after = {day: list(values) for day, values in loaded.items()}
    _add(after, totals(pa.concat_tables(late).to_batches()), 1)
    _add(after, replaced, -1)
    stamp.write_text(json.dumps({"base": loaded, "after": after}), "utf-8")
    return made


def _add(into: Totals, more: Totals, sign: int) -> None:
    for day, values in more.items():
        into[day] = [
            before + sign * value for before, value in zip(into.get(day, [0] * len(values)), values, strict=True)
        ]
