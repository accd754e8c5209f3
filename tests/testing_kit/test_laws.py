"""Each law of `lakefmt.testing.invariants` holds on sound tables, and says no to one that was damaged on purpose."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata, encode_commit
from lakefmt.testing import invariants as laws
from lakefmt.testing.stores import WatchStore
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
VERSIONS = [6, 8, 9]
LAWS: dict[str, Callable[[Table], None]] = {
    "visible": laws.check_visible,
    "reachable": laws.check_reachable,
    "unique": laws.check_unique_keys,
    "unique in the table": lambda table: laws.check_unique_keys(table, global_keys=True),
    "file ids": laws.check_file_ids,
    "counts": laws.check_counts,
    "meta columns": laws.check_meta_columns,
    "partitions": laws.check_partitions,
    "footers": laws.check_footers,
    "orphans": laws.check_no_orphans,
}


def rows(*ids: str, city: str = "sf") -> pa.Table:
    return pa.table({"id": [*ids], "city": [city] * len(ids), "v": pa.array(range(len(ids)), pa.int64())})


class Patient:
    """A table of two commits in two partitions, and hands to hurt it with."""

    def __init__(self, version: int = 8) -> None:
        self.name = f"laws-{next(NUMBERS)}"
        self.store = MemoryStore(self.name)
        options = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
        table = lakefmt.create_table(
            f"memory://{self.name}",
            data=rows("a"),
            record_key="id",
            partition_by="city",
            table_version=version,
            options=options,
        )
        table.upsert(pa.concat_tables([rows("a", "b", "c"), rows("x", "y", city="oslo")]))
        self.result = table.upsert(rows("a", "d"))
        (stat,) = self.result.files
        self.newest = stat.path
        self.older = next(f.name for f in self.store.list("city=sf") if f.name != stat.path and "parquet" in f.name)

    @property
    def table(self) -> Table:
        """A handle that has seen nothing yet."""
        return lakefmt.open_table(f"memory://{self.name}")

    def rewrite(self, change: Callable[[pa.Table], pa.Table], path: str = "", to: str = "") -> None:
        path = path or self.newest
        out = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(self.store.read(path)), partitioning=None)), out)
        self.store.put(to or path, out.getvalue())

    def set_column(self, name: str, *values: object) -> None:
        """Write values over the first ones of a column."""

        def change(content: pa.Table) -> pa.Table:
            at = content.schema.get_field_index(name)
            kept = content.column(name).to_pylist()[len(values) :]
            return content.set_column(at, content.schema.field(at), pa.array([*values, *kept], pa.string()))

        self.rewrite(change)

    def say(self, change: Callable[[CommitMetadata], CommitMetadata]) -> None:
        """Let the newest commit say something else."""
        client = self.table.client
        state = client.load()
        commit = state.timeline.commits[-1]
        body = encode_commit(change(client.at(state).commit_metadata(commit)), state.config.version, False)
        self.store.put(f"{state.config.timeline_directory}/{commit.file_name}", body)

    def twin(self, instant: str = "") -> str:
        """A name like that of the newest file, of another file group."""
        name = self.newest.replace(self.newest.rpartition("/")[2][:8], "deadbeef")
        return name.replace(self.result.instant or "", instant) if instant else name


def _said(**counts: int) -> Callable[[CommitMetadata], CommitMetadata]:
    return lambda commit: replace(commit, stats=tuple(replace(stat, **counts) for stat in commit.stats))


def _move_a_key(patient: Patient) -> None:
    """The row of `a` leaves its file for another one of the same commit."""
    patient.rewrite(lambda content: content.filter(pc.equal(content["id"], "a")), to=patient.twin())
    patient.rewrite(lambda content: content.filter(pc.not_equal(content["id"], "a")))


DAMAGE: dict[str, tuple[str, Callable[[Patient], object], str]] = {
    "rows of an instant that never completed": (
        "visible",
        lambda p: p.set_column("_hoodie_commit_time", "20200101000000000"),
        "not completed: .*20200101000000000",
    ),
    "a file that no commit names": ("visible", lambda p: p.rewrite(lambda c: c, to=p.twin()), "no completed commit"),
    "an old slice is gone": ("reachable", lambda p: p.store.delete([p.older]), "can be read and needs"),
    "a key twice in a partition": ("unique", lambda p: p.table.insert(rows("a")), "1 keys live more than once in one"),
    "a key in two partitions": (
        "unique in the table",
        lambda p: p.table.insert(rows("a", city="oslo")),
        "1 keys live more than once in the table",
    ),
    "a key in another file group": ("file ids", _move_a_key, "1 keys left their file group"),
    "a row too few": ("counts", lambda p: p.rewrite(lambda c: c.slice(1)), "said, .* found"),
    "rows out are not rows in": ("counts", lambda p: p.say(_said(num_inserts=7)), "3 before . 7 inserted"),
    "the number of rows is wrong": ("counts", lambda p: p.say(_said(num_writes=9)), "9 rows said, 4 found"),
    "another file name": ("meta columns", lambda p: p.set_column("_hoodie_file_name", "x"), "_hoodie_file_name says"),
    "another partition path": (
        "meta columns",
        lambda p: p.set_column("_hoodie_partition_path", "city=rio"),
        "_hoodie_partition_path says",
    ),
    "a row from the future": ("meta columns", lambda p: p.set_column("_hoodie_commit_time", "9" * 17), "newer than"),
    "a number twice": ("meta columns", lambda p: p.set_column("_hoodie_commit_seqno", "1", "1"), "share a"),
    "another record key": ("meta columns", lambda p: p.set_column("_hoodie_record_key", "zz"), "not the key of its"),
    "a row in the wrong partition": ("partitions", lambda p: p.set_column("city", "rio"), "rows of"),
    "no footers": ("footers", lambda p: p.rewrite(lambda c: c.replace_schema_metadata(None)), "no bloom filter"),
    "a key that its filter does not know": (
        "footers",
        lambda p: p.set_column("_hoodie_record_key", "unknown"),
        "misses its filter",
    ),
    "an orphan": ("orphans", lambda p: p.store.put(p.twin("20200101000000000"), b"PAR1"), "orphans: .*deadbeef"),
    "a checksum of nothing": ("orphans", lambda p: p.store.put("city=sf/.gone.parquet.crc", b"x"), "orphans: .*gone"),
    "a checksum of no instant": (
        "orphans",
        lambda p: p.store.put(".hoodie/timeline/.20200101000000000.inflight.crc", b"x"),
        "orphans: .*20200101",
    ),
    "a marker": ("orphans", lambda p: p.store.put(".hoodie/.temp/1/x.marker.CREATE", b""), "traces of a write"),
}


@product_or_diagonal(law=list(LAWS), version=VERSIONS)
def test_sound_tables_are_lawful(law: str, version: int) -> None:
    patient = Patient(version)
    LAWS[law](patient.table)
    view = laws.View.of(patient.table)
    assert laws.View.of(view) is view
    LAWS[law](view)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [8, 6])
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_damage_is_seen(damage: str, version: int) -> None:
    law, hurt, said = DAMAGE[damage]
    patient = Patient(version)
    hurt(patient)
    with pytest.raises(AssertionError, match=said):
        LAWS[law](patient.table)


@pytest.mark.parametrize("name", ["timeline/.20200101000000000.inflight", ".20200101000000000.commit.requested"])
def test_a_checksum_that_a_jvm_left_when_it_was_killed_is_no_orphan(name: str) -> None:
    patient = Patient()
    patient.store.put(f".hoodie/{name}.2208d052-7cf0-4a68-b734-80d51d8d9b9f.crc", b"x")
    laws.check_no_orphans(patient.table)


def test_every_law_has_its_damage() -> None:
    assert {law for law, _, _ in DAMAGE.values()} == set(LAWS)
    assert {name for name in laws.__all__ if name.startswith("check_")} == {
        *(
            f"check_{name.replace(' ', '_')}"
            for name in LAWS
            if name not in ("unique", "unique in the table", "orphans")
        ),
        "check_unique_keys",
        "check_no_orphans",
        "check_invariants",
    }


@pytest.mark.parametrize(
    "damage", [name for name, (law, _, _) in DAMAGE.items() if law not in ("orphans", "partitions")]
)
def test_all_laws_together_see_it_too(damage: str) -> None:
    law, hurt, _ = DAMAGE[damage]
    patient = Patient()
    hurt(patient)
    with pytest.raises(AssertionError):
        laws.check_invariants(patient.table, global_keys=law == "unique in the table")


def test_an_empty_table_and_a_replaced_one_are_lawful() -> None:
    table = lakefmt.create_table("memory://laws-empty", data=rows("a"), record_key="id", partition_by="city")
    for law in LAWS.values():
        law(table)
    table.upsert(rows("a", "b"))
    table.insert_overwrite(rows("a"))
    table.delete(["a"])
    table.upsert(rows("a"))
    for law in LAWS.values():
        law(table)


def test_what_an_earlier_view_found_lawful_is_not_read_again() -> None:
    patient = Patient()
    first = laws.View.of(patient.table)
    laws.check_invariants(first)
    patient.set_column("_hoodie_file_name", "x")
    laws.check_meta_columns(laws.View.of(patient.table, first))
    with pytest.raises(AssertionError, match="_hoodie_file_name"):
        laws.check_meta_columns(laws.View.of(patient.table))


# --- while a write is under way -------------------------------------------------------------------------------------


def watched(patient: Patient) -> tuple[laws.Watched, Table]:
    found = laws.Watched(lambda: sorted(patient.table.read(["id", "v"]).to_pylist(), key=repr))
    return found, Table(TableClient(WatchStore(patient.store, found.look), {"lakefmt.write.threads": 1}))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.upsert(rows("a", "e")),
        lambda t: t.insert(rows("e")),
        lambda t: t.bulk_insert(rows("e")),
        lambda t: t.delete(["a"]),
        lambda t: t.update("id = 'b'", {"v": 9}),
        lambda t: t.insert_overwrite(rows("e")),
        lambda t: t.insert_overwrite_table(rows("e")),
        lambda t: t.delete_partitions(["city=oslo"]),
    ],
    ids=["upsert", "insert", "bulk_insert", "delete", "update", "overwrite", "overwrite_table", "delete_partitions"],
)
def test_nothing_shows_before_the_commit_completes(version: int, write: Callable[[Table], object]) -> None:
    found, table = watched(Patient(version))
    write(table)
    found.check()


def test_a_write_that_shows_early_is_seen() -> None:
    patient = Patient()
    found, table = watched(patient)
    client = table.client
    real = client.store.put_if_absent

    def hasty(name: str, data: bytes, **how: bool) -> object:
        if name.endswith(".inflight"):
            client.store.put(patient.newest, patient.store.read(patient.older))  # an older slice's rows show up
        return real(name, data, **how)

    client.store.put_if_absent = hasty  # type: ignore[method-assign, assignment]
    table.upsert(rows("e"))
    with pytest.raises(AssertionError, match=r"after effect \d+, put "):
        found.check()


def test_a_write_that_never_completes_is_seen() -> None:
    found, table = watched(Patient())
    table.client.store.put("city=sf/something", b"")
    with pytest.raises(AssertionError, match="0 effects completed"):
        found.check()
