"""What commits tell of their keys: never more than is true, so that no conflict is overlooked; and no file is opened for it."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.index.key_reader as index_files
import lakefmt._core.write.commit.transaction as conversation
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.parquet.base_file import java_order_key, key_range
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata, decode_commit, encode_commit
from lakefmt._core.values import TableVersion, WriteOperation, WriteStat
from lakefmt._core.write.commit.key_stats import (
    KEY_HASHES_ENTRY,
    KEY_RANGES_ENTRY,
    MOST_HASHES,
    KeySpan,
    hash_keys,
    key_hashes_of,
    key_ranges_of,
    key_stats_of,
    ranges_disjoint,
    sharing_hashes,
)
from lakefmt._core.write.context import WriteStatus
from lakefmt.errors import CommitConflict
from tests.concurrency.green_threads import MANY
from tests.example_counts import examples

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
OPTIONS: dict[str, object] = {**MANY, "hoodie.parquet.small.file.limit": 0}
TIME = "20260101000000000"
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(["\uff41", "\U00010000", "z\n"])


def status(name: str, keys: tuple[str, str] | None, inserts: int = 1) -> WriteStatus:
    return WriteStatus(TIME, WriteStat("f-0", "", name, num_inserts=inserts, prev_commit="1"), 1, keys=keys)


@given(st.lists(KEYS, min_size=1), st.lists(KEYS, min_size=1), st.sampled_from(TableVersion))
@example(["\U00020000"], ["\U00010000", "\U00020000", "\uff41"], TableVersion.EIGHT)  # Java's order is not UTF-8's
@settings(max_examples=examples(200))
def test_files_that_are_certainly_apart_have_no_key_in_common(mine, theirs, version):
    ends = key_range(pa.chunked_array([theirs]))
    said = CommitMetadata(WriteOperation.INSERT, extra_metadata=key_stats_of([status("a.parquet", ends)]))
    noted = key_ranges_of(decode_commit(encode_commit(said, version, replace=False), "c"))
    span = KeySpan.of([pa.array(mine, pa.string())])
    if ranges_disjoint(span, noted, status("a.parquet", None).stat):
        assert not set(mine) & set(theirs)
        assert max(map(java_order_key, mine)) < min(map(java_order_key, theirs)) or max(
            map(java_order_key, theirs)
        ) < min(map(java_order_key, mine))
    else:
        far = KeySpan.of([pa.array([max(theirs, key=java_order_key) + "0"])])
        assert not noted or ranges_disjoint(far, noted, status("a.parquet", None).stat)


@given(
    st.text(max_size=40)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=3), lambda x: st.lists(x) | st.dictionaries(KEYS, x)
    ).map(json.dumps)
)
def test_whatever_a_commit_says_is_understood_or_tells_nothing(text):
    noted = key_ranges_of(CommitMetadata(WriteOperation.INSERT, extra_metadata={KEY_RANGES_ENTRY: text}))
    for ends in noted.values():
        KeySpan(b"a", b"b").misses(ends)


def test_half_a_surrogate_pair_and_endless_nesting_tell_nothing():
    for text in (
        '{"f": ["\\ud800", "z"]}',
        "[" * 16_000,
        '{"f": ["a"]}',
        '{"f": ["a", 1]}',
        '["a", "b"]',
        "x" * 20_000,
    ):
        assert key_ranges_of(CommitMetadata(WriteOperation.INSERT, extra_metadata={KEY_RANGES_ENTRY: text})) == {}


def test_a_note_tells_of_all_files_with_new_rows_or_of_none():
    assert key_stats_of([]) == {}
    assert key_stats_of([status("a", ("a", "b")), status("b", None)]) == {}
    assert key_stats_of([status("a", ("a", "b")), status("b", None, inserts=0)])[KEY_RANGES_ENTRY] == '{"a":["a","b"]}'
    assert key_stats_of([status(str(n), ("a", "b")) for n in range(65)]) == {}
    assert key_stats_of([status("a", ("a", "b" * 20_000))]) == {}


@given(st.lists(st.lists(KEYS, min_size=1), min_size=1, max_size=5), st.lists(st.lists(KEYS), max_size=3))
@settings(max_examples=examples(200))
def test_files_whose_hashes_have_nothing_in_common_have_no_key_in_common(files, mine):
    told = [hash_keys(pa.chunked_array([keys], pa.string())) for keys in files]
    statuses = [
        replace(status(f"{n}", ("", "")), hashes=data, stat=replace(status(f"{n}", None).stat, num_writes=len(keys)))
        for n, (keys, data) in enumerate(zip(files, told, strict=True))
    ]
    stats = tuple(each.stat for each in statuses)
    said = CommitMetadata(WriteOperation.INSERT, stats, extra_metadata=key_stats_of(statuses))
    noted = key_hashes_of(decode_commit(encode_commit(said, TableVersion.EIGHT, replace=False), "c"))
    assert noted == {f"{n}": data for n, data in enumerate(told)}
    keys = [pa.array(part, pa.string()) for part in mine]
    wanted = {key for part in mine for key in part}
    # One hash in four thousand millions is shared by chance: not among these.
    assert sharing_hashes(keys, list(noted.values())) == [bool(wanted & set(file)) for file in files]


def test_what_hashes_cannot_tell_they_do_not_tell():
    stat = replace(status("f", None).stat, num_writes=2)
    two = base64.b64encode(hash_keys(pa.chunked_array([["a", "b"]]))).decode()
    for text in (
        f'{{"f":"{two[:-4]}"}}',  # cut
        f'{{"f":"{two}{two}"}}',  # of more rows than the file has
        f'{{"g":"{two}"}}',  # of a file that is not the commit's
        '{"f":"%%%%"}',
        '{"f":"\u00e9"}',
        '{"f":["x"]}',
        '{"f":""}',
        "[" * 40_000,
        f'{{"f":"{two}"}}' + " " * 60_000,
    ):
        assert (
            key_hashes_of(CommitMetadata(WriteOperation.INSERT, (stat,), extra_metadata={KEY_HASHES_ENTRY: text})) == {}
        ), text
    assert hash_keys(pa.chunked_array([["x" * (1 << 20) + "x"]])) is None
    assert sharing_hashes([pa.array(["x" * (1 << 20) + "x"])], [b"abcd"]) == [True]
    assert sharing_hashes([], [b"abcd"]) == [False]


def test_many_keys_are_told_by_their_range_alone():
    few, many = (replace(status("a", ("a", "b")), hashes=bytes(4 * n)) for n in (MOST_HASHES, MOST_HASHES + 1))
    assert KEY_HASHES_ENTRY in key_stats_of([few])
    assert KEY_HASHES_ENTRY not in key_stats_of([many])
    assert KEY_HASHES_ENTRY not in key_stats_of([few, replace(few, stat=status("b", None).stat)])
    assert set(key_stats_of([replace(few, hashes=None)])) == {KEY_RANGES_ENTRY}
    hundred = key_stats_of([replace(few, hashes=bytes(400))])
    assert len(hundred[KEY_HASHES_ENTRY]) < 600


# --- in a table -------------------------------------------------------------------------------------------------------


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": [*keys], "n": [1] * len(keys)}, schema=SCHEMA)


def make(**options: object) -> Table:
    store = MemoryStore(f"notes-{next(NUMBERS)}")
    return lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", options={**OPTIONS, **options})


@pytest.fixture
def footers(monkeypatch):
    """The files whose footers were read."""
    seen: list[str] = []
    real = index_files.KeyFiles.footer

    def footer(self, file):
        seen.append(file.name)
        return real(self, file)

    monkeypatch.setattr(index_files.KeyFiles, "footer", footer)
    return seen


@pytest.mark.parametrize(
    ("theirs", "read", "stands"),
    [(("x", "z"), 0, True), (("a", "c"), 0, True), (("k", "m"), 1, False), (("a", "b"), 0, True), (("b2",), 1, False)],
)
def test_only_files_that_may_have_one_of_the_keys_are_opened(theirs, read, stands, footers):
    table = make()
    context = lowlevel.begin_write(table)
    work = lowlevel.assign(context, rows("b2", "k"))
    statuses = [lowlevel.write_files(context, a, b) for a, b in work]
    other = Table(TableClient(table.client.store, OPTIONS))
    other.insert(rows(*theirs))
    footers.clear()
    if stands:
        lowlevel.commit(context, statuses)
    else:
        with pytest.raises(CommitConflict):
            lowlevel.commit(context, statuses)
    assert len(set(footers)) == read


def test_a_commit_without_a_note_is_looked_at_as_before(footers, monkeypatch):
    table = make()
    context = lowlevel.begin_write(table)
    statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, rows("k"))]
    monkeypatch.setattr(conversation, "key_stats_of", lambda statuses: {})  # as if another engine had written it
    other = Table(TableClient(table.client.store, OPTIONS))
    name = other.insert(rows("k", "z")).files[0].file_name
    note = {KEY_RANGES_ENTRY: json.dumps({name: ["a", "b"]})}
    other.insert(rows("a", "z"), commit_metadata=note)  # what a caller says under that name is not believed
    state = other.client.load()
    assert key_ranges_of(other.client.at(state).commit_metadata(state.timeline.commits[-1])) == {}
    footers.clear()
    with pytest.raises(CommitConflict):
        lowlevel.commit(context, statuses)
    assert len(set(footers)) == 2


def test_a_single_writer_leaves_no_note_and_an_adopted_file_tells_its_keys():
    alone = make(**{"hoodie.write.concurrency.mode": "single_writer"})
    alone.insert(rows("a"), commit_metadata={KEY_RANGES_ENTRY: "{}"})
    state = alone.client.load()
    assert KEY_RANGES_ENTRY not in alone.client.at(state).commit_metadata(state.timeline.commits[-1]).extra_metadata
    table = make()
    context = lowlevel.begin_write(table)
    ((assignment, batches),) = lowlevel.assign(context, rows("c", "a", "b"))
    first, second = (lowlevel.write_files(context, assignment, batches) for _ in range(2))
    assert second.adopted
    assert first.keys == second.keys == ("a", "c")
    lowlevel.commit(context, [second])
    state = table.client.load()
    noted = key_ranges_of(table.client.at(state).commit_metadata(state.timeline.commits[-1]))
    assert noted == {first.stat.file_name: ("a", "c")}


def stands_beside(mine, theirs, told):
    """Return whether a write stands beside rivals that tell of their keys, or do not."""
    table = make()
    context = lowlevel.begin_write(table)
    statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, rows(*mine))]
    other = Table(TableClient(table.client.store, OPTIONS))
    with pytest.MonkeyPatch.context() as patch:
        if not told:
            patch.setattr(conversation, "key_stats_of", lambda statuses: {})
        for verb, keys in theirs:
            getattr(other, verb)(rows(*keys))
    try:
        lowlevel.commit(context, statuses)
    except CommitConflict as conflict:
        lowlevel.abort(context)
        return other.client.load().timeline.commits.index(
            next(i for i in other.client.load().timeline.commits if i.time == conflict.other_instant)
        )
    return None


SOME = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=3, unique=True)


@given(SOME, st.lists(st.tuples(st.sampled_from(["insert", "upsert", "bulk_insert"]), SOME), min_size=1, max_size=3))
@settings(max_examples=examples(25), deadline=None)
def test_a_write_stands_with_notes_where_it_stands_without(mine, theirs):
    assert stands_beside(mine, theirs, told=True) == stands_beside(mine, theirs, told=False)


def test_hashes_that_a_caller_tells_are_not_believed():
    table = make()
    table.insert(rows("k"), commit_metadata={KEY_HASHES_ENTRY: "{}"})
    alone = make(**{"hoodie.write.concurrency.mode": "single_writer"})
    told = alone.insert(rows("k"), commit_metadata={KEY_HASHES_ENTRY: "{}", "mine": "x"})
    state = alone.client.load()
    said = alone.client.at(state).commit_metadata(state.timeline.commits[-1]).extra_metadata
    assert (KEY_HASHES_ENTRY in said, said["mine"], told.num_inserts) == (False, "x", 1)
    state = table.client.load()
    noted = key_hashes_of(table.client.at(state).commit_metadata(state.timeline.commits[-1]))
    assert list(noted.values()) == [hash_keys(pa.chunked_array([["k"]]))]
