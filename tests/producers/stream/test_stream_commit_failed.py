"""An error of a stream says whether its rows have to be sent again, and a commit that cannot work is no secret (laws)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream import committing
from lakefmt._core.producers.stream.options import FlushMode
from lakefmt._core.producers.stream.stream import Stream
from lakefmt.errors import CommitFailed, LakefmtError, LockUnavailable, StorageError, UnsupportedFeature
from lakefmt.testing.virtual_time import VirtualTime
from tests.producers.stream.stream_kit import GateStore, is_segment, make, refusing, table_over

NO_RETRY: dict[str, Any] = {"request_failed_retry_enable": False, "flush_interval": 0}
EVERY_FLUSH = {
    **NO_RETRY,
    "commit_interval": 0,
    "flush_mode": FlushMode.AUTO_FLUSH_SYNC,
    "mutation_buffer_lines_num": 1,
}


class Commits:
    """Commits of segments fail while there is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        run = committing.SegmentCommit.run

        def failing(commit: committing.SegmentCommit) -> Any:
            if self.error is not None:
                raise self.error
            return run(commit)

        monkeypatch.setattr(committing.SegmentCommit, "run", failing)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


def awaited(call: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Stream], None]:
    """Return a call of the same stream by its face for programs that await."""

    def run(stream: Stream) -> None:
        from lakefmt._core.producers.stream.stream import AsyncStream

        async def main() -> None:
            face = AsyncStream(lambda: stream)
            face._stream = stream
            await call(face)

        asyncio.run(main())

    return run


#: Every call that may commit; each brings the row 1, or makes one durable that was brought before.
CALLS: dict[str, Callable[[Stream], object]] = {
    "insert": lambda stream: stream.insert({"v": 1}),
    "extend": lambda stream: stream.extend([{"v": 1}]),
    "extend, an iterator": lambda stream: stream.extend(iter([{"v": 1}])),
    "apply_rows": lambda stream: stream.apply_rows("insert", [{"v": 1}]),
    "apply_tracked": lambda stream: stream.apply_tracked("insert", {"v": 1}, "durable"),
    "write_arrow": lambda stream: stream.write_arrow(pa.table({"v": [1]})),
    "await insert": awaited(lambda stream: stream.insert({"v": 1})),
    "await write_arrow": awaited(lambda stream: stream.write_arrow(pa.table({"v": [1]}))),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fails", ["the flush", "the commit"])
def test_who_sends_again_what_an_error_says_is_not_durable_stores_each_row_once(
    commits: Commits, call: str, fails: str
) -> None:
    plain = make(keyed=False)
    store = refusing(plain, 1) if fails == "the flush" else plain
    commits.error = StorageError("the store did not answer") if fails == "the commit" else None
    stream = table_over(store, VirtualTime()).open_stream(**EVERY_FLUSH)
    for _ in range(3):
        try:
            CALLS[call](stream)
        except CommitFailed:
            break
        except LakefmtError:
            stream.reopen()
        else:
            break
    commits.error = None
    stream.close()
    assert table_over(plain).read()["v"].to_pylist() == [1]


@pytest.mark.parametrize(
    "call", [lambda stream: stream.flush(), lambda stream: stream.flush("committed"), Stream.commit, Stream.close]
)
def test_flush_commit_and_close_say_that_the_rows_are_durable(
    commits: Commits, call: Callable[[Stream], object]
) -> None:
    store = make(keyed=False)
    many = {**EVERY_FLUSH, "mutation_buffer_lines_num": 10}
    stream = table_over(store, VirtualTime()).open_stream(**many)
    stream.insert({"v": 1})
    commits.error = StorageError("the store did not answer")
    with pytest.raises(CommitFailed, match="do not send them again"):
        call(stream)
    assert not stream.failed_rows()
    commits.error = None
    stream.close()
    table_over(store).recover_streams()
    assert table_over(store).read()["v"].to_pylist() == [1]


def test_the_next_call_tells_of_a_commit_that_cannot_work_and_nothing_is_lost(commits: Commits) -> None:
    store, time = make(keyed=False), VirtualTime()
    stream = table_over(store, time).open_stream(**NO_RETRY, commit_interval=1_000)
    stream.insert({"v": 1})
    stream.flush()
    waiting = stream.apply_tracked("insert", {"v": 2})
    stream.flush()
    commits.error = UnsupportedFeature("no table of this kind")
    time.sleep(1.5)
    with pytest.raises(CommitFailed, match="no table of this kind"):
        stream.insert({"v": 3})
    assert stream.metrics()["rows_durable"] == 3, "the row of the call that tells is durable, too"
    assert stream.metrics()["commit_failures"] == 1
    assert "no table of this kind" in stream.metrics()["last_commit_error"]
    with pytest.raises(CommitFailed):
        waiting.result(timeout=0)
    stream.insert({"v": 4})  # told once for each attempt
    time.sleep(1.5)
    with pytest.raises(CommitFailed):
        stream.flush()
    commits.error = None
    stream.close()
    assert stream.metrics()["last_commit_error"] is None
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2, 3, 4]


