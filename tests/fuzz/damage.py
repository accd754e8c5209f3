"""Damage as values: what can happen to stored bytes. Everything is made from numbers, so a failure can be made again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from tests.example_counts import in_turn

#: Bytes at each end of a file where every offset is tried; of the rest a fixed sample is.
EDGE = 512
SAMPLE = 96
#: Bytes at the beginning of which no run leaves one out.
HEADER = 64

#: What a length, a count or an offset becomes in the formats we read: numbers of Avro (zigzag) and Thrift (plain or
#: zigzag), of Java (big-endian) and of Parquet (little-endian), and plain noise.
HUGE = {
    "zigzag 2^31-1": b"\xfe\xff\xff\xff\x0f",
    "zigzag 2^62": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    "zigzag 2^20": b"\x80\x80\x80\x01",
    "zigzag -2^31": b"\xff\xff\xff\xff\x0f",
    "number without end": b"\xff" * 11,
    "int 2^31-1": b"\x7f\xff\xff\xff",
    "int 2^24": b"\x01\x00\x00\x00",
    "int -1": b"\xff\xff\xff\xff",
    "little-endian 2^31-1": b"\xff\xff\xff\x7f",
    "digits": b"9999999999999999999999",
}


def effort() -> int:
    """Return how many times the usual number of cases the profile asks for: 1, or 10 when it is thorough."""
    return max(1, settings.default.max_examples // 60)  # type: ignore[union-attr]


def places(size: int, edge: int = EDGE, sample: int = SAMPLE) -> list[int]:
    """Return offsets below `size`: all of a small file, both edges and a fixed sample of a large one."""
    if size <= 2 * edge + sample:
        return list(range(size))
    inner = random.Random(size).sample(range(edge, size - edge), sample)
    return sorted({*range(edge), *inner, *range(size - edge, size)})


def places_of_run(size: int, edge: int = EDGE, sample: int = SAMPLE) -> list[int]:
    """Return `places`; in a usual run those of the first header, and a third of the others, another third tomorrow."""
    every = places(size, edge, sample)
    return every[:HEADER] + in_turn(every[HEADER:], 3)


def truncations(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the file cut short."""
    for end in places_of_run(len(data), sample=SAMPLE * effort()):
        yield f"cut to {end} bytes", data[:end]


def inflations(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the file with a huge number over, or in front of, what stands somewhere."""
    names = list(HUGE)
    halves = [names[half::2] for half in (0, 1)] if effort() == 1 else [names, names]
    for turn, at in enumerate(places_of_run(len(data), 24 * effort(), 24 * effort())):
        # A header, and a small file, gets every number, in a usual run one half of them and its neighbours the other one;
        # elsewhere a place gets one, and its neighbours get others.
        is_dense = len(data) <= (128 if effort() == 1 else 256) or at < 24 or at >= len(data) - 8
        over = halves[turn % 2] if is_dense else [names[turn % len(names)]]
        for name in over:
            yield f"{name} in place of byte {at}", data[:at] + HUGE[name] + data[at + len(HUGE[name]) :]
        name = names[(turn * 7 + 3) % len(names)]
        yield f"{name} put in at {at}", data[:at] + HUGE[name] + data[at + 1 :]


@dataclass(frozen=True)
class Edit:
    """One change: `at` counts from the end when it is negative, and goes round when it is too large."""

    kind: str
    at: int
    value: int

    def apply(self, data: bytearray) -> None:
        """Change `data`."""
        if not data:
            data.append(self.value)
            return
        at = self.at % len(data)
        if self.kind == "byte":
            data[at] = self.value
        elif self.kind == "bit":
            data[at] ^= 1 << self.value % 8
        elif self.kind == "ones":
            data[at:at] = b"\xff" * (1 + self.value % 16)
        elif self.kind == "gap":
            del data[at : at + 1 + self.value % 16]
        else:
            huge = HUGE[list(HUGE)[self.value % len(HUGE)]]
            data[at : at + len(huge)] = huge


KINDS = ("byte", "bit", "ones", "gap", "huge")
#: One to eight changes. Ends matter more than middles: headers stand in front, footers and values behind.
edits = st.lists(
    st.builds(Edit, st.sampled_from(KINDS), st.integers(-600, 600) | st.integers(0, 1 << 20), st.integers(0, 255)),
    min_size=1,
    max_size=8,
)


def damaged(data: bytes, changes: list[Edit]) -> bytes:
    """Return `data` changed."""
    changed = bytearray(data)
    for one in changes:
        one.apply(changed)
    return bytes(changed)


def random_edits(number: int) -> list[Edit]:
    """Return case `number` of an endless row of damages."""
    chance = random.Random(number)
    count = chance.choice((1, 1, 1, 2, 3, 8))
    return [
        Edit(
            chance.choice(KINDS),
            chance.choice((chance.randrange(-600, 600), chance.randrange(1 << 20))),
            chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256))),
        )
        for _ in range(count)
    ]
