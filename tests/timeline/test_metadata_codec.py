"""Timeline bodies: those of real tables of four releases, what is written, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest

from lakefmt._core.timeline.instant import Action, State
from lakefmt._core.timeline.metadata_codec import (
    RECORDS,
    WRITE_STAT_FIELDS,
    BodyKind,
    body_kind,
    body_schema,
    decode_body,
    decode_commit_rows,
    encode_body,
    encode_json_commit,
    reader_schema,
)
from lakefmt.errors import CorruptFile, InvalidInputError

VECTORS = Path(__file__).resolve().parents[1] / "data" / "timeline"
FILES = sorted(path.name for path in VECTORS.iterdir())
AVRO = [name for name in FILES if name.endswith(".avro")]
JSON = [name for name in FILES if name.endswith(".json")]

#: 0.15 and before have fewer fields; with those filled in, a body that holds such a record is another one.
FEWER_FIELDS = {"v6-0.15.0-compaction-requested.avro", "v6-0.x-replacecommit-requested.avro"}


def vector(name):
    """Return kind and bytes of a real body, named version-release-action-state."""
    _, _, action, state = name.rsplit(".", 1)[0].split("-")[:4]
    kind = body_kind(Action(action), State(state))
    assert kind is not None
    return kind, (VECTORS / name).read_bytes()


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def block(container):
    """Return what stands between the two sync markers."""
    return container.split(container[-16:])[1]


def test_there_is_a_vector_of_every_kind_but_those_that_are_parts_of_others():
    seen = {vector(name)[0] for name in FILES}
    assert set(BodyKind) - seen == {BodyKind.CLUSTERING_PLAN, BodyKind.LSM_TIMELINE_INSTANT}


@pytest.mark.parametrize("name", AVRO)
def test_real_avro_bodies_are_read(name):
    kind, data = vector(name)
    (stored,) = fastavro.reader(io.BytesIO(data))
    found = decode_body(kind, data, what=name)
    assert without_nulls(found) == without_nulls(stored)
    assert found.keys() >= stored.keys()


@pytest.mark.parametrize("name", AVRO)
def test_real_avro_bodies_are_written_again_byte_for_byte(name):
    kind, data = vector(name)
    written = encode_body(kind, decode_body(kind, data))
    assert decode_body(kind, written) == decode_body(kind, data)
    assert name in FEWER_FIELDS or block(written) == block(data)


@pytest.mark.parametrize("name", AVRO)
def test_a_release_reads_with_its_own_schema_what_is_written(name):
    kind, data = vector(name)
    reader = fastavro.reader(io.BytesIO(data))
    schema, (stored,) = json.loads(reader.metadata["avro.schema"]), reader
    written = encode_body(kind, decode_body(kind, data))
    assert list(fastavro.reader(io.BytesIO(written), schema)) == [stored]


@pytest.mark.parametrize("name", AVRO)
def test_schemas_are_those_of_real_files(name):
    kind, data = vector(name)
    if name in FEWER_FIELDS:
        return
    stored = json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])
    assert structure(json.loads(body_schema(kind))) == structure(stored)


def structure(node):
    """Return what makes the bytes and what Java makes of them; docs are left out."""
    if isinstance(node, list):
        return [structure(part) for part in node]
    if not isinstance(node, dict):
        return node
    kept = {key: structure(node[key]) for key in ("type", "items", "values", "namespace", "name") if key in node}
    kept["java"] = node.get("avro.java.string")
    if "fields" in node:
        kept["fields"] = [(f["name"], structure(f["type"]), "default" in f, f.get("default")) for f in node["fields"]]
    return kept["type"] if set(kept) == {"type", "java"} and kept["java"] is None else kept


@pytest.mark.parametrize("kind", BodyKind)
def test_schemas_are_avro(kind):
    for text in (body_schema(kind), reader_schema(kind)):
        assert fastavro.parse_schema(json.loads(text))["name"] == f"org.apache.hudi.avro.model.{kind.value}"


def test_every_record_is_used():
    texts = "".join(body_schema(kind) for kind in BodyKind)
    assert [name for name in RECORDS if f'"name":"{name}"' not in texts] == []


# ------------------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("name", JSON)
def test_real_json_bodies_are_read(name):
    kind, data = vector(name)
    stored = json.loads(data)
    found = decode_body(kind, data, what=name)
    assert {key: found[key] for key in stored if key != "partitionToWriteStats"} == {
        key: value for key, value in stored.items() if key != "partitionToWriteStats"
    }
    for partition, stats in stored["partitionToWriteStats"].items():
        for stat, row in zip(stats, found["partitionToWriteStats"][partition], strict=True):
            assert row == {key: value for key, value in stat.items() if key in WRITE_STAT_FIELDS}


@pytest.mark.parametrize("name", JSON)
def test_json_bodies_are_written_again(name):
    kind, data = vector(name)
    record = decode_body(kind, data)
    assert without_nulls(decode_body(kind, encode_json_commit(record))) == without_nulls(record)
    as_avro = decode_body(kind, encode_body(kind, record))
    assert without_nulls(as_avro) == without_nulls(record)


def test_the_text_of_a_json_commit():
    stat = {"fileId": "f-0", "path": "p/é.parquet", "numWrites": 3, "logFiles": ["a", "b"], "tempPath": None}
    record = {
        "partitionToWriteStats": {"p": [stat, {"fileId": ""}], "q": []},
        "compacted": False,
        "extraMetadata": {"schema": '{"type":"record"}'},
        "version": 1,
        "operationType": "UPSERT",
    }
    assert encode_json_commit(record).decode() == (
        '{\n  "partitionToWriteStats" : {\n    "p" : [ {\n      "fileId" : "f-0",\n      "path" : "p/é.parquet",\n'
        '      "numWrites" : 3,\n      "logFiles" : ["a",\n      "b"]\n    }, {\n      "fileId" : ""\n    } ],\n'
        '    "q" : [ ]\n  },\n  "compacted" : false,\n  "extraMetadata" : {\n'
        '    "schema" : "{\\"type\\":\\"record\\"}"\n  },\n  "operationType" : "UPSERT"\n}'
    )


@pytest.mark.parametrize(
    "record",
    [
        {"extraMetadata": {"a": "\ud800"}},
        {"extraMetadata": {"a": b"x"}},
        {"partitionToWriteStats": {"p": [1]}},
        {"partitionToWriteStats": {"p": 1}},
    ],
)
def test_what_json_cannot_hold_is_refused(record):
    with pytest.raises(InvalidInputError):
        encode_json_commit(record)


STATS = '{"partitionToWriteStats":{"p":[%s]}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "nothing in it"),
        ('{"a":1}', "nothing in it"),
        ('{"partitionToWriteStats":[]}', "is a list, not a map"),
        ('{"partitionToWriteStats":{"p":{}}}', "is a dict, not a array"),
        ('{"partitionToWriteStats":{"p":["f"]}}', "is a str, not a record"),
        (STATS % "{}", "without fileId"),
        (STATS % '{"fileId":1}', "fileId is a int"),
        (STATS % '{"fileId":"f","numWrites":true}', "numWrites is a bool"),
        (STATS % '{"fileId":"f","numWrites":1.0}', "numWrites is a float"),
        (STATS % '{"fileId":"f","numWrites":NaN}', "numWrites is a float"),
        (STATS % '{"fileId":"f","numWrites":9223372036854775808}', "too large"),
        (STATS % '{"fileId":"f","logVersion":2147483648}', "too large"),
        (STATS % '{"fileId":"f","numWrites":-9223372036854775809}', "too large"),
        (STATS % '{"fileId":"f","logFiles":[1]}', "logFiles is a int"),
        (STATS % '{"fileId":"f","cdcStats":{"a":"1"}}', "cdcStats is a str"),
        (STATS % '{"fileId":"f","runtimeStats":[]}', "runtimeStats is a list"),
        ('{"partitionToWriteStats":{},"compacted":"yes"}', "compacted is a str"),
        ('{"partitionToWriteStats":{},"extraMetadata":{"a":1}}', "extraMetadata is a int"),
        ('{"partitionToWriteStats":{},"extraMetadata":{"a":"\\ud800"}}', "surrogates"),
        ('{"partitionToWriteStats":{},"operationType":7}', "operationType is a int"),
        ('{"partitionToWriteStats":{},"partitionToReplaceFileIds":{"p":"f"}}', "is a str, not a array"),
        ('{"partitionToWriteStats":{}', "damaged JSON"),
        ('{"version":%s}' % ("9" * 5000), "damaged JSON"),
        ('{"a":' * 200_000, "nested too deeply"),
    ],
)
def test_json_of_another_shape_is_refused(text, reason):
    with pytest.raises(CorruptFile, match=rf"^c\.commit: .*{reason}"):
        decode_body(BodyKind.REPLACE_COMMIT, text.encode(), what="c.commit")


def test_entries_without_a_value_are_dropped():
    data = b'{"partitionToWriteStats":null,"extraMetadata":{"schema":null,"a":"b"}}'
    found = decode_body(BodyKind.COMMIT, data)
    assert found["extraMetadata"] == {"a": "b"}
    assert found["partitionToWriteStats"] is None


# -------------------------------------------------------------------------------------------------------- emptiness


def test_where_an_empty_file_is_a_body():
    empty = {kind for kind in BodyKind if kind in (BodyKind.REQUESTED_REPLACE, BodyKind.CLEAN_METADATA)}
    for kind in BodyKind:
        if kind in empty:
            assert decode_body(kind, b"") == {}
        else:
            with pytest.raises(CorruptFile, match="it is empty"):
                decode_body(kind, b"")
    with pytest.raises(CorruptFile, match=r"x\.commit is no .*: it is empty"):
        decode_commit_rows(b"", what="x.commit")


@pytest.mark.parametrize("data", [b"x", b"[]", b"   ", b"PAR1", b"\xff\xfe{\0}\0"])
def test_bytes_of_another_kind_are_refused(data):
    for kind in BodyKind:
        with pytest.raises(CorruptFile, match=r"^f: |^f is no "):
            decode_body(kind, data, what="f")


def test_json_is_for_commits_only():
    with pytest.raises(CorruptFile, match="is no HoodieCleanerPlan"):
        decode_body(BodyKind.CLEANER_PLAN, b'{"policy":"x"}')


def test_a_body_of_another_kind_is_refused():
    plan = encode_body(BodyKind.ROLLBACK_PLAN, {})
    with pytest.raises(CorruptFile, match=r"HoodieRollbackPlan cannot be read as record .*HoodieCleanerPlan"):
        decode_body(BodyKind.CLEANER_PLAN, plan)
    replace = encode_body(BodyKind.REPLACE_COMMIT, {})
    with pytest.raises(CorruptFile):
        decode_body(BodyKind.COMMIT, replace)


def test_a_commit_can_be_read_as_a_replace_commit():
    commit = encode_body(BodyKind.COMMIT, {"operationType": "INSERT"})
    assert decode_body(BodyKind.REPLACE_COMMIT, commit)["partitionToReplaceFileIds"] is None


def test_defaults():
    assert decode_body(BodyKind.RESTORE_PLAN, encode_body(BodyKind.RESTORE_PLAN, {})) == {
        "instantsToRollback": [],
        "version": 2,
        "savepointToRestoreTimestamp": None,
    }
    plan = decode_body(BodyKind.COMPACTION_PLAN, encode_body(BodyKind.COMPACTION_PLAN, {}))
    assert plan["version"] == 1
    assert plan["preserveHoodieMetadata"] is False


@pytest.mark.parametrize(
    ("kind", "record", "field"),
    [
        (BodyKind.COMMIT, {"unknown": 1}, "unknown"),
        (BodyKind.CLEAN_METADATA, {}, "startCleanTime"),
        (BodyKind.SAVEPOINT_METADATA, {"savepointedBy": "me", "savepointedAt": "now"}, "savepointedAt"),
        (BodyKind.COMPACTION_PLAN, {"operations": [{"fileId": "f"}]}, "baseInstantTime"),
        (BodyKind.COMMIT, {"partitionToWriteStats": {"p": [{"logVersion": 1 << 31}]}}, "logVersion"),
    ],
)
def test_a_record_that_does_not_fit_names_its_field(kind, record, field):
    with pytest.raises(InvalidInputError, match=field):
        encode_body(kind, record)


def test_what_the_files_of_instants_hold():
    assert body_kind(Action.COMMIT, State.REQUESTED) is None
    assert body_kind(Action.COMPACTION, State.INFLIGHT) is None
    assert body_kind(Action.SCHEMA_COMMIT, State.COMPLETED) is None
    assert body_kind(Action.REPLACE_COMMIT, State.INFLIGHT) is BodyKind.COMMIT
    assert body_kind(Action.LOG_COMPACTION, State.REQUESTED) is BodyKind.COMPACTION_PLAN


def test_rows_of_a_commit_are_the_stats():
    for name in FILES:
        kind, data = vector(name)
        if kind not in (BodyKind.COMMIT, BodyKind.REPLACE_COMMIT):
            continue
        stats = decode_body(kind, data)["partitionToWriteStats"]
        rows = decode_commit_rows(data)["partitionToWriteStats"]
        assert {p: [dict(zip(WRITE_STAT_FIELDS, row, strict=True)) for row in of] for p, of in rows.items()} == {
            p: [dict.fromkeys(WRITE_STAT_FIELDS) | stat for stat in of] for p, of in stats.items()
        }
