"""Non-blocking concurrency control: writers of one bucket add logs side by side, and none of them is done again."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt.errors import CommitConflict, InvalidInputError
from lakefmt.testing.operations import TableShape
from tests.example_counts import seeds_of_run
from tests.simulation.simulator import SCHEMA, Scene, check_history, scene_of, simulate

MODE = "hoodie.write.concurrency.mode"
NBCC, OCC = "non_blocking_concurrency_control", "optimistic_concurrency_control"
ONE_BUCKET = {"hoodie.bucket.index.num.buckets": "1"}
FAST: dict[str, object] = {"lakefmt.durability": "none"}


def make(path: str, version: int = 9, **how: object) -> lakefmt.Table:
    options = {**FAST, MODE: NBCC}
    arguments = {"table_type": "mor", "index": "bucket", "properties": ONE_BUCKET, **how}
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
    return lakefmt.create_table(
        path, schema=schema, record_key="id", ordering="ts", table_version=version, options=options, **arguments
    )


def rows(*given: tuple[str, int, str]) -> pa.Table:
    return pa.table(
        {name: list(values) for name, values in zip(("id", "ts", "v"), zip(*given, strict=True), strict=True)}
    )


def side_by_side(table: lakefmt.Table, *batches: pa.Table, mode: str = NBCC) -> None:
    """Begin all writes, then write all files, then commit all, the last one first."""
    handles = [lakefmt.open_table(table.client.store.url, options={**FAST, MODE: mode}) for _ in batches]
    contexts = [lowlevel.begin_write(handle, "upsert") for handle in handles]
    work = [lowlevel.assign(context, batch) for context, batch in zip(contexts, batches, strict=True)]
    done = [
        [lowlevel.write_files(context, assignment, rows) for assignment, rows in each]
        for context, each in zip(contexts, work, strict=True)
    ]
    for context, statuses in reversed(list(zip(contexts, done, strict=True))):
        lowlevel.commit(context, statuses)


def content(table: lakefmt.Table) -> dict[str, str]:
    found = [(str(row["id"]), str(row["v"])) for row in table.read().to_pylist()]
    assert len(dict(found)) == len(found), f"a key is there twice: {found}"
    return dict(found)


@pytest.mark.parametrize("version", [8, 9])
def test_writers_of_one_file_group_stand_side_by_side(version: int) -> None:
    table = make(f"memory://side-by-side-{version}", version)
    # None of them finds a file group: all open the same one.
    side_by_side(table, rows(("a", 2, "x"), ("b", 1, "x")), rows(("a", 1, "y"), ("b", 2, "y")), rows(("c", 1, "z")))
    assert content(table) == {"a": "x", "b": "y", "c": "z"}
    (group,) = table.file_groups()
    assert (group.file_id, len(group.logs)) == ("00000000-0000-0000-0000-000000000000-0", 3)
    side_by_side(table, rows(("a", 3, "p"), ("d", 1, "p")), rows(("a", 4, "q"), ("d", 2, "q")))
    expected = {"a": "q", "b": "y", "c": "z", "d": "q"}
    assert content(table) == expected
    table.compact()
    assert content(table) == expected
    assert table.check("full").is_clean
    side_by_side(table, rows(("a", 9, "r")), rows(("d", 9, "s")))
    assert content(table) == {**expected, "a": "r", "d": "s"}


def test_optimistic_writers_of_one_file_group_conflict() -> None:
    table = make("memory://one-after-the-other")
    with pytest.raises(CommitConflict, match="same file groups"):
        side_by_side(table, rows(("a", 2, "x")), rows(("b", 1, "y")), mode=OCC)
    assert content(table) == {"b": "y"}


def test_a_log_written_across_a_compaction_counts() -> None:
    table = make("memory://across-a-compaction")
    table.upsert(rows(("a", 1, "x"), ("b", 1, "x")))
    slow = lakefmt.open_table("memory://across-a-compaction", options={**FAST, MODE: NBCC})
    context = lowlevel.begin_write(slow, "upsert")
    statuses = [
        lowlevel.write_files(context, one, part) for one, part in lowlevel.assign(context, rows(("a", 5, "late")))
    ]
    table.upsert(rows(("b", 2, "y")))
    table.compact()
    lowlevel.commit(context, statuses)
    assert content(table) == {"a": "late", "b": "y"}
    table.upsert(rows(("c", 1, "z")))
    table.compact()
    assert content(table) == {"a": "late", "b": "y", "c": "z"}


def test_what_was_replaced_stays_hidden_when_its_bucket_is_opened_again() -> None:
    table = make("memory://opened-again")
    table.upsert(rows(("a", 1, "x")))
    table.insert_overwrite_table(
        pa.table({"id": pa.array([], pa.string())})
        .append_column("ts", pa.array([], pa.int64()))
        .append_column("v", pa.array([], pa.string()))
    )
    assert content(table) == {}
    side_by_side(table, rows(("b", 1, "y")), rows(("c", 1, "z")))
    assert content(table) == {"b": "y", "c": "z"}
    (group,) = table.file_groups()
    assert group.file_id.startswith("00000000-0000-000")
    assert group.file_id != "00000000-0000-0000-0000-000000000000-0"


@pytest.mark.parametrize("how", [{"table_type": "cow"}, {"index": "bloom", "properties": {}}, {"version": 6}])
def test_tables_where_writers_would_meet_elsewhere_are_refused(how: dict[str, object]) -> None:
    table = make(f"memory://unfit-{'-'.join(how)}", **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="bucket index"):
        table.upsert(rows(("a", 1, "x")))
    assert table.read().num_rows == 0
    assert table.upsert(rows(("a", 1, "x")), options={MODE: "single_writer"}).instant is not None


# ----------------------------------------------------------------------------------------------------- histories

SEEDS = seeds_of_run(16, 2000)


def scene(seed: int, mode: str = NBCC) -> Scene:
    found = scene_of(seed)
    shape = TableShape(
        SCHEMA,
        "id",
        "city",
        "ts",
        index="bucket",
        table_version=8 + seed % 2,
        table_type="mor",
        properties={"hoodie.bucket.index.num.buckets": "2"},
    )
    return replace(found, shape=shape, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_histories_of_non_blocking_writers_are_those_of_one_after_the_other(part: int) -> None:
    for seed in SEEDS[part::4]:
        history = simulate(scene(seed))
        check_history(history)
        conflicts = [tried for tried in history.tried if isinstance(tried.error, CommitConflict)]
        assert not conflicts, f"seed {seed}: {conflicts}"


@pytest.mark.slow
def test_histories_of_optimistic_writers_of_buckets() -> None:
    for seed in range(20):
        check_history(simulate(scene(seed, OCC)))
