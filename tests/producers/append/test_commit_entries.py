"""Entries of streams, applications and the watermark live on from commit to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.timeline.commit import (
    RETENTION_MS,
    WATERMARK,
    CommitMetadata,
    combine_entries,
    decode_entry,
    encode_entry,
    stream_entry_name,
    txn_entry_name,
    watermark_of,
)
from lakefmt._core.transactions.instant import find_entries
from lakefmt._core.values import WriteOperation
from lakefmt._core.write.context import AlreadyDone, EntryView
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import CorruptFile, InvalidInputError

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])

TEXTS = st.dictionaries(
    st.sampled_from([txn_entry_name("a"), txn_entry_name("b"), stream_entry_name("s")]),
    st.integers(0, 3 * RETENTION_MS).map(lambda at: encode_entry({"number": 1}, at)),
)
MARKS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}), st.integers(-(2**62), 2**62).map(lambda mark: {WATERMARK: str(mark)})
)


@given(TEXTS, MARKS, TEXTS, MARKS, st.integers(0, 4 * RETENTION_MS))
def test_a_commit_has_its_own_entries_and_the_recent_ones_before_it(
    stored: dict[str, str], mark: dict[str, str], new: dict[str, str], new_mark: dict[str, str], at: int
) -> None:
    merged = combine_entries({**stored, **mark}, {**new, **new_mark}, at)
    for name, text in new.items():
        assert merged[name] == text
    for name, text in stored.items():
        if name not in new:
            fields = decode_entry(stored, name)
            assert fields is not None
            assert (name in merged) == (fields["at"] + RETENTION_MS >= at)
            assert merged.get(name, text) == text
    marks = [int(each[WATERMARK]) for each in (mark, new_mark) if each]
    assert watermark_of(merged) == (max(marks) if marks else None)
    assert merged.keys() <= stored.keys() | new.keys() | {WATERMARK}


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"at":"1"}', '{"at":true}', "[" * 100_000])
def test_a_damaged_entry_is_refused_by_who_asks_and_stays_for_the_others(text: str) -> None:
    stored = {txn_entry_name("a"): text}
    with pytest.raises(CorruptFile, match=r"lakefmt\.txn\.a"):
        decode_entry(stored, txn_entry_name("a"))
    assert combine_entries(stored, {}, now_ms=10 * RETENTION_MS) == stored


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129, "ä b", "a\n", 5, None])
def test_names_of_applications_are_checked(name: object) -> None:
    with pytest.raises(InvalidInputError, match="1 to 128"):
        txn_entry_name(name)  # type: ignore[arg-type]


def make(url: str, **more: object) -> lakefmt.Table:
    return lakefmt.create_table(url, schema=SCHEMA, record_key="id", **more)  # type: ignore[arg-type]


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": list(range(len(ids)))}, schema=SCHEMA)


class Said:
    """What the commit of a test says."""

    def __init__(self, entries: Mapping[str, str] | AlreadyDone) -> None:
        self.entries = entries
        self.views: list[EntryView] = []

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        self.views.append(view)
        return self.entries


def write(table: lakefmt.Table, data: pa.Table, said: object) -> lakefmt.CommitResult:
    return table._write(WriteOperation.UPSERT, data, {}, entries=said)  # type: ignore[arg-type]


def stored(table: lakefmt.Table) -> dict[str, str]:
    return table.client.at(table.client.load()).newest_entries()


@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_commit_and_table_service_repeats_the_entries(tmp_path: object, version: int) -> None:
    options = {"lakefmt.write.services.background": "false"}
    table = make(f"{tmp_path}/t", table_type="mor", table_version=version, options=options)
    name = stream_entry_name("w")
    said = Said({name: encode_entry({"epoch": 1, "sequence": 7, "offset": None}, 2**60), WATERMARK: "5"})
    write(table, rows("a"), said)
    assert said.views[0].entries == {}
    before = stored(table)
    assert before[name]
    assert before[WATERMARK] == "5"
    table.upsert(rows("a", "b"))
    assert stored(table) == before
    table.insert(rows("c"))
    assert stored(table) == before
    table.compact()
    latest = table.client.load().timeline.latest_commit
    assert latest is not None
    assert stored(table) == before
    table.cluster()
    assert stored(table) == before
    table.delete(["a"])
    table.insert_overwrite_table(rows("z"))
    assert stored(table) == before
    write(table, rows("z"), Said({WATERMARK: "4"}))
    assert stored(table) == before, "the watermark never falls"


def test_a_commit_without_rows_keeps_its_entries() -> None:
    table = make("memory://entries-empty")
    result = write(table, rows(), Said({WATERMARK: "9"}))
    assert result.instant is not None
    assert stored(table) == {WATERMARK: "9"}
    assert table.read().num_rows == 0


def test_a_commit_of_another_engine_hides_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("memory://entries-foreign")
    write(table, rows("a"), Said({WATERMARK: "9"}))
    earlier = stored(table)
    forget = TableAt.commit_metadata

    # A commit of Spark says nothing of lakefmt: the same as one whose entries are left out.
    state = table.client.load()
    latest = state.timeline.latest_commit
    assert latest is not None
    table.upsert(rows("b"))
    state = table.client.load()
    newest = state.timeline.latest_commit
    assert newest is not None

    def without(asked: TableAt, instant: object) -> object:
        metadata = forget(asked, instant)  # type: ignore[arg-type]
        if instant == newest:
            metadata.extra_metadata.pop(WATERMARK, None)  # type: ignore[attr-defined]
        return metadata

    monkeypatch.setattr(TableAt, "commit_metadata", without)
    assert table.client.at(state).newest_entries() == {}
    assert find_entries(table.client.at(state)) == earlier
    write(table, rows("c"), Said({}))
    assert stored(table) == earlier


def test_a_write_that_was_done_is_skipped_and_leaves_nothing() -> None:
    table = make("memory://entries-skip")
    first = table.upsert(rows("a"))
    files = {each.name for each in table.client.store.list("", recursive=True) if each.name.endswith(".parquet")}
    assert first.instant is not None
    result = write(table, rows("b"), Said(AlreadyDone(first.instant)))
    assert result.skipped
    assert result.instant == first.instant
    assert result.completion_time == first.completion_time
    assert "skipped" in str(result)
    assert table.read()["id"].to_pylist() == ["a"]
    now = {each.name for each in table.client.store.list("", recursive=True)}
    assert {name for name in now if name.endswith(".parquet")} == files
    assert not any("heartbeat" in name or ".temp" in name for name in now)
    assert not table.client.load().timeline.pending


def test_a_hook_that_refuses_changes_nothing() -> None:
    table = make("memory://entries-refuse")
    table.upsert(rows("a"))

    def refuse(view: EntryView) -> Mapping[str, str]:
        raise InvalidInputError("fenced")

    with pytest.raises(InvalidInputError, match="fenced"):
        write(table, rows("b"), refuse)
    assert table.read()["id"].to_pylist() == ["a"]
    assert not table.client.load().timeline.pending


def test_two_writers_at_once_lose_no_entry(tmp_path: object) -> None:
    options = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    table = make(f"{tmp_path}/t", properties={})
    ready = threading.Barrier(4)

    def work(name: str, mark: int) -> None:
        own = lakefmt.open_table(f"{tmp_path}/t", options=options)
        ready.wait()
        text = encode_entry({"number": mark}, 2**60)
        write(own, rows(name), Said({txn_entry_name(name): text, WATERMARK: str(mark)}))

    threads = [threading.Thread(target=work, args=(f"w{n}", n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = stored(table)
    assert {name for name in entries if name != WATERMARK} == {txn_entry_name(f"w{n}") for n in range(4)}
    assert entries[WATERMARK] == "3"


def while_another_commits(patch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another writer commit while the next write has its files and no commit yet."""
    write_files = WriteTransaction.write

    def slow(self: WriteTransaction, placed: Any) -> Any:
        written = write_files(self, placed)
        patch.setattr(WriteTransaction, "write", write_files)
        other()
        return written

    patch.setattr(WriteTransaction, "write", slow)


