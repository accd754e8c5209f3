"""The register of everything that reads stored bytes: what it is fed, and which errors it may raise."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import fastavro  # noqa: F401  (loading it is not the decoder's work)
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.cdc.debezium_decoder import read_message
from lakefmt._core.cdc.debezium_messages import MessageReader, SchemaRegistry
from lakefmt._core.cdc.postgres.follow import Origin, decode_log_position
from lakefmt._core.cdc.postgres.rows import decode_message
from lakefmt._core.config.table_config import parse_table_config
from lakefmt._core.formats.avro.columnar.codec import decode_rows
from lakefmt._core.formats.avro.container import decode_container, decode_container_records, encode_container
from lakefmt._core.formats.avro.values import compile_decoder
from lakefmt._core.formats.bloom_filter import decode_bloom_filter
from lakefmt._core.formats.hfile_container import HFileReader
from lakefmt._core.formats.log_blocks import (
    BlockKind,
    HeaderKey,
    LogBlock,
    decode_avro_record,
    scan_blocks,
    split_avro_records,
)
from lakefmt._core.formats.log_data_block import (
    decode_avro_content,
    decode_avro_contents,
    decode_cdc_content,
    decode_positions,
)
from lakefmt._core.formats.log_delete_block import decode_delete_content
from lakefmt._core.formats.names import marker_name, parse_base_file, parse_log_file, parse_marker
from lakefmt._core.formats.parquet.page_search import find_pages
from lakefmt._core.formats.properties import check_table_checksum, decode_properties
from lakefmt._core.index.bucket_counts import FIRST_CONFIG, BucketCounts, decode_hashing_config, encode_hashing_config
from lakefmt._core.index.bucket_ring import decode_ring, encode_ring, first_ring
from lakefmt._core.ingest.api import DETAILS, Checkpoint, decode_checkpoint
from lakefmt._core.ingest.files import FilesTaken
from lakefmt._core.ingest.kafka.client import parse_offsets
from lakefmt._core.ingest.kafka.decoding import AvroMessages, JsonMessages, without_frame
from lakefmt._core.loads.journal import (
    LoadState,
    Part,
    TableLoad,
    Times,
    Transaction,
    decode_transaction,
    encode_transaction,
    read_part,
)
from lakefmt._core.metadata.index_readers import decode_index_keys, decode_stats
from lakefmt._core.metadata.listing import listed_files
from lakefmt._core.metadata.reader import RecordRun
from lakefmt._core.metadata.records import ColumnStats, MetadataRecord, RecordType, encode_record, record_schema
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.schema.avro import parse_avro_schema
from lakefmt._core.segments.codec import (
    Claim,
    SegmentHeader,
    SegmentPosition,
    checksum,
    decode_claim,
    decode_header,
    decode_segment,
    encode_claim,
    encode_header,
    encode_segment,
)
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.commit import CommitMetadata, decode_commit, decode_entry, encode_entry
from lakefmt._core.timeline.consumers import ConsumerRecord, decode_consumer, encode_consumer
from lakefmt._core.timeline.heartbeat import heartbeat_name, make_stamp, read_stamp
from lakefmt._core.timeline.instant import Action, Instant, State, parse_instant_file, parse_instant_time
from lakefmt._core.timeline.locks.objects import decode_lock_record, decode_stamp
from lakefmt._core.timeline.lsm_timeline import decode_manifest, parse_manifest_name
from lakefmt._core.timeline.markers import list_marked, marker_directory
from lakefmt._core.timeline.metadata_codec import (
    BodyKind,
    body_kind,
    decode_body,
    decode_commit_rows,
    encode_body,
    parse_savepoint,
    savepoint_record,
)
from lakefmt._core.timeline.rollback import (
    RestorePlan,
    RollbackPlan,
    choose_logs,
    parse_restore_record,
    parse_rollback_plan,
    restore_record,
    rollback_plan_record,
    scan_logs,
)
from lakefmt._core.timeline.store import BACKUP, PROPERTIES, load_mark, load_properties
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt._core.timeline.v6_archive import LogArchive
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableVersion, WriteOperation, WriteStat
from lakefmt._core.write.commit.key_stats import (
    KEY_HASHES_ENTRY,
    KEY_RANGES_ENTRY,
    KeySpan,
    key_hashes_of,
    key_ranges_of,
    sharing_hashes,
)
from lakefmt.errors import (
    FormatError,
    InvalidInputError,
    ObjectNotFound,
    PositionLost,
    SourceRefused,
    UnsupportedError,
)
from tests.formats.hfile.hfile_parts import numbered, with_two_levels
from tests.fuzz.seeds import (
    TIMELINE,
    avro_schema_of,
    blooms,
    names_of,
    recompressed,
    sorted_archive,
    stored,
    table_schemas,
    whole,
)

#: ``v8-1.0.2-clean-completed.avro``
_BODY = re.compile(r"v[0-9]-[0-9.x]+-[a-z]+-(requested|inflight|completed)")
#: Errors of a decoder of files.
FILE = (FormatError, UnsupportedError)

Decode = Callable[[bytes], object]


@dataclass(frozen=True)
class Decoder:
    """One way from stored bytes to a value.

    Attributes:
        name: what it reads, for people.
        covers: the public functions it goes through, as ``module.function`` below ``lakefmt``.
        decode: takes the bytes.
        seeds: whole inputs by name, all of which it decodes.
        errors: what it may raise.
        refuses: some cut must be refused. Not so where a grammar of names answers None, where every line stands for
            itself, or where damage has a value of its own.
    """

    name: str
    covers: tuple[str, ...]
    decode: Decode
    seeds: Mapping[str, bytes]
    errors: tuple[type[Exception], ...] = FILE
    refuses: bool = True


# ----------------------------------------------------------------------------------------------------------- real bytes


def one_body_of_each_kind() -> Iterator[tuple[str, Decode, bytes]]:
    """Yield one real body per action, state and format."""
    seen = set()
    for path in sorted(each for each in TIMELINE.iterdir() if _BODY.match(each.name)):
        _, _, action, state = path.stem.split("-")[:4]
        kind = body_kind(Action(action), State(state))
        assert kind is not None
        if (kind, path.suffix) not in seen:
            seen.add((kind, path.suffix))
            yield path.name, partial(decode_body, kind), path.read_bytes()


def archive_file() -> bytes:
    """Return the first two blocks of a real archive of layout 1."""
    (data,) = stored("v6_cow_archived_0150", "commits_.archive.1_1-0-1").values()
    return data[: scan(data)[1].end]


# -------------------------------------------------------------------------------------------------------- ways to decode


def text_of(data: bytes) -> str:
    """Return the bytes as a name that a listing could hold."""
    return data.decode("utf-8", "replace")


def named(parse: Callable[[str], object]) -> Decode:
    return lambda data: parse(text_of(data))


def scan(data: bytes) -> list[LogBlock]:
    return list(scan_blocks(lambda at, size: data[at : at + size], len(data), "a.log"))


def decode_log(data: bytes) -> None:
    for block in scan(data):
        content = data[block.content_start : block.content_start + block.content_size]
        if HeaderKey.SCHEMA in block.header and block.kind.name == "AVRO_DATA":
            for datum in split_avro_records(content, "a.log"):
                decode_avro_record(datum, block.header[HeaderKey.SCHEMA], "a.log")


def decode_with_schema(data: bytes) -> None:
    """Read the bytes as a record: the real schema of an archive entry is the writer's."""
    decode_avro_record(data, _ENTRY_SCHEMA, "a.log")


