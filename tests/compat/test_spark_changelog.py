"""Logs of a changelog, as Flink writes them with ``hoodie.allow.operation.metadata.field``: some of their rows delete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.formats.log_blocks import BlockKind, HeaderKey, ReadAt, encode_block, scan_blocks
from lakefmt._core.formats.log_data_block import BlockHeader, decode_avro_content, encode_data_block
from lakefmt._core.table import Table
from lakefmt._core.values import FILE_NAME, META_COLUMNS, OPERATION
from lakefmt.errors import SchemaMismatch, UnsupportedFeature
from tests.compat.tables import SMALL_FILTERS, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge

META = (*META_COLUMNS, OPERATION)
#: What the rows of the log do, by key. Hudi 0.15 takes no row before an update for a delete: the row behind it tells.
OPERATIONS = {6: ["I", "U", "D", "D", "I", "U"], 8: ["I", "U", "D", "-U", "I", "U"], 9: ["I", "U", "D", "-U", "I", "U"]}


def reader_of(data: bytes) -> ReadAt:
    """Return what reads bytes at an offset."""
    return lambda at, size: data[at : at + size]


def with_operations(data: bytes, operations: list[str], what: str) -> bytes:
    """Return a log whose rows have the sixth meta column, behind the other five, in the order of their keys."""
    blocks = []
    for block in scan_blocks(reader_of(data), len(data), what):
        content = data[block.content_start : block.content_start + block.content_size]
        assert block.kind is BlockKind.AVRO_DATA
        assert block.schema is not None
        rows = decode_avro_content(content, block.schema, what=what)
        schema = json.loads(block.schema)
        place = len(META_COLUMNS)
        schema["fields"].insert(place, {"name": OPERATION, "type": ["null", "string"], "default": None})
        kinds = [operations[int(key[-1])] for key in rows.column("id").to_pylist()]
        rows = rows.add_column(place, OPERATION, pa.array(kinds, pa.string()))
        text = json.dumps(schema)
        encoded = encode_data_block(rows, BlockHeader(block.instant_time or "", text))
        (made,) = scan_blocks(reader_of(encoded), len(encoded), what)
        body = encoded[made.content_start : made.content_start + made.content_size]
        blocks.append(encode_block(block.kind, {**block.header, HeaderKey.SCHEMA: text}, body))
    return b"".join(blocks)


def changelog_table(root: Path, version: int, kind: str = "mor") -> Table:
    """Return a table of eight rows, six of which a log changes."""
    table = lakefmt.create_table(
        root, schema=plain_rows(1).schema, record_key="id", ordering="ts", table_type=kind, table_version=version,
        options=SMALL_FILTERS,
    )  # fmt: skip
    table.upsert(plain_rows(8, 1))
    table.upsert(plain_rows(6, 2))
    (log,) = (path for path in root.rglob("*.log.*") if not path.name.endswith(".crc"))
    log.write_bytes(with_operations(log.read_bytes(), OPERATIONS[version], log.name))
    return lakefmt.open_table(root)


def left(later: int) -> pa.Table:
    """Return the rows that the log leaves: those of a deleting operation are gone."""
    changed = plain_rows(6, 2).filter(pa.array([kind not in ("D", "-U") for kind in OPERATIONS[9]]))
    return pa.concat_tables([changed, plain_rows(2, 1, 6), plain_rows(2, 3, 20).slice(0, later)])


def check(root: Path, spark: SparkJudge, version: int) -> None:
    """Both read the same rows: at first, after a compaction by lakefmt, and after writes of both."""
    table = changelog_table(root, version)
    names = plain_rows(1).column_names
    assert_same_multiset(table.read(names), left(0), what="ours")
    spark.assert_same_rows(root, left(0), ignore_columns=META)
    table.compact()
    spark.assert_same_rows(root, left(0), ignore_columns=META)
    table.upsert(plain_rows(1, 3, 20))
    spark.write(root, plain_rows(2, 3, 20), index="SIMPLE")
    assert_same_multiset(table.read(names), left(2), what="after both wrote")
    spark.assert_same_rows(root, left(2), ignore_columns=META)


@pytest.mark.parametrize("version", [8, 9])
def test_spark_and_lakefmt_take_the_same_rows_of_a_changelog(
    tmp_path: Path, spark_judge: SparkJudge, version: int
) -> None:
    check(tmp_path / "t", spark_judge, version)


def test_hudi_0_15_and_lakefmt_take_the_same_rows_of_a_changelog(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
    check(tmp_path / "t", spark_judge_0150, 6)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_rows_of_a_changelog_that_delete(tmp_path: Path, version: int) -> None:
    table = changelog_table(tmp_path / "t", version)
    names = plain_rows(1).column_names
    assert_same_multiset(table.read(names), left(0), what="ours")
    assert_same_multiset(table.read(["v"]), left(0).select(["v"]), what="columns that do not say it")
    table.upsert(plain_rows(6, 3))
    table.compact()
    expected = pa.concat_tables([plain_rows(6, 3), plain_rows(2, 1, 6)])
    assert_same_multiset(table.read(names), expected, what="compacted")
    assert table.check("full").is_clean


def test_the_column_is_taken_for_a_meta_column() -> None:
    """Data that were read with meta columns can be written again; a table has no column of this name."""
    rows = plain_rows(3)
    with pytest.raises(SchemaMismatch, match=OPERATION):
        lakefmt.create_table(
            "memory://changelog", schema=rows.schema.append(pa.field(OPERATION, pa.string())), record_key="id"
        )
    table = lakefmt.create_table("memory://changelog", schema=rows.schema, record_key="id")
    table.upsert(rows.append_column(OPERATION, pa.array(["D"] * 3)).append_column(FILE_NAME, pa.array(["x"] * 3)))
    assert_same_multiset(table.read(), rows, what="stored")


def as_if_by_flink(root: Path) -> Table:
    """Give the logs of a table a write token of Flink's, in their names and in the commits."""
    for log in [path for path in root.rglob("*.log.*") if not path.name.endswith(".crc")]:
        named = f"{log.name.rpartition('_')[0]}_0-1-0"
        log.rename(log.with_name(named))
        for commit in (root / ".hoodie").glob("*.deltacommit"):
            commit.write_text(commit.read_text("utf-8").replace(log.name, named), "utf-8")
    return lakefmt.open_table(root)


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.upsert(plain_rows(1, 3)),
        lambda table: table.delete(["k7"]),
        lambda table: table.update("id is not null", {"v": 2.5}),
        lambda table: table.insert_overwrite(plain_rows(1, 3)),
        lambda table: table.alter.add_column("more", pa.string()),
        lambda table: table.upsert(plain_rows(1, 3), dry_run=True),
    ],
    ids=["upsert", "delete", "update", "overwrite", "alter", "dry_run"],
)
def test_no_write_hides_from_flink_which_rows_delete(tmp_path: Path, write: Callable[[Table], object]) -> None:
    """Flink itself is asked in test_flink_turns.py."""
    changelog_table(tmp_path / "t", 6)
    table = as_if_by_flink(tmp_path / "t")
    before = [entry.time for entry in table.timeline.entries]
    with pytest.raises(UnsupportedFeature, match="compact"):
        write(table)
    assert [entry.time for entry in lakefmt.open_table(tmp_path / "t").timeline.entries] == before
    assert_same_multiset(table.read(plain_rows(1).column_names), left(0), what="as before")
    table.compact()
    write(table)