#: Each write has files of its own, so that no two conflict.
BESIDE = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.parquet.small.file.limit": 0,
    "lakefmt.durability": "none",
}


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("first", [stream_entry_name("w"), txn_entry_name("w"), txn_entry_name("other")])
def test_a_commit_that_began_earlier_and_ended_later_tells_its_entries(
    version: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In version 6 the newest commit is the one that began last."""
    table = make(f"memory://entries-slow-{version}-{first}", table_version=version, options=BESIDE)
    write(table, rows("a"), Said({first: encode_entry({"epoch": 1, "sequence": 1, "offset": 1, "number": 1}, 2**60)}))
    other = lakefmt.open_table(table.client.store.url, options=BESIDE)
    while_another_commits(monkeypatch, lambda: other.upsert(rows("b")))
    name = first.replace("other", "w")
    entry = encode_entry({"epoch": 1, "sequence": 2, "offset": 2, "number": 2}, 2**60)
    write(table, rows("c"), Said({name: entry}))
    assert stored(lakefmt.open_table(table.client.store.url))[name] == entry
    other.upsert(rows("d"))
    assert stored(other)[name] == entry
    assert sorted(table.read()["id"].to_pylist()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_stream_beside_a_faster_writer_has_each_row_once(
    version: int, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://entries-stream-{version}-{keyed}"
    how = {"record_key": "id"} if keyed else {}
    table = lakefmt.create_table(url, schema=SCHEMA, table_version=version, options=BESIDE, **how)  # type: ignore[arg-type]
    other = lakefmt.open_table(url, options=BESIDE)
    with table.open_stream(writer_id="w") as stream:
        for number in range(3):
            stream.write_arrow(rows(f"{number}"))
            stream.mark(number)
            if number == 2:
                while_another_commits(monkeypatch, lambda: other.insert(rows("beside")))
            stream.commit()
    with lakefmt.open_table(url, options=BESIDE).open_stream(writer_id="w") as stream:
        assert stream.last_committed is not None
        assert stream.last_committed.offset == 2
    assert sorted(table.read()["id"].to_pylist()) == ["0", "1", "2", "beside"]


def test_names_of_entries_cannot_be_set_by_callers() -> None:
    table = make("memory://entries-taken")
    for name in (WATERMARK, txn_entry_name("a"), stream_entry_name("s")):
        with pytest.raises(InvalidInputError, match="taken"):
            table.upsert(rows("a"), commit_metadata={name: "1"})


def test_entries_are_those_names_only() -> None:
    told = CommitMetadata(
        WriteOperation.INSERT, extra_metadata={"schema": "s", "lakefmt.keys": "k", "lakefmt.txn.a": "x"}
    )
    assert told.entries == {"lakefmt.txn.a": "x"}
