"""Log files that arrive in pieces: real ones, torn ones, damaged ones."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.log_blocks import (
    MAGIC,
    BlockKind,
    Corrupt,
    HeaderKey,
    LogBlockReader,
    Torn,
    WholeBlock,
    encode_block,
    scan_blocks,
)
from lakefmt.errors import InvalidInputError, UnsupportedFeature

LOGS = sorted((Path(__file__).parents[1] / "data/formats/log").glob("*.log"))


def read(data: bytes, step: int = 1 << 20) -> list[WholeBlock | Corrupt | Torn]:
    reader, found = LogBlockReader("a.log"), []
    for at in range(0, len(data), step):
        reader.feed(memoryview(data)[at : at + step])
        found += reader.take()
    return found + list(reader.finish())


def start_of(part: WholeBlock | Corrupt | Torn) -> int:
    return part.block.start if isinstance(part, WholeBlock) else part.start


def end_of(part: WholeBlock | Corrupt | Torn) -> int:
    return part.block.end if isinstance(part, WholeBlock) else part.end


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_real_files_are_read_and_packed_to_the_same_bytes(path, step):
    data = path.read_bytes()
    found = read(data, step)
    assert all(isinstance(part, WholeBlock) for part in found)
    assert (
        b"".join(encode_block(part.kind, part.block.header, part.content, footer=part.footer) for part in found) == data
    )
    by_ranges = list(scan_blocks(lambda at, count: data[at : at + count], len(data), path.name))
    assert [part.block for part in found] == by_ranges


def test_the_real_files_are_of_every_kind():
    kinds = {part.kind for path in LOGS for part in read(path.read_bytes())}
    assert kinds == {kind for kind in BlockKind if kind is not BlockKind.CORRUPT}


KINDS = st.sampled_from([kind for kind in BlockKind if kind is not BlockKind.CORRUPT])
HEADERS = st.dictionaries(st.sampled_from(list(HeaderKey)), st.text(max_size=20), max_size=3)
FOOTERS = st.dictionaries(st.just(0), st.text(max_size=5), max_size=1)
CONTENTS = st.binary(max_size=50) | st.just(MAGIC) | st.just(encode_block(BlockKind.DELETE, {}, b"x"))
BLOCKS = st.lists(st.tuples(KINDS, HEADERS, CONTENTS, FOOTERS), max_size=4)
STEPS = st.integers(1, 60)


def pack(blocks) -> list[bytes]:
    return [encode_block(kind, header, content, footer=footer) for kind, header, content, footer in blocks]


@given(BLOCKS, STEPS)
def test_what_was_packed_is_read(blocks, step):
    found = read(b"".join(pack(blocks)), step)
    assert [(part.kind, part.block.header, part.content, part.footer) for part in found] == blocks


@given(BLOCKS.filter(bool), STEPS, st.data())
def test_a_file_cut_short_ends_torn(blocks, step, data):
    packed = pack(blocks)
    whole = b"".join(packed)
    cut = data.draw(st.integers(len(whole) - len(packed[-1]) + 1, len(whole) - 1))
    found = read(whole[:cut], step)
    assert [part.content for part in found[: len(blocks) - 1]] == [content for _, _, content, _ in blocks[:-1]]
    rest = found[len(blocks) - 1 :]
    assert [start_of(part) for part in rest[1:]] == [end_of(part) for part in rest[:-1]]
    assert end_of(rest[-1]) == cut
    if MAGIC not in blocks[-1][2] and len(rest) == 1:
        assert rest == [Torn(len(whole) - len(packed[-1]), cut)]


@given(BLOCKS.filter(bool), STEPS, st.data())
def test_any_changed_byte_is_survived_however_it_arrives(blocks, step, data):
    whole = bytearray(b"".join(pack(blocks)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(whole), step)
    except UnsupportedFeature:
        with pytest.raises(UnsupportedFeature):
            read(bytes(whole))
        return
    assert found == read(bytes(whole))
    assert [start_of(part) for part in found[1:]] == [end_of(part) for part in found[:-1]]
    assert end_of(found[-1]) == len(whole)


@given(st.binary(max_size=200), STEPS)
def test_any_bytes_are_covered(data, step):
    found = read(data, step)
    assert found == read(data)
    assert sum(end_of(part) - start_of(part) for part in found) == len(data)


FRAME = encode_block(BlockKind.DELETE, {HeaderKey.INSTANT_TIME: "20240101000000000"}, bytes(12))


@pytest.mark.parametrize("at", range(len(FRAME)))
def test_every_byte_of_a_frame_counts(at):
    """A change in the frame is seen; in a text or in the content it is left to whoever decodes it."""
    changed = bytearray(FRAME + FRAME)
    changed[at] ^= 1
    in_text, in_content = range(34, 51), range(59, 71)
    try:
        first, *rest = read(bytes(changed))
    except UnsupportedFeature as error:
        assert at in range(14, 34), str(error)  # noqa: PT017
        return
    if isinstance(first, Corrupt):
        assert (first.end, [part.block.start for part in rest]) == (len(FRAME), [len(FRAME)])
    else:
        good = read(FRAME)[0]
        assert (at in in_content) == (first.content != good.content)
        assert (
            at in in_text or at in in_content or first.kind is not good.kind or first.block.header != good.block.header
        )


@pytest.mark.parametrize("tail", [b"#", b"#HUDI", b"#HUDI#", b"#HUDI#\0\0\0", FRAME[:-1], FRAME[:20]])
def test_the_beginning_of_a_block_is_a_torn_tail(tail):
    expected = [] if len(tail) < 6 else [Torn(len(FRAME), len(FRAME) + len(tail))]
    found = read(FRAME + tail)
    assert found[1:] == (expected or [Torn(len(FRAME), len(FRAME) + len(tail))])


@pytest.mark.parametrize("tail", [b"garbage", FRAME[:-1] + b"\0", b"#HUDI#" + b"\xff" * 20])
def test_other_bytes_at_the_end_are_corrupt(tail):
    found = read(FRAME + tail + FRAME)
    assert isinstance(found[-1], WholeBlock)
    assert any(isinstance(part, Corrupt) for part in found)


@pytest.mark.parametrize("footer", [b"", b"\0\0\0\1", struct.pack(">iii", 1, 0, 9) + b"x", struct.pack(">i", -1)])
def test_a_footer_that_is_none_is_corrupt(footer):
    inner = struct.pack(">iii", 1, 1, 0) + struct.pack(">q", 0) + footer
    length = len(inner) + 8
    block = MAGIC + struct.pack(">q", length) + inner + struct.pack(">q", length + 6)
    found = read(block + FRAME)
    assert [type(part) for part in found] == [Corrupt, WholeBlock]


def test_a_magic_in_two_pieces_is_found():
    reader = LogBlockReader("a.log")
    reader.feed(b"garbage#HU")
    assert list(reader.take()) == []
    reader.feed(b"DI#" + FRAME[6:])
    assert list(reader.take()) == [Corrupt(0, 7)]
    assert [part.block.start for part in reader.finish()] == [7]


@pytest.mark.parametrize("length", [(1 << 31) - 1, 1 << 31, 1 << 62, -1])
def test_a_length_that_cannot_be_takes_no_memory(length):
    data = MAGIC + struct.pack(">q", length) + bytes(200_000) + FRAME
    tracemalloc.start()
    found = read(data, 10_000)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(part) for part in found] == [Corrupt, WholeBlock]
    assert used < 4 * len(data)


def test_damage_takes_time_in_proportion():
    """Every byte is looked at once, though nothing but the beginnings of blocks arrives."""
    data = (MAGIC + struct.pack(">q", 1 << 30)) * 3000
    assert sum(end_of(part) - start_of(part) for part in read(data, 100)) == len(data)


def test_a_block_that_stands_for_damage_cannot_be_written():
    with pytest.raises(InvalidInputError, match="corrupt"):
        encode_block(BlockKind.CORRUPT, {})


def test_a_block_that_java_cannot_read_is_not_written():
    class Huge(bytes):
        pass

    piece = memoryview(bytearray(1 << 20))
    with pytest.raises(InvalidInputError, match="write several"):
        encode_block(BlockKind.AVRO_DATA, {}, *([piece] * 2048))
