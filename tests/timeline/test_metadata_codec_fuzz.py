"""Damaged timeline bodies: cut anywhere or with bytes flipped, they are an error of the house or a value, cheaply."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from lakefmt._core.timeline.commit import CommitMetadata, decode_commit
from lakefmt._core.timeline.instant import Action, State
from lakefmt._core.timeline.metadata_codec import BodyKind, body_kind, decode_body
from lakefmt.errors import CorruptFile, FormatError, UnsupportedError

VECTORS = Path(__file__).resolve().parents[1] / "data" / "timeline"
COMMITS = (BodyKind.COMMIT, BodyKind.REPLACE_COMMIT)
FILES = sorted(path.name for path in VECTORS.iterdir())


def load(name):
    _, _, action, state = name.rsplit(".", 1)[0].split("-")[:4]
    return body_kind(Action(action), State(state)), (VECTORS / name).read_bytes()


def decode(kind, data):
    """Read a body the way the library does; returns None for an error of the house."""
    try:
        record = decode_body(kind, data, what="f")
        return decode_commit(data, "f") if kind in COMMITS else record
    except (FormatError, UnsupportedError):
        return None


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_a_corrupt_file(name):
    kind, data = load(name)
    for end in range(1, len(data.rstrip())):
        with pytest.raises(CorruptFile):
            decode_body(kind, data[:end])


@pytest.mark.parametrize("name", FILES)
def test_flipped_bytes_are_a_value_or_an_error(name):
    kind, data = load(name)
    chance = random.Random(name)
    # The schema in the header is half of a file: let as many bytes of the record be hit as of the schema.
    spans = [(0, len(data)), (max(data.rfind(data[-16:], 0, -16), 0), len(data))]
    tracemalloc.start()
    try:
        for turn in range(60):
            damaged = bytearray(data)
            for _ in range(chance.choice((1, 1, 1, 3, 9))):
                damaged[chance.randrange(*spans[turn % 2])] = chance.choice(
                    (0, 1, 2, 127, 128, 255, chance.randrange(256))
                )
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            found = decode(kind, bytes(damaged))
            assert tracemalloc.get_traced_memory()[1] - before <= 4 * len(data) + 1024 * 1024
            assert found is None or isinstance(found, dict | CommitMetadata)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".avro")])
def test_bytes_put_in_or_taken_out_are_a_value_or_an_error(name):
    kind, data = load(name)
    chance = random.Random(name)
    for _ in range(30):
        at = chance.randrange(len(data))
        longer = data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
        shorter = data[:at] + data[at + chance.randrange(1, 9) :]
        for damaged in (longer, shorter):
            found = decode(kind, damaged)
            assert found is None or isinstance(found, dict | CommitMetadata)
