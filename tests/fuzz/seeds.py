"""Whole inputs for the decoders: bytes that Hudi wrote, and a few made from them."""

from __future__ import annotations

import base64
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa

from lakefmt._core.formats.avro.values import encode_long, read_long

DATA = Path(__file__).parents[1] / "data"
TIMELINE = DATA / "timeline"


@cache  # some decoders ask for a second input each time they are called
def stored(table: str, *ends: str) -> Mapping[str, bytes]:
    """Return the first object of a real table for each ending."""
    (packed,) = DATA.glob(f"*/{table}.zip")
    with zipfile.ZipFile(packed) as archive:
        names = sorted(archive.namelist())
        found = {end: next(name for name in names if name.endswith(end)) for end in ends}
        return {f"{table}…{end}": archive.read(name) for end, name in found.items()}


def whole(*objects: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all of them together."""
    return {name: data for each in objects for name, data in each.items()}


def recompressed(data: bytes, codec: bytes) -> bytes:
    """Return a container of one block in another codec."""
    sync = data[-16:]
    head_end = data.index(sync)
    size_at = head_end + 17  # behind the marker and the count, which is 1
    size, start = read_long(data, size_at)
    payload = data[start : start + size]
    if codec == b"deflate":
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(payload) + packer.flush()
    elif codec == b"snappy":
        packed = pa.Codec("snappy").compress(payload, asbytes=True) + zlib.crc32(payload).to_bytes(4, "big")
    else:
        packed = pa.Codec("zstd").compress(payload, asbytes=True)
    entry = encode_long(len(b"avro.codec")) + b"avro.codec" + encode_long(len(codec)) + codec
    # The header is a map of one block: magic, count of entries, entries, end.
    head = data[:4] + encode_long(2) + entry + data[5:head_end]
    return head + sync + encode_long(1) + encode_long(len(packed)) + packed + sync


def avro_schema_of(name: str) -> bytes:
    data = (TIMELINE / name).read_bytes()
    at = data.index(b"avro.schema") + len(b"avro.schema")
    size, start = read_long(data, at)
    return data[start : start + size]


def table_schemas() -> dict[str, bytes]:
    """Return schemas of real tables, as their commits hold them."""
    with (DATA / "keys" / "avro_schemas.jsonl").open("rb") as lines:
        rows = [json.loads(line) for line in lines]
    texts = {text for row in rows for text in row.values() if isinstance(text, str) and text.startswith("{")}
    return {f"schema {number}": text.encode() for number, text in enumerate(sorted(texts, key=len)[-2:])}


def blooms() -> Iterator[tuple[str, str | None, bytes]]:
    for row in json.loads((DATA / "formats" / "bloom_footers.json").read_text("utf-8")):
        yield row["type_code"] or "SIMPLE", row["type_code"], row["text"].encode()
    # Eight bits, all of them set: every key is asked for every hash.
    yield "full", None, base64.b64encode(bytes.fromhex("ffffffff 00000003 01 00000008 ff"))


def names_of(table: str) -> bytes:
    (packed,) = DATA.glob(f"*/{table}.zip")
    with zipfile.ZipFile(packed) as archive:
        return "\n".join(name.rpartition("/")[2] for name in archive.namelist() if "/metadata/" not in name).encode()


@cache
def sorted_archive() -> dict[str, bytes]:
    """Return the files of a real archive of layout 2, by name."""
    with zipfile.ZipFile(DATA / "read" / "v8_mor_archived_120.zip") as packed:
        return {
            name.rpartition("/")[2]: packed.read(name)
            for name in packed.namelist()
            if "/timeline/history/" in name and not name.endswith("/")
        }
