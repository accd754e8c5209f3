"""Encode and decode change blocks (docs/format.md, Change files). Pure.

A change has an operation and, by logging mode, the record key and images. Images are rows of the
table without meta columns; both share one named type, as in Hudi.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.table_config import CdcMode
from lakefmt._core.formats.log.blocks import BlockKind
from lakefmt._core.formats.log.data_block import BlockHeader, decode_avro_content, encode_data_block
from lakefmt.errors import CorruptFile

__all__ = ["AFTER", "BEFORE", "KEY", "OP", "TS_MS", "build_cdc_schema", "decode_cdc_content", "encode_cdc_blocks"]

OP, KEY, TS_MS, BEFORE, AFTER = "op", "record_key", "ts_ms", "before", "after"

#: Arrow bytes of changes per block; Hudi's default.
_BLOCK_BYTES = 256 << 20
_TEXTS = (OP, KEY, TS_MS)
_IMAGES = (BEFORE, AFTER)


def build_cdc_schema(table_schema: str, mode: CdcMode) -> str:
    """Return the Avro schema of a table's changes.

    Parameters:
        table_schema: Avro JSON without meta columns.
        mode: the supplemental logging mode.

    Source: docs/format.md, Change files.

    Example:
        >>> table = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'
        >>> [field["name"] for field in json.loads(build_cdc_schema(table, CdcMode.DATA_BEFORE))["fields"]]
        ['op', 'record_key', 'before']
    """
    if mode is CdcMode.OP_KEY_ONLY:
        texts = [{"name": name, "type": ["string", "null"]} for name in (OP, KEY)]
        return json.dumps({"type": "record", "name": "Record", "fields": texts}, separators=(",", ":"))
    image = json.loads(table_schema)
    namespace = image.get("namespace")
    full_name = f"{namespace}.{image['name']}" if namespace else image["name"]
    has_both = mode is CdcMode.DATA_BEFORE_AFTER
    fields = [_field(OP, "string"), _field(TS_MS if has_both else KEY, "string"), _field(BEFORE, image)]
    if has_both:
        fields.append(_field(AFTER, full_name))
    record = {"type": "record", "name": "CDC", **({"namespace": namespace} if namespace else {}), "fields": fields}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "doc": "", "default": None}


def encode_cdc_blocks(changes: pa.Table, instant: str, schema: str) -> Iterator[bytes]:
    """Yield changes as blocks: at least one, as Hudi does, so that an empty file means no changes.

    Parameters:
        changes: the columns of `schema`.
        instant: requested time of the write.
        schema: a result of :func:`build_cdc_schema`.

    Raises:
        SchemaMismatch: the columns do not fit the schema.

    Source: docs/format.md, Data blocks; Change files.

    Example:
        >>> from lakefmt._core.formats.log.blocks import scan_blocks
        >>> rows = pa.table({"op": ["d"], "record_key": ["a"]})
        >>> schema = build_cdc_schema("{}", CdcMode.OP_KEY_ONLY)
        >>> data, = encode_cdc_blocks(rows, "20260101000000000", schema)
        >>> [block.kind.name for block in scan_blocks(lambda at, n: data[at : at + n], len(data), "a.cdc")]
        ['CDC_DATA']
    """
    header = BlockHeader(instant, schema)
    step = max(1, int(changes.num_rows * _BLOCK_BYTES / max(_BLOCK_BYTES, changes.nbytes)))
    for start in range(0, max(1, changes.num_rows), step):
        yield encode_data_block(changes.slice(start, step), header, BlockKind.CDC_DATA)


def decode_cdc_content(content: bytes | memoryview, schema: str, *, what: str) -> pa.Table:
    """Return the changes of a block: ``op``, and if present ``record_key``, ``before``, ``after``.

    Parameters:
        content: the content of the block.
        schema: Avro JSON from its header.
        what: the file's name in errors.

    Raises:
        CorruptFile: content or schema is damaged, or an operation is not ``i``, ``u`` or ``d``.
        UnsupportedFeature: an unsupported type.

    Source: docs/format.md, Change files.

    Example:
        >>> content = bytes.fromhex("00000003 00000001 00000006 0002 75 0002 6b".replace(" ", ""))
        >>> decode_cdc_content(content, build_cdc_schema("{}", CdcMode.OP_KEY_ONLY), what="a.cdc").to_pylist()
        [{'op': 'u', 'record_key': 'k'}]
    """
    rows = decode_avro_content(content, schema, what=what)
    for field in rows.schema:
        sound = pt.is_string(field.type) if field.name in _TEXTS else pt.is_struct(field.type)
        if field.name not in (*_TEXTS, *_IMAGES) or not sound:
            raise CorruptFile(f"{what}: a block of changes has the column {field.name!r} of type {field.type}")
    if OP not in rows.column_names or not ({KEY} & set(rows.column_names) or set(_IMAGES) <= set(rows.column_names)):
        raise CorruptFile(f"{what}: a block of changes says neither keys nor images: {rows.column_names}")
    is_operation = pc.is_in(rows.column(OP), value_set=pa.array(["i", "u", "d"]))
    if not pc.all(is_operation, min_count=0).equals(pa.scalar(True)):
        raise CorruptFile(f"{what}: a change is none of i, u, d")
    return rows