def decode_stored_properties(data: bytes, name: str = PROPERTIES) -> None:
    store = MemoryStore()
    store.put(name, data)
    parse_table_config(load_properties(store))


def decode_stored_mark(data: bytes) -> None:
    store = MemoryStore()
    store.put(PROPERTIES, data)
    assert isinstance(load_mark(store), str)


def decode_archive(data: bytes, layout: int, name: str, others: Mapping[str, bytes]) -> None:
    """Load an archive in which one file is damaged, and every body in it."""
    store = MemoryStore()
    for other, content in {**others, name: data}.items():
        store.put(f"h/{other}", content)
    archive = HistoryStore(store, "h", layout)
    history = archive.load()
    files = archive.files()
    archive.load_between(files, 0, 10**17 - 1)
    for file in files:
        archive.times(file)
    if layout == 1:
        logs = LogArchive(store, "h")
        for one in logs.load():
            for entry in filter(None, (one.completed, one.requested, one.inflight)):
                logs.body(entry)
    for instant in history.instants:
        body = history.body(instant)
        if instant.action in (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT):
            decode_commit(body, "archived")


def decode_hfile(data: bytes) -> None:
    reader = HFileReader.from_bytes(data, "f.hfile")
    reader.lookup(_KEYS)
    reader.lookup_prefixes(pa.array([b"k", b""]))
    reader.meta_block("bloomFilter")
    str(reader.schema)
    reader.read()


def metadata_record(name: str) -> tuple[bytes, str]:
    """Return the last record of a real HFile of the metadata table, and its schema."""
    reader = HFileReader.from_bytes((_HFILES / name).read_bytes(), name)
    assert reader.schema is not None
    return reader.read()["value"][-1].as_py(), reader.schema


def decode_listed_files(data: bytes) -> None:
    keys, values = (pa.chunked_array([pa.array([each], pa.binary())]) for each in (b"p", data))
    listed_files([RecordRun(keys, values, metadata_record("v8-1.2.0-files.hfile")[1], "f.hfile")])


def decode_column_stats(data: bytes) -> None:
    decode_stats(pa.array([data], pa.binary()), record_schema(TableVersion.NINE), pa.decimal128(10, 2), "f.hfile")


def decode_secondary_keys(data: bytes) -> None:
    decode_index_keys(pa.array([data], pa.binary()), "secondary_index_fare")


def decode_markers(data: bytes) -> None:
    store, time = MemoryStore(), InstantTime("20260101000000000")
    store.put(f"{marker_directory(time)}/MARKERS0", data)
    list_marked(store, time)


def decode_savepoint(data: bytes) -> None:
    time = InstantTime("20260101000000000")
    str(parse_savepoint(time, decode_body(BodyKind.SAVEPOINT_METADATA, data, what="a savepoint"), "a savepoint"))


def decode_restore(data: bytes) -> None:
    parse_restore_record(decode_body(BodyKind.RESTORE_PLAN, data, what="a restore"), "a restore")


_STORE_OF_A_ROLLBACK = MemoryStore()


def decode_rollback(data: bytes) -> None:
    parse_rollback_plan(_STORE_OF_A_ROLLBACK, decode_body(BodyKind.ROLLBACK_PLAN, data, what="a rollback"))


