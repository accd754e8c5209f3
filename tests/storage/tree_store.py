"""An object store in memory that lists trees with one request, as S3 does, and counts what it is asked for."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from lakefmt._core.storage.api import Capabilities, ObjectInfo, ObjectStore, SupportsVersions
from lakefmt.testing.store_wrapper import Step, WrapperStore

T = TypeVar("T")

_ANSWER_HOLDS = 1000
_MOST_BYTES = 1 << 30


class TreeStore(WrapperStore):
    """Wraps another store, which keeps versions."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests: builtins.list[str] = []
        self._lock = threading.Lock()

    def _count(self, kind: str, name: str) -> None:
        with self._lock:
            self.requests.append(f"{kind} {name}")

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, low_latency=False)

    def perform(self, step: Step[T]) -> T:
        self._count(step.kind, step.name)
        return step.run()

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        self._count(kind, name)
        return run()

    def delete(self, names: Iterable[str]) -> None:
        wanted = [*names]
        self._count("delete", " ".join(wanted))
        self.inner.delete(wanted)

    def list_level(self, prefix: str) -> tuple[builtins.list[ObjectInfo], builtins.list[str]]:
        return self.look(
            "list",
            prefix,
            lambda: ([*self.inner.list(prefix, recursive=False)], self.inner.list_directories(prefix)),
        )

    def list_tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        return self.look("tree", prefix, lambda: self._tree(prefix))

    def _tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        listed = [replace(info, mark=self.mark_of(info.name)) for info in self.inner.list(prefix)]
        return listed if len(listed) <= _ANSWER_HOLDS else None

    def mark_of(self, name: str) -> str:
        assert isinstance(self.inner, SupportsVersions)
        version = self.inner.read_version(name, _MOST_BYTES)
        return "" if version is None else version.mark


class LargeTreeStore(TreeStore):
    """The same of a table whose data files are too many for one request; what is below a directory is listed with one."""

    def _tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        return super()._tree(prefix) if prefix else None
