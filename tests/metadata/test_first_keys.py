"""Keys of a new record index come into its file groups whole, whether they waited in memory or in a temporary file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.metadata.layout import escape_partition, file_group_numbers
from lakefmt._core.metadata.records import RecordFormat, RecordLocation, decode_record
from lakefmt._core.metadata.updates import FirstKeys
from lakefmt._core.values import TableVersion
from lakefmt.errors import StorageError

FORM = RecordFormat.of_new_table(TableVersion.NINE)
FILE_ID = "68aaee55-008d-4f10-a3a4-{:012d}-0"
PARTS = st.lists(
    st.tuples(st.sampled_from(["p", "a/b"]), st.lists(st.text(max_size=6), max_size=20)), min_size=1, max_size=6
)


def place(number: int, partition: str) -> RecordLocation:
    return RecordLocation(partition, FILE_ID.format(number), 1772922274124 + number)


@given(PARTS, st.booleans(), st.sampled_from([0, 200, 1 << 20]), st.integers(1, 5))
def test_every_key_comes_to_its_file_group_with_its_place(
    parts: list[tuple[str, list[str]]], partitioned: bool, held: int, count: int
) -> None:
    first = FirstKeys(FORM, partitioned=partitioned, held_bytes=held)
    expected = []
    runs = sorted({escape_partition(path) for path, _ in parts}) if partitioned else [None]
    groups = {run: [f"{run}-{number}" for number in range(count)] for run in runs}
    for number, (path, keys) in enumerate(parts):
        texts = pa.array(keys, pa.string())
        first.add(place(number, path), texts)
        ids = groups[escape_partition(path) if partitioned else None]
        chosen = [ids[one] for one in file_group_numbers(texts, count).tolist()]
        expected += [(file_id, key, place(number, path)) for file_id, key in zip(chosen, keys, strict=True)]
    assert len(first) == len(expected)
    found = [
        (file_id, key.decode(), decode_record(value, FORM.schema).location)
        for file_id, keys, values in first.by_file_group(groups)
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert len({file_id for file_id, *_ in found}) <= len(runs) * count


def test_a_temporary_directory_that_is_full_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(StorageError):
        FirstKeys(FORM, partitioned=False, held_bytes=0).add(place(0, "p"), pa.array(["a"]))