def decode_heartbeat(data: bytes) -> None:
    store, time = MemoryStore(), InstantTime("20260101000000000")
    store.put(heartbeat_name(time), data)
    read_stamp(store, time)


def decode_logs_of_an_instant(data: bytes) -> None:
    store = MemoryStore()
    store.put(".f-0_20260101000000000.log.1_0-0-0", data)
    choose_logs(scan_logs(store, [".f-0_20260101000000000.log.1_0-0-0"]), InstantTime("20260102000000000"))


def decode_bloom_text(data: bytes, type_code: str | None) -> None:
    bloom = decode_bloom_filter(data, type_code)
    bloom.contains(_KEYS)
    bloom.encode()


def decode_bloom_bytes(data: bytes, type_code: str | None) -> None:
    """Damage what the text says, not the text: Base64 hides nothing from a flip, but most flips are no Base64."""
    decode_bloom_text(base64.b64encode(data), type_code)


def decode_key_notes(data: bytes) -> None:
    """Read the bytes as what a commit tells of the keys of a file with two rows."""
    stat = WriteStat(FileId("f-0"), PartitionPath(""), "f", num_writes=2)
    told = {KEY_RANGES_ENTRY: text_of(data), KEY_HASHES_ENTRY: text_of(data)}
    commit = CommitMetadata(WriteOperation.INSERT, (stat,), extra_metadata=told)
    for ends in key_ranges_of(commit).values():
        KeySpan(b"a", b"b").misses(ends)
    sharing_hashes([_KEYS], list(key_hashes_of(commit).values()))


def column_pages(*, use_dictionary: bool) -> bytes:
    """Return the bytes of a column of texts in a row group of several pages."""
    sink = io.BytesIO()
    texts = pa.array([f"key-{number % 50}" for number in range(3_000)])
    pq.write_table(pa.table([texts], ["k"]), sink, use_dictionary=use_dictionary, data_page_size=2_000)
    chunk = pq.read_metadata(sink).row_group(0).column(0)
    begin = chunk.dictionary_page_offset if use_dictionary else chunk.data_page_offset
    return sink.getvalue()[begin : begin + chunk.total_compressed_size]


def in_lines(parse: Callable[[list[str]], object]) -> Decode:
    return lambda data: parse(text_of(data).split("\n"))


_HFILES = Path(__file__).parents[1] / "data" / "hfile"
_KEYS = pa.array(["key-001", "日本"])
_ENTRY_SCHEMA = scan(archive_file())[0].header[HeaderKey.SCHEMA]


@cache
def archived_record() -> bytes:
    data = archive_file()
    block = scan(data)[0]
    return split_avro_records(data[block.content_start : block.content_start + block.content_size], "a.log")[0]


@cache
def logged_content() -> bytes:
    """Return the content of a block of a real log file."""
    (data,) = stored("v8_mor_archived_120", "log.1_1-901-1431").values()
    block = scan(data)[0]
    return data[block.content_start : block.content_start + block.content_size]


@cache
def change_content() -> tuple[bytes, str]:
    """Return the content of a real block of changes, and its schema."""
    data = (Path(__file__).parents[1] / "data/formats/log/v9-1.2.0-changes.cdc.log").read_bytes()
    (block,) = scan(data)
    assert block.schema is not None
    return data[block.content_start : block.content_start + block.content_size], block.schema


def delete_contents() -> dict[str, bytes]:
    """Return the contents of delete blocks: a real one of version 3, and Java's own of versions 1 and 2."""
    folder = Path(__file__).parents[1] / "data/formats/log"
    data = (folder / "v9-1.2.0-deletes.log").read_bytes()
    block = next(block for block in scan(data) if block.kind is BlockKind.DELETE)
    java = json.loads((folder / "java.json").read_text("utf-8"))["kryo"]
    old = {name: bytes.fromhex(java[name]) for name in ("D1 keys", "D2 5", "D2 many")}
    framed = {name: struct.pack(">ii", int(name[1]), len(body)) + body for name, body in old.items()}
    return {"real": data[block.content_start : block.content_start + block.content_size], **framed}


@cache
def logged_record() -> tuple[bytes, str]:
    """Return a record of a real log file, and its schema."""
    (data,) = stored("v8_mor_archived_120", "log.1_1-901-1431").values()
    block = scan(data)[0]
    records = split_avro_records(data[block.content_start : block.content_start + block.content_size], "a.log")
    return records[0], block.header[HeaderKey.SCHEMA]


def decode_row(data: bytes) -> None:
    decode_rows(data, np.array([0]), np.array([len(data)]), logged_record()[1])


def decode_row_as(schema: bytes) -> None:
    record = logged_record()[0]
    decode_rows(record, np.array([0]), np.array([len(record)]), text_of(schema))


# --------------------------------------------------------------------------------------------------------- the register