def test_a_commit_that_fails_for_a_reason_that_passes_is_told_when_it_does_not_pass(commits: Commits) -> None:
    store, time = make(keyed=False), VirtualTime()
    stream = table_over(store, time).open_stream(**NO_RETRY, commit_interval=1_000)
    stream.insert({"v": 1})
    stream.flush()
    commits.error = LockUnavailable("held by another")
    time.sleep(1.1)
    stream.insert({"v": 2})
    time.sleep(1.1)
    stream.insert({"v": 3})
    time.sleep(1.1)
    with pytest.raises(CommitFailed, match="held by another"):
        stream.insert({"v": 4})
    commits.error = None
    stream.close()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2, 3, 4]


def test_a_stream_that_is_opened_beside_rows_that_cannot_be_committed_says_so(commits: Commits) -> None:
    store, late = make(keyed=False), VirtualTime()
    stream = table_over(store).open_stream(**NO_RETRY)
    stream.insert({"v": 1})
    commits.error = UnsupportedFeature("no table of this kind")
    with pytest.raises(CommitFailed):
        stream.close()
    late.now = 300_000_000.0
    with pytest.warns(RuntimeWarning, match="no table of this kind"):
        table_over(store, late).open_stream(**NO_RETRY).close()
    commits.error = None
    table_over(store, late).recover_streams()
    assert table_over(store).read()["v"].to_pylist() == [1]


@pytest.mark.parametrize("cancels", [True, False])
def test_a_row_whose_call_was_cancelled_is_never_applied_after_newer_rows(cancels: bool) -> None:
    """The call waits for a place while the store does not answer."""
    store = GateStore(make(), is_segment)
    small = {"mutation_buffer_lines_num": 1, "mutation_buffer_max_num": 1, "commit_interval": 3_600_000}

    async def main() -> None:
        async with table_over(store).open_stream_async(**small) as stream:
            await stream.upsert({"id": "a", "v": 1})
            await asyncio.to_thread(store.waiting.wait)
            late = asyncio.create_task(stream.upsert({"id": "a", "v": 2}))
            while not _waits(stream.stream, late):
                await asyncio.sleep(0)
            if cancels:
                late.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await late
            store.open.set()
            if not cancels:
                await late
            await stream.upsert({"id": "b", "v": 3})

    asyncio.run(main())
    values = {row["id"]: row["v"] for row in table_over(store).read().to_pylist()}
    assert values == {"a": 1 if cancels else 2, "b": 3}


def _waits(stream: Stream, call: asyncio.Task[None]) -> bool:
    """Return whether a call is on its way in a thread."""
    return not call.done() and any(thread.name.startswith("asyncio_") for thread in threading.enumerate())
