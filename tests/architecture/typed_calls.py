"""Calls as a program makes them: type checkers take all of them but those with ``# type: ignore``, which they refuse.

Nothing here is run. `make types` checks the file with mypy and pyright, which also name an ignore that is not needed any
more; ``test_typed_calls.py`` asks pyright which calls are wrong.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import timedelta
from typing import Any, Unpack

import pyarrow as pa

import lakefmt
import lakefmt.lowlevel
import lakefmt.spark
from lakefmt.options import ReadOptions, WriteOptions
from lakefmt.realtime import Connection


def write_by_every_verb(table: lakefmt.Table, rows: pa.Table, options: dict[str, Any]) -> None:
    table.upsert(rows, partial=True, options={"hoodie.clean.automatic": False}, commit_metadata={"job": "7"})
    table.upsert(rows, on_commit=print, schema_change="strict", dry_run=True)
    table.upsert(rows, options=None, commit_metadata=None, on_commit=None)
    table.upsert(rows, **options)
    table.upsert(rows, comit_metadata={"job": "7"})  # type: ignore[call-arg]
    table.upsert(rows, commit_metadata={"job": 7})  # type: ignore[dict-item]
    table.upsert(rows, option={})  # type: ignore[call-arg]
    table.upsert(rows, dryrun=True)  # type: ignore[call-arg]
    table.upsert(rows, dry_run="yes")  # type: ignore[arg-type]
    table.upsert(rows, on_commit="print")  # type: ignore[arg-type]
    table.insert(rows, drop_duplicates=True, options={})
    table.insert(rows, drop_duplicate=True)  # type: ignore[call-arg]
    table.bulk_insert(rows, sort="zorder:a,b", drop_duplicates=True, dry_run=True)
    table.bulk_insert(rows, sorted="global")  # type: ignore[call-arg]
    table.sort_on_write(rows, ["a", "b"], order="hilbert", options={})
    table.sort_on_write(rows, "a", schema_chnge="add")  # type: ignore[call-arg]
    table.insert_overwrite(rows, schema_change="add")
    table.insert_overwrite(rows, sort="none")  # type: ignore[call-arg]
    table.insert_overwrite_table(rows, commit_metadata={})
    table.insert_overwrite_table(rows, metadata={})  # type: ignore[call-arg]
    table.delete_partitions(["city=sf"], dry_run=True)
    table.delete_partitions(["city=sf"], force=True)  # type: ignore[call-arg]
    table.update("v = 2", {"v": 3}, options={})
    table.update("v = 2", {"v": 3}, where="v = 2")  # type: ignore[call-arg]
    table.update("v = 2", expressions={"v": "v * 2"}, dry_run=True)
    table.merge(rows, "id").when_matched({"v": "s.v"}).when_not_matched(True).execute(options={}, dry_run=True)
    table.merge(rows, ["id"]).when_not_matched_by_source(delete=True, where="t.v = 1").execute(commit_metadata={})
    table.merge(rows).when_matched(where="s.v > 1").execute(option={})  # type: ignore[call-arg]
    table.merge(rows).when_matched("every")  # type: ignore[arg-type]
    table.delete("v = 2", partitions="sf", commit_metadata={"why": "asked"})
    table.delete("v = 2", partition="sf")  # type: ignore[call-arg]
    table.append(rows, txn=("loader", 1), watermark=5, options={})
    table.append(rows, transaction=("loader", 1))  # type: ignore[call-arg]
    table.overwrite(rows, mode="static", partitions=["sf"], dry_run=True)
    table.overwrite(rows, mod="static")  # type: ignore[call-arg]
    table.expire_partitions(timedelta(days=30), by="update", dry_run=True, commit_metadata={"why": "old"})
    table.expire_partitions(timedelta(days=30), dryrun=True)  # type: ignore[call-arg]


def create_open_and_write(rows: pa.Table) -> None:
    lakefmt.create_table("t", data=rows, record_key="id", options={"lakefmt.create.types": "keep"})
    lakefmt.create_table("t", data=rows, recordkey="id")  # type: ignore[call-arg]
    lakefmt.open_table("t", options={}, storage_options={"key": "k"})
    lakefmt.open_table("t", storage_option={})  # type: ignore[call-arg]
    lakefmt.write_table("t", rows, record_key="id", mode="append", options={}, partial=True, dry_run=True)
    lakefmt.write_table("t", rows, operation="bulk_insert", sort="global", drop_duplicates=True)
    lakefmt.write_table("t", rows, comit_metadata={})  # type: ignore[call-arg]
    lakefmt.write_table("t", rows, partial="yes")  # type: ignore[arg-type]


def read_in_every_way(table: lakefmt.Table, connection: Any, **call: Unpack[ReadOptions]) -> None:
    table.to_pandas(columns=["a"], filter=[("a", ">", 1)], as_of="20260101000000000", query="read_optimized")
    table.to_pandas(meta_columns=True, schema_of="now", include_uncommitted=True)
    table.to_pandas(column=["a"])  # type: ignore[call-overload]
    table.to_polars(filter="a > 1")
    table.to_polars(**call)
    table.to_polars(filer="a > 1")  # type: ignore[call-arg]
    table.to_duckdb(connection, "view", as_of=None)
    table.to_duckdb(connection, "view", asof=None)  # type: ignore[call-arg]
    table.read(fliter="a > 1")  # type: ignore[call-arg]


def call_every_namespace(table: lakefmt.Table, **call: Unpack[WriteOptions]) -> None:
    table.alter.add_column("v", pa.int64(), after="a", comment="a number", commit_metadata={})
    table.alter.add_column("v", pa.int64(), coment="a number")  # type: ignore[call-arg]
    table.alter.drop_column("v", **call)
    table.alter.drop_column("v", cascade=True)  # type: ignore[call-arg]
    table.alter.rename_column("v", "w", dry_run=True)
    table.alter.rename_column("v", "w", dry=True)  # type: ignore[call-arg]
    table.alter.update_column("v", type=pa.string(), nullable=True, options={})
    table.alter.update_column("v", null=True)  # type: ignore[call-arg]
    table.index.create("secondary_index", "city", name="by_city", options={})
    table.index.create("secondary_index", colums="city")  # type: ignore[call-arg]
    table.compact(where="a > 1", partitions=["sf"], schedule=True, options={})
    table.compact(partitons=["sf"])  # type: ignore[call-arg]
    table.cluster("a", order="zorder", where=[("a", ">", 1)], dry_run=True)
    table.cluster("a", orders="zorder")  # type: ignore[call-arg]
    table.clean(dry_run=True, options={})
    table.clean(retain=1)  # type: ignore[call-arg]
    table.savepoint(comment="before the move", options={})
    table.savepoint(coment="before the move")  # type: ignore[call-arg]
    table.tags.create("friday", options={})
    table.tags.create("friday", option={})  # type: ignore[call-arg]
    table.stream(follow=False, columns=["a"], consumer_id="c")
    table.stream(folow=False)  # type: ignore[call-arg]


def open_streams(table: lakefmt.Table, connection: Connection) -> None:
    table.open_stream("upsert", writer_id="w", flush_interval=1000, flush_mode="manual_flush", properties={})
    table.open_stream(flush_intervall=1000)  # type: ignore[call-arg]
    table.open_stream(flush_interval="soon")  # type: ignore[arg-type]
    table.open_stream_async(writer_id="w", options={"commit_interval": 0}, allow_new_columns=True)
    table.open_stream_async(writer="w")  # type: ignore[call-arg]
    connection.get_realtime_stream(table="t", writer_id="w", commit_interval=0)
    connection.get_realtime_stream(table="t", writer="w")  # type: ignore[call-arg]


def call_the_steps(table: lakefmt.Table, rows: pa.Table) -> None:
    lakefmt.lowlevel.begin_write(table, "upsert", {"hoodie.clean.automatic": False}, commit_metadata={}, partial=True)
    lakefmt.lowlevel.begin_write(table, "upsert", commit_meta={})  # type: ignore[call-arg]
    lakefmt.lowlevel.begin_write(table, drop_duplicate=True)  # type: ignore[call-arg]


def call_from_spark(df: Any, spark: Any, texts: dict[str, str]) -> None:
    lakefmt.spark.write(df, "t", "append", commit_metadata={"job": "7"}, progress=True)
    lakefmt.spark.write(df, "t", comit_metadata={"job": "7"})  # type: ignore[call-arg]
    lakefmt.spark.write(df, "t", progres=True)  # type: ignore[call-arg]
    lakefmt.spark.explain_write(df, "t", **texts)
    lakefmt.spark.explain_write(df, "t", **{"hoodie.table.name": "t", "storage.key": "k"})
    lakefmt.spark.explain_write(df, "t", explain=True)  # type: ignore[call-arg]
    lakefmt.spark.read(spark, "t", **texts)
    lakefmt.spark.read(spark, "t", **{"as.of.instant": "20260101000000000", "lakefmt.meta_columns": False})
    lakefmt.spark.read(spark, "t", columns=["a"])  # type: ignore[call-arg]
    lakefmt.spark.stream_batch("t", output_mode="complete", checkpointLocation="/c")
    lakefmt.spark.stream_batch("t", outputmode="complete")  # type: ignore[call-arg]
    lakefmt.spark.compact(spark, "t", schedule=True, verify=True)
    lakefmt.spark.compact(spark, "t", verfy=True)  # type: ignore[call-arg]
    lakefmt.spark.cluster(spark, "t", "a", order="zorder", where="a > 1")
    lakefmt.spark.cluster(spark, "t", "a", filter="a > 1")  # type: ignore[call-arg]
    lakefmt.spark.clean(spark, "t", schedule=True)
    lakefmt.spark.clean(spark, "t", dry_run=True)  # type: ignore[call-arg]