_ZEROTH = "00000000-0000-0000-0000-000000000000-0_0-1-2_20260101000000000.parquet"
_MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
_RESTORE = RestorePlan(
    InstantTime("20260101000000000"),
    instants=(Instant(InstantTime("20260102000000000"), Action.COMMIT, State.COMPLETED),),
)
_ROLLBACK = RollbackPlan(
    InstantTime("20260102000000000"), Action.COMMIT, {"p": ("p/f-0_0-0-0_20260102000000000.parquet",)}
)
_PROPERTIES = whole(
    stored("v6_cow_archived_0150", ".hoodie/hoodie.properties"),
    stored("v8_cow_evolved_102", ".hoodie/hoodie.properties"),
)
_AVRO = {
    name: (TIMELINE / name).read_bytes() for name in ("v8-1.0.2-clean-completed.avro", "v9-1.2.0-commit-completed.avro")
}
_PACKED = {
    codec.decode(): recompressed(_AVRO["v9-1.2.0-commit-completed.avro"], codec)
    for codec in (b"deflate", b"snappy", b"zstandard")
}
# Small enough that every offset gets every number.
_TINY = encode_container(
    {"type": "record", "name": "N", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]},
    {"a": ["ab", "c"] * 9},
)
_TINIES = whole(
    {"tiny": _TINY},
    {f"tiny {codec.decode()}": recompressed(_TINY, codec) for codec in (b"deflate", b"snappy", b"zstandard")},
)
_COMMITS = {
    name: (TIMELINE / name).read_bytes()
    for name in ("v6-0.15.0-deltacommit-completed.json", "v8-1.0.2-replacecommit-completed.avro")
}


def _sorted_archive_parts() -> Iterator[Decoder]:
    files = dict(sorted_archive())
    # One file of the five: it is the manifest that is damaged here.
    files["manifest_5"] = json.dumps({"files": json.loads(files["manifest_5"])["files"][:1]}).encode()
    for name in ("_version_", "manifest_5"):
        yield Decoder(
            f"archive of layout 2: {name}",
            (
                "timeline.archive.store.HistoryStore.load",
                "timeline.archive.store.HistoryStore.load_between",
                "timeline.archive.lsm_timeline.load_manifest",
                "timeline.archive.lsm_timeline.read_manifest",
            ),
            partial(decode_archive, layout=2, name=name, others=files),
            {name: files[name]},
            (*FILE, ObjectNotFound),  # a manifest may name a file that is not there
            refuses=name != "_version_",  # without it the newest manifest counts
        )


def _bodies() -> Iterator[Decoder]:
    for name, decode, data in one_body_of_each_kind():
        yield Decoder(f"body {name}", ("timeline.metadata_codec.decode_body",), decode, {name: data})


def _blooms() -> Iterator[Decoder]:
    covers = ("formats.bloom.bloom_filter.decode_bloom_filter",)
    for name, code, text in blooms():
        yield Decoder(f"bloom filter {name}", covers, partial(decode_bloom_text, type_code=code), {name: text})
        raw = {name: base64.b64decode(text)}
        yield Decoder(f"bloom filter {name}, its bytes", covers, partial(decode_bloom_bytes, type_code=code), raw)


_STATS = ColumnStats("f", "c", "BytesWrapper", b"\x11\x94", b"\x13\x01", 5, 1, 70, 80, value_type=(10, "10,2"))

_SEGMENT_ROWS = encode_segment(pa.table({"v": [1, 2, 3], "s": ["a", None, "c"]}))
_HEADER = SegmentHeader("w", 1, 2, 3, len(_SEGMENT_ROWS), checksum(_SEGMENT_ROWS), 5, {"part": [1]}, True, False, True)
_CLAIM = Claim(3, "owner", "host", 7, "20260101000000000", SegmentPosition(2, 9))


def decode_any_segment(data: bytes) -> object:
    """Decode rows as if their header named just these bytes: what is then wrong has to be found in the bytes."""
    header = replace(_HEADER, bytes=len(data), digest=checksum(data))
    return decode_segment(data, header)


_LOAD_ROWS = encode_segment(pa.table({"id": [1, 2], "v": ["a", None]}))


def read_damaged_part(data: bytes) -> object:
    """Read rows of a load whose record names the digest of whole ones."""
    store = MemoryStore()
    store.put("rows", data)
    return read_part(store, Part("rows", 2, len(_LOAD_ROWS), checksum(_LOAD_ROWS)))


_ENVELOPES = {
    "with a schema": json.dumps(
        {
            "schema": {
                "type": "struct",
                "fields": [{"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int32"}]}],
            },
            "payload": {
                "op": "c",
                "after": {"id": 1},
                "source": {"db": "d", "table": "t", "lsn": 5, "sequence": '["1","5"]'},
            },
        }
    ).encode(),
    "flattened": b'{"id": 1, "__op": "u", "__deleted": "false", "__source_ts_ms": 5}',
}
_AVRO_ROW = {
    "type": "record",
    "name": "E",
    "fields": [
        {
            "name": "after",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}],
                },
            ],
        },
        {"name": "before", "type": ["null", "R"]},
        {"name": "op", "type": "string"},
    ],
}
_POSITION = {
    "source": "postgres",
    "version": 1,
    "system": "7",
    "database": "shop",
    "slot": "s",
    "table": 16389,
    "lsn": 77,
    "snapshot": {"page": 3, "file": 16400},
}


def decode_envelope(data: bytes) -> object:
    """What a message means."""
    return read_message("server.d.t", None, MessageReader(None).parse(data))


def decode_avro_envelope(data: bytes) -> object:
    """A message in Avro, whichever schema it says it has."""
    registry = SchemaRegistry("http://127.0.0.1:1")
    registry.schema = lambda _: _AVRO_ROW  # type: ignore[method-assign]
    return MessageReader(registry).parse(b"\0" + data[1:])


