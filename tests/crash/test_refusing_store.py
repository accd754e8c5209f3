"""A store that refuses every effect from one on (full, not permitted) and then works again: the next write of the process stands."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TypeVar

import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError, StorageError
from lakefmt.testing.store_wrapper import Step, WrapperStore
from tests.crash.test_every_effect import VERBS
from tests.kit import SCHEMA, THOROUGH, rows

NUMBERS = itertools.count()
T = TypeVar("T")
OPTIONS: dict[str, object] = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
OTHERS: dict[str, object] = {**OPTIONS, "hoodie.write.lock.provider": "InProcessLockProvider"}


class RefusingStore(WrapperStore):
    """Refuses effects from the number `at` on, until `works`; `puts`: only those that take room."""

    def __init__(self, inner: ObjectStore, at: int, *, puts: bool) -> None:
        super().__init__(inner)
        self.begun, self.works = 0, False
        self._at, self._puts = at, puts

    def perform(self, step: Step[T]) -> T:
        """Perform an effect, or refuse it."""
        self.begun += 1
        if not self.works and self.begun >= self._at and not (self._puts and "delete" in step.kind):
            raise StorageError(f"no space left on device: {step.kind} {step.name}")
        return step.run()


def refused(name: str, version: int, kind: str, at: int, *, puts: bool) -> bool:
    """Run a verb on a store that refuses effects, then write again; False: it has no such effect."""
    verb = VERBS[name]
    url = f"memory://refusing-{next(NUMBERS)}"
    table = lakefmt.create_table(
        url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=kind,
        table_version=version,
        index=verb.index,
        options=OPTIONS,
    )
    for start in range(3):
        table.upsert(rows(start, start + 6, ts=1))
    verb.prepare(table)
    store = RefusingStore(MemoryStore(url.removeprefix("memory://")), at, puts=puts)
    process = Table(TableClient(store, OTHERS))
    with suppress(LakefmtError):
        verb.call(process)
    reached = store.begun >= at
    store.works = True
    process.upsert(rows(50, 52, ts=9))
    read = {row["id"]: row["ts"] for row in process.read().to_pylist()}
    assert read["k50"] == read["k51"] == 9, f"{name} {version} {kind} from effect {at} on"
    assert len(read) == process.read().num_rows
    process.upsert(rows(50, 52, ts=10))
    assert not [i for i in process.timeline.timeline.pending if i.action.value == "rollback"]
    return reached


USUAL = ["upsert", "delete_keys", "insert_overwrite", "rollback", "restore", "savepoint"]
PLAIN = [name for name, verb in VERBS.items() if not verb.captures]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN if THOROUGH else USUAL)
def test_the_next_write_of_the_process_stands(name: str) -> None:
    number = list(VERBS).index(name)
    kinds = [(kind, version) for kind in ("cow", "mor") for version in VERBS[name].versions]
    for kind, version in kinds if THOROUGH else [kinds[number % len(kinds)]]:
        for puts in (True, False) if THOROUGH else (number % 2 == 0,):
            asked = 0
            for asked in itertools.count(1):
                if not refused(name, version, kind, asked, puts=puts):
                    break
            assert asked > 1
