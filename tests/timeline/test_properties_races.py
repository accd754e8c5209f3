"""Table properties are read beside an update by Hudi, which removes the file, writes it anew, and has a backup meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from lakefmt._core.formats.properties import CHECKSUM_KEY, encode_properties, table_checksum
from lakefmt._core.storage import MemoryStore
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.store import BACKUP, PROPERTIES, load_properties
from lakefmt.errors import CorruptFile, TableNotFound
from lakefmt.testing.store_wrapper import WrapperStore

T = TypeVar("T")


def content(**more: str) -> bytes:
    properties = {"hoodie.table.name": "t", CHECKSUM_KEY: table_checksum(None, "t"), **more}
    return encode_properties(properties, ["properties"])


OLD, NEW = content(), content(new="yes")
#: What an update of Hudi leaves behind each of its steps: the file and its backup.
STEPS: list[tuple[bytes | None, bytes | None]] = [
    (OLD, None),
    (OLD, OLD),
    (None, OLD),
    (b"", OLD),
    (NEW[:-9], OLD),
    (NEW, OLD),
    (NEW, None),
]


class UpdatedMeanwhile(WrapperStore):
    """Goes on with an update before every read: by the steps that it is given."""

    def __init__(self, inner: ObjectStore, steps: Iterator[int]) -> None:
        super().__init__(inner)
        self.steps = steps

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        if (step := next(self.steps, None)) is not None:
            for path, data in zip((PROPERTIES, BACKUP), STEPS[step], strict=True):
                self.inner.delete([path])
                if data is not None:
                    self.inner.put(path, data)
        return run()


@pytest.mark.parametrize("begun", range(len(STEPS)))
@pytest.mark.parametrize("ahead", range(len(STEPS)))
def test_a_read_beside_an_update_finds_the_old_or_the_new_properties(begun: int, ahead: int) -> None:
    last = len(STEPS) - 1
    steps = [min(begun + ahead * number, last) for number in range(4)]
    found = load_properties(UpdatedMeanwhile(MemoryStore(), iter(steps)))
    assert found.get("new") in (None, "yes")


def test_what_is_missing_or_damaged_for_good_is_said() -> None:
    store = MemoryStore()
    with pytest.raises(TableNotFound):
        load_properties(store)
    store.put(PROPERTIES, OLD[:-9])
    with pytest.raises(CorruptFile) as raised:
        load_properties(store)
    assert str(raised.value).count("incomplete") == 1