def decode_avro_message(data: bytes) -> object:
    """A message of Kafka in Avro, among others, whichever schema it says it has."""
    registry = SchemaRegistry("http://127.0.0.1:1")
    registry.schema = lambda _: _AVRO_ROW  # type: ignore[method-assign]
    good = b"\0\0\0\0\1\2\x02\6abc\0\2c"
    return AvroMessages(registry).decode([None] * 3, [good, data, good])


def decode_stored_position(data: bytes) -> object:
    """A position as a commit stores it."""
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return decode_log_position(value, Origin("7", "shop", "s"))


_PGOUTPUT = json.loads((Path(__file__).parents[1] / "data" / "cdc" / "pgoutput.json").read_text("utf-8"))

DECODERS: tuple[Decoder, ...] = (
    Decoder(
        "message of Debezium",
        ("cdc.debezium.messages.MessageReader.parse", "cdc.debezium.decoder.read_message"),
        decode_envelope,
        _ENVELOPES,
        (FormatError, InvalidInputError),  # a first byte that says Avro needs a registry
    ),
    Decoder(
        "message of Debezium in Avro",
        ("cdc.debezium.messages.MessageReader.parse",),
        decode_avro_envelope,
        {"row": b"\0\0\0\0\1\2\x02\6abc\0\2c"},
    ),
    Decoder(
        "message of Kafka in JSON",
        ("ingest.kafka.decoding.JsonMessages.decode",),
        lambda data: JsonMessages().decode([None] * 3, [b'{"id": 1}', data, b'{"id": 2}']),
        {"object": b'{"id": 7, "name": "x", "at": "2026-01-01T00:00:00Z", "more": {"a": [1, 2.5, null]}}'},
        refuses=False,  # what cannot be read is rejected, and the others are rows
    ),
    Decoder(
        "message of Kafka in Avro",
        ("ingest.kafka.decoding.AvroMessages.decode",),
        decode_avro_message,
        {"row": b"\0\0\0\0\1\2\x02\6abc\0\2c"},
        refuses=False,
    ),
    Decoder(
        "frame of a message of Kafka in Protobuf",
        ("ingest.kafka.protobuf.without_frame",),
        without_frame,
        {"of a nested type": b"\0\0\0\0\7\4\2\4\x08\1"},
        refuses=False,  # what follows the frame is the library's
    ),
    Decoder(
        "checkpoint of a job",
        ("ingest.checkpoints.decode_checkpoint",),
        lambda data: decode_checkpoint(
            {"deltastreamer.checkpoint.key": "20", DETAILS: data.decode("utf-8", "replace")}
        ),
        {"with files": b'{"checkpoint":"20","details":{"files":"f4qn4LDSbi7knM/pYBThvQ==","since":"10"}}'},
        (FormatError,),
    ),
    Decoder(
        "files of a checkpoint",
        ("ingest.files.source.FilesTaken.of",),
        lambda data: FilesTaken.of(Checkpoint("20", {"files": data.decode("utf-8", "replace"), "since": "10"})),
        {"two": b"f4qn4LDSbi7knM/pYBThvQ=="},
        (FormatError,),
        refuses=False,  # fewer digests are digests, too: the files are read again
    ),
    Decoder(
        "checkpoint of Kafka",
        ("ingest.kafka.offsets.parse_offsets",),
        named(lambda text: parse_offsets(text, "orders")),
        {"two partitions": b"orders,0:12,1:7"},
        (SourceRefused,),
    ),
    Decoder(
        "position in PostgreSQL's log",
        ("cdc.postgres.follow.decode_log_position",),
        decode_stored_position,
        {"of a table that is read": json.dumps(_POSITION).encode()},
        (InvalidInputError, PositionLost),
        refuses=False,  # JSON that is cut is none, and the commit's decoder says so
    ),
    Decoder(
        "message of PostgreSQL's log",
        ("cdc.postgres.pgoutput.decode_message",),
        decode_message,
        {name: bytes.fromhex(digits) for name, digits in _PGOUTPUT.items()},
        refuses=False,  # what a type is called is not read
    ),
    Decoder(
        "header of a segment",
        ("segments.codec.decode_header",),
        partial(decode_header, name="header"),
        {"header": encode_header(_HEADER)},
    ),
    Decoder(
        "pages of a column",
        ("formats.parquet.page_search.find_pages",),
        lambda data: find_pages(lambda offset, count: data[offset : offset + count], len(data)),
        {"with a dictionary": column_pages(use_dictionary=True), "plain": column_pages(use_dictionary=False)},
        refuses=False,  # None: Arrow is to read the column
    ),
    Decoder(
        "transaction of a server of loads",
        ("loads.journal.decode_transaction",),
        lambda data: decode_transaction(data, "record"),
        {
            "prepared": encode_transaction(
                Transaction(
                    7,
                    "label",
                    "db",
                    "t",
                    LoadState.PREPARED,
                    Times(1, 2, 3),
                    {
                        "t": TableLoad(
                            [Part(".lakefmt/loads/db/rows/7-0.arrow", 3, 400, "0" * 32)], since="20260101000000000"
                        )
                    },
                )
            )
        },
    ),
    Decoder(
        "rows of a load",
        ("loads.journal.read_part",),
        read_damaged_part,
        {"rows": _LOAD_ROWS},
    ),
    Decoder(
        "claim on a stream",
        ("segments.codec.decode_claim",),
        partial(decode_claim, note=None, name="claim"),
        {"claim": encode_claim(_CLAIM)},
    ),
    Decoder(
        "rows of a segment",
        ("segments.codec.decode_segment",),
        partial(decode_segment, header=_HEADER),
        {"rows": _SEGMENT_ROWS},
    ),
    Decoder(
        "rows of a segment, whatever their digest",
        ("segments.codec.decode_segment",),
        decode_any_segment,
        {"rows": _SEGMENT_ROWS},
    ),
    Decoder(
        "list of files in the metadata table",
        ("metadata.reading.listing.listed_files",),
        decode_listed_files,
        {"real": metadata_record("v8-1.2.0-files.hfile")[0]},
    ),
    Decoder(
        "column statistics in the metadata table",
        ("metadata.reading.index_readers.decode_stats",),
        decode_column_stats,
        {"decimals": encode_record(MetadataRecord(RecordType.COLUMN_STATS, column_stats=_STATS), TableVersion.NINE)},
    ),
    Decoder(
        "keys of a secondary index",
        ("metadata.reading.index_readers.decode_index_keys",),
        decode_secondary_keys,
        {"escaped": b"a\\$b$k\\$3"},
    ),
    Decoder(
        "HFile",
        (
            "formats.hfile.container.HFileReader.read",
            "formats.hfile.container.HFileReader.scan",
            "formats.hfile.blocks.read_trailer",
            "formats.hfile.blocks.read_file_info",
            "formats.hfile.blocks.read_fields",
            "formats.hfile.blocks.read_varint",
            "formats.hfile.blocks.read_frame",
            "formats.hfile.blocks.read_payload",
            "formats.hfile.blocks.read_root_index",
            "formats.hfile.blocks.read_meta_index",
            "formats.hfile.blocks.read_leaf_index",
            "formats.hfile.blocks.read_records",
        ),
        decode_hfile,
        {
            "of HBase": (_HFILES / "v6-0.15.0-record-index.hfile").read_bytes(),
            "of Hudi": (_HFILES / "v8-1.2.0-files.hfile").read_bytes(),
            "of two levels": with_two_levels(numbered(20)),
        },
    ),
    Decoder(
        "properties",
        ("formats.properties.decode_properties",),
        lambda data: check_table_checksum(decode_properties(data)),
        whole(
            _PROPERTIES,
            stored("v9_cow_no_meta_120", ".hoodie_partition_metadata"),
            {"escapes": b"a=\\u00e9\\\n  b\n\\u0041\\ c: d"},
        ),
        refuses=False,
    ),
    Decoder(
        "properties of a table",
        ("timeline.properties_store.load_properties",),
        decode_stored_properties,
        _PROPERTIES,
        (*FILE, InvalidInputError),
    ),
    Decoder(
        "mark in the properties",
        ("timeline.properties_store.load_mark",),
        decode_stored_mark,
        {"mark": b"#Properties saved on 2026-01-01\n#lakefmt: made\nhoodie.table.name=t\n"},
        refuses=False,
    ),
    Decoder(
        "backup of properties",
        ("timeline.properties_store.load_properties",),
        partial(decode_stored_properties, name=BACKUP),
        stored("v9_cow_no_meta_120", ".hoodie/hoodie.properties"),
        (*FILE, InvalidInputError),
    ),
    Decoder(
        "Avro container", ("formats.avro.container.decode_container",), decode_container, whole(_AVRO, _PACKED, _TINIES)
    ),
    Decoder(
        "Avro container of several records",
        ("formats.avro.container.decode_container_records",),
        lambda data: decode_container_records(data, 1000),
        whole({"clean": _AVRO["v8-1.0.2-clean-completed.avro"]}, {"deflate": _PACKED["deflate"]}),
    ),
    Decoder(
        "Avro schema",
        ("schema.avro.parse_avro_schema",),
        named(lambda text: compile_decoder(parse_avro_schema(text), parse_avro_schema(text))),
        {
            "commit": avro_schema_of("v9-1.2.0-commit-completed.avro"),
            "clean": avro_schema_of("v8-1.0.2-clean-requested.avro"),
        },
        (ValueError,),  # private to the Avro modules, which name the file
    ),
    Decoder(
        "schema of a table",
        ("schema.__init__.avro_to_arrow",),
        named(avro_to_arrow),
        table_schemas(),
        (*FILE, InvalidInputError),
    ),
    *_bodies(),
    Decoder("stats of a commit", ("timeline.metadata_codec.decode_commit_rows",), decode_commit_rows, _COMMITS),
    Decoder("commit", ("timeline.commit.decode_commit",), lambda data: decode_commit(data, "f"), _COMMITS),
    Decoder(
        "what a commit tells of its keys",
        ("write.commit.key_stats.key_hashes_of", "write.commit.key_stats.key_ranges_of"),
        decode_key_notes,
        {"ranges": b'{"f":["a","c"]}', "hashes": b'{"f":"MUFGc15faJI="}'},
        (),
        refuses=False,
    ),
    *_blooms(),
    Decoder(
        "name of a base file",
        ("formats.names.parse_base_file",),
        named(parse_base_file),
        {"real": _ZEROTH.encode()},
        (),
        refuses=False,
    ),
    Decoder(
        "name of a log file",
        ("formats.names.parse_log_file",),
        named(parse_log_file),
        {"real": b".1eb4f4c6-69ff-49b9-a02e-42a822335f68-0_20261121081519325.log.1_1-901-1431.cdc"},
        (),
        refuses=False,
    ),
    Decoder(
        "name of a marker",
        ("formats.names.parse_marker",),
        named(parse_marker),
        {"real": marker_name(f"a=1/{_ZEROTH}", "MERGE").encode()},
        (),
        refuses=False,
    ),
    Decoder(
        "markers of a timeline server",
        ("timeline.markers.list_marked",),
        decode_markers,
        {"two": f"{marker_name(_ZEROTH, 'CREATE')}\n{marker_name('p/' + _ZEROTH, 'MERGE')}\n".encode()},
        refuses=False,
    ),
    Decoder(
        "savepoint",
        ("timeline.metadata_codec.parse_savepoint",),
        decode_savepoint,
        {"ours": encode_body(BodyKind.SAVEPOINT_METADATA, savepoint_record("ann", "why", _MOMENT, {"p": (_ZEROTH,)}))},
    ),
    Decoder(
        "restore",
        ("timeline.rollback.parse_restore_record",),
        decode_restore,
        {"ours": encode_body(BodyKind.RESTORE_PLAN, restore_record(_RESTORE))},
    ),
    Decoder(
        "rollback",
        ("timeline.rollback.parse_rollback_plan",),
        decode_rollback,
        {"ours": encode_body(BodyKind.ROLLBACK_PLAN, rollback_plan_record(_STORE_OF_A_ROLLBACK, _ROLLBACK))},
    ),
    Decoder(
        "heartbeat",
        ("timeline.heartbeat.read_stamp",),
        decode_heartbeat,
        {"ours": make_stamp("owner")},
        refuses=False,
    ),
    Decoder(
        "logs of an instant",
        ("timeline.rollback.scan_logs",),
        decode_logs_of_an_instant,
        whole(stored("v8_mor_archived_120", "log.1_1-901-1431")),
        refuses=False,
    ),
    *(
        Decoder(
            f"name of a timeline file, layout {layout}",
            ("timeline.instant.parse_instant_file",),
            named(partial(parse_instant_file, layout=layout)),
            {"real": name},
            (),
            refuses=False,
        )
        for layout, name in (
            (1, b"20261121085143506.clean.requested"),
            (2, b"20261121081512152_20261121081514722.deltacommit"),
        )
    ),
    Decoder(
        "instant time",
        ("timeline.instant.parse_instant_time",),
        named(parse_instant_time),
        {"17": b"20260228235959999", "14": b"20260228235959"},
        (InvalidInputError,),
    ),
    Decoder(
        "names of a timeline",
        ("timeline.timeline.timeline_from_names",),
        in_lines(partial(timeline_from_names, layout=2)),
        {"real": names_of("v9_cow_restore_120")},
        (),
        refuses=False,
    ),
    Decoder(
        "log file",
        (
            "formats.log.blocks.scan_blocks",
            "formats.log.blocks.read_block",
            "formats.log.blocks.split_avro_records",
            "formats.log.blocks.decode_avro_record",
        ),
        decode_log,
        whole(stored("v8_mor_archived_120", "log.1_1-901-1431"), {"archive": archive_file()}),
        refuses=False,
    ),
    Decoder(
        "record of a log",
        ("formats.log.blocks.decode_avro_record",),
        decode_with_schema,
        {"archived": archived_record()},
    ),
    Decoder(
        "archive of layout 1",
        ("timeline.archive.store.HistoryStore.load", "timeline.archive.v6_log.LogArchive.load"),
        partial(decode_archive, layout=1, name=".commits_.archive.1_1-0-1", others={}),
        {"real": archive_file()},
    ),
    *_sorted_archive_parts(),
    Decoder(
        "entry of a commit",
        ("timeline.commit.decode_entry",),
        lambda data: decode_entry({"lakefmt.txn.a": data.decode("latin-1")}, "lakefmt.txn.a"),
        {"real": encode_entry({"number": 17}, now_ms=1_790_000_000_000).encode()},
    ),
    Decoder(
        "progress of a consumer",
        ("timeline.consumers.decode_consumer",),
        lambda data: decode_consumer(data, "report.json"),
        {
            "real": encode_consumer(
                ConsumerRecord(
                    "20260101000000000",
                    datetime(2026, 1, 1, tzinfo=UTC),
                    "20260101000000000",
                    {"city=sf": -1},
                    owner="process 5",
                )
            )
        },
    ),
    Decoder(
        "manifest",
        ("timeline.archive.lsm_timeline.decode_manifest",),
        lambda data: decode_manifest(data, "manifest_5"),
        {"real": sorted_archive()["manifest_5"]},
    ),
    Decoder(
        "name of a manifest",
        ("timeline.archive.lsm_timeline.parse_manifest_name",),
        named(parse_manifest_name),
        {"real": b"manifest_12"},
        (),
        refuses=False,
    ),
    Decoder(
        "lock file",
        ("timeline.locks.filesystem.decode_stamp",),
        decode_stamp,
        {
            "real": b'{"owner":"6ee0b1a2","host":"a","pid":7,"note":"lock_holder-7",'
            b'"process":{"machine":"m","space":"s","pid":7,"started":9}}'
        },
        (),
        refuses=False,
    ),
    Decoder(
        "lock object",
        ("timeline.locks.storage.decode_lock_record",),
        decode_lock_record,
        {"real": b'{"expired":false,"validUntil":1793000000000,"owner":"6ee0b1a2-0d4f-4c8e-9a57-000000000000"}'},
    ),
    Decoder(
        "numbers of buckets",
        ("index.bucket.counts.decode_hashing_config",),
        partial(decode_hashing_config, what="a rule"),
        {"real": encode_hashing_config(BucketCounts(4, "2024.*,2;2025-0[1-6],3"), FIRST_CONFIG)},
    ),
    Decoder(
        "ring of a partition",
        ("index.bucket.ring.decode_ring",),
        partial(decode_ring, partition=PartitionPath("2021/01/01"), what="a ring"),
        {"real": encode_ring(first_ring(PartitionPath("2021/01/01"), 3))},
    ),
    Decoder("rows of a log", ("formats.avro.columnar.codec.decode_rows",), decode_row, {"real": logged_record()[0]}),
    Decoder(
        "content of an Avro block",
        ("formats.log.data_block.decode_avro_content",),
        lambda data: decode_avro_content(data, logged_record()[1], what="a.log"),
        {"real": logged_content()},
    ),
    Decoder(
        "contents of two Avro blocks",
        ("formats.log.data_block.decode_avro_contents",),
        lambda data: decode_avro_contents([logged_content(), data], logged_record()[1], what=["b.log", "a.log"]),
        {"real": logged_content()},
    ),
    Decoder(
        "content of a block of changes",
        ("formats.log.data_block.decode_cdc_content",),
        lambda data: decode_cdc_content(data, change_content()[1], what="a.cdc"),
        {"real": change_content()[0]},
    ),
    Decoder(
        "content of a delete block",
        ("formats.log.delete_block.decode_delete_content",),
        lambda data: decode_delete_content(data, what="a.log"),
        delete_contents(),
    ),
    Decoder(
        "record positions",
        ("formats.log.data_block.decode_positions",),
        named(lambda text: decode_positions(text, 64)),
        {"three": b"AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAIAEAAAAAEABQAJAA=="},
    ),
    Decoder(
        "record positions, their bytes",
        ("formats.log.data_block.decode_positions",),
        lambda data: decode_positions(base64.b64encode(data).decode(), 64),
        {"three": base64.b64decode("AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAIAEAAAAAEABQAJAA==")},
    ),
    Decoder(
        "rows of a log, their schema",
        ("formats.avro.columnar.codec.decode_rows",),
        decode_row_as,
        {"real": logged_record()[1].encode()},
    ),
)

