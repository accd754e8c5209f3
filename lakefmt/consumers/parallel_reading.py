"""Read lists of parts side by side, each list in its order, with a bounded number of batches ahead (effects: threads)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from lakefmt.consumers.steps import StreamPart, StreamStep
from lakefmt.data_classes import dataclass

__all__ = ["ReadBatch", "read_lanes"]

Lane: TypeAlias = Sequence[tuple[StreamStep, StreamPart]]
Read: TypeAlias = Callable[[StreamStep, StreamPart], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Rows of a part.

    Attributes:
        step: the commit.
        part: its part.
        rows: some of its rows; None: it has none that were asked for.
        is_last: nothing of the part is left.
    """

    step: StreamStep
    part: StreamPart
    rows: pa.RecordBatch | None
    is_last: bool


def read_lanes(lanes: Sequence[Lane], read: Read, *, threads: int, ahead: int) -> Iterator[ReadBatch]:
    """Yield the batches of all lists; those of one list come in its order.

    Args:
        lanes: lists of parts.
        read: reads one part.
        threads: how many lists are read side by side.
        ahead: the most batches that are read and not yet taken; 0: read in the calling thread.

    Example:
        >>> step, part = StreamStep(None), StreamPart("k", "", "f-0")
        >>> rows = pa.record_batch({"a": [1]})
        >>> [batch.is_last for batch in read_lanes([[(step, part)]], lambda s, p: iter([rows, rows]), threads=2, ahead=1)]
        [False, True]
    """
    if ahead == 0:
        for lane in lanes:
            for step, part in lane:
                yield from _of_part(step, part, read)
        return
    buffer = _Buffer(ahead, lanes)
    count = max(1, min(threads, len(lanes)))
    workers = [
        threading.Thread(target=buffer.fill, args=(read,), name="lakefmt-stream", daemon=True) for _ in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        while (batch := buffer.take()) is not None:
            yield batch
    finally:
        buffer.stop()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


def _of_part(step: StreamStep, part: StreamPart, read: Read) -> Iterator[ReadBatch]:
    """Yield the batches of a part; the last one says so."""
    waiting: pa.RecordBatch | None = None
    for rows in read(step, part):
        if waiting is not None:
            yield ReadBatch(step, part, waiting, False)
        waiting = rows
    yield ReadBatch(step, part, waiting, True)


class _Buffer:
    """Hands lists to threads and batches to the caller."""

    def __init__(self, ahead: int, lanes: Sequence[Lane]) -> None:
        self._ahead, self._lanes = ahead, deque(lanes)
        self._changed = threading.Condition()
        self._ready: deque[ReadBatch] = deque()
        self._left = len(self._lanes)
        self._failure: BaseException | None = None
        self._stopped = False

    def fill(self, read: Read) -> None:
        """Read lists until none is left; what fails is raised where batches are taken."""
        try:
            while (lane := self._next_lane()) is not None:
                for step, part in lane:
                    for batch in _of_part(step, part, read):
                        if not self._put(batch):
                            return
                self._ended()
        except BaseException as error:  # noqa: BLE001 - raised by take()
            with self._changed:
                self._failure = self._failure or error
                self._stopped = True
                self._changed.notify_all()

    def _next_lane(self) -> Lane | None:
        with self._changed:
            return None if self._stopped or not self._lanes else self._lanes.popleft()

    def _put(self, batch: ReadBatch) -> bool:
        with self._changed:
            while len(self._ready) >= self._ahead and not self._stopped:
                self._changed.wait()
            if not self._stopped:
                self._ready.append(batch)
                self._changed.notify_all()
            return not self._stopped

    def _ended(self) -> None:
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def take(self) -> ReadBatch | None:
        """Return the next batch; None: nothing is left."""
        with self._changed:
            while not self._ready and self._left and self._failure is None:
                self._changed.wait()
            if self._ready:
                batch = self._ready.popleft()
                self._changed.notify_all()
                return batch
            if self._failure is not None:
                raise self._failure
            return None

    def stop(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
