"""Small base files that are written one after the other, and put together where the store can do that (effects)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.storage.api import SupportsPutBatch
from lakefmt.write.bound_context import BoundContext
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.base_file import FileInProgress

__all__ = ["FileBundle"]


class FileBundle:
    """Writes some small files; a durable write waits for the disk once for all of them, not for each.

    Args:
        bound: the write.
    """

    def __init__(self, bound: BoundContext) -> None:
        self._bound = bound
        self._stack = ExitStack()
        store = bound.store
        self._batch = store.put_batch() if bound.durable and isinstance(store, SupportsPutBatch) else None
        self._closed: list[FileInProgress] = []
        self._statuses: list[WriteStatus] = []

    def __enter__(self) -> FileBundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def file(self, assignment: FileAssignment, bloom: BloomFilter | None = None) -> Iterator[FileInProgress]:
        """Give a file that takes its rows within this context.

        Args:
            assignment: the file.
            bloom: the filter of all its keys, where it has been made.

        Raises:
            StorageError: the store failed.
        """
        if self._batch is None:
            with ExitStack() as stack:
                file = FileInProgress(self._bound, assignment, stack, bloom)
                yield file
                self._statuses.append(file.finish())
            return
        file = FileInProgress(self._bound, assignment, self._stack, bloom)
        yield file
        file.close()
        self._batch.add(file.sink)
        self._closed.append(file)

    def put(self) -> list[WriteStatus]:
        """Give the files their names, and return what was written, in order.

        Raises:
            StorageError: the store failed, or does not say whether a file is there.
        """
        if self._batch is None:
            return self._statuses
        return [file.placed(outcome) for file, outcome in zip(self._closed, self._batch.put_if_absent(), strict=True)]