#: Every decoder with every input, and what the pair is called.
INPUTS = [(decoder, seed) for decoder in DECODERS for seed in decoder.seeds]
IDS = [f"{decoder.name}, {seed}" for decoder, seed in INPUTS]

#: Words with which a function says that it reads what is stored.
VERBS = ("decode", "parse", "scan", "split", "load", "read", "list")

#: Public functions with such a name that no row of the register goes through, and why.
EXEMPT: dict[str, str] = {
    "timeline.locks.thrift_wire.read_struct": "answers of a metastore are fuzzed behind a socket, in tests/timeline/locks/test_thrift_wire.py",
    "timeline.markers.list_markers": "names of a listing, no bytes: what they announce is list_marked",
    "timeline.rollback.list_data_files": "names of a listing, no bytes",
    "timeline.locks.dynamodb.decode_lock_item": "takes botocore's dictionary, not bytes: tests/timeline/locks/test_wire_formats.py",
    "formats.names.split_base_file": "what parse_base_file, which has rows, is made of",
    "formats.avro.reader.read_long": "a step of the Avro reader, whose callers turn its errors into CorruptFile",
    "formats.avro.columnar.decode.read_columns": "a step of decode_rows, which turns its damage into CorruptFile",
    "formats.avro.columnar.decode.read_values": "a step of decode_rows, which turns its damage into CorruptFile",
    "formats.log.delete_block.read_kryo_deletes": "a step of decode_delete_content, which has rows of its versions",
    "formats.avro.reader.read_block_count": "a step of the Avro decoders and of decode_delete_content, which have rows",
    "formats.avro.reader.read_span": "a step of the Avro decoders and of decode_delete_content, which have rows",
    "formats.avro.columnar.varint.split_numbers": "a step of decode_rows, which turns its damage into CorruptFile",
    "timeline.archive.lsm_timeline.HistoryWriter.load": "answers with load_manifest, which has rows",
    "formats.log.blocks.read_entries": "a step of read_block, which takes what it raises for damage of the block",
    "formats.log.data_block.decode_parquet_content": "Arrow reads its bytes: a way of parquet_cases.py, run in a process of its own",
    "formats.parquet.base_file.decode_footer": "Arrow reads its bytes: fuzzed in processes of their own (test_parquet.py)",
    "formats.parquet.footers.read_short_footer": "Arrow reads what is left: tests/formats/test_footers.py changes its bytes",
    "timeline.archive.store.HistoryStore.read_bodies": "Arrow reads its bytes: fuzzed in processes of their own as well",
    "timeline.store.TimelineStore.load": "parses names with timeline_from_names and parse_instant_file",
    "timeline.store.TimelineStore.read_body": "returns the bytes unread; their size is checked by the store",
}
