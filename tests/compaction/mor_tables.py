"""Small merge-on-read tables, laid down deltacommit by deltacommit without the write road."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pyarrow as pa

import lakefmt
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.base_writer import write_base_file
from lakefmt._core.formats.log_data_block import BlockHeader, encode_data_block
from lakefmt._core.formats.log_delete_block import delete_records, encode_delete_block
from lakefmt._core.schema import arrow_to_avro
from lakefmt._core.storage.api import PutOutcome
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import Action, parse_instant_time
from lakefmt._core.timeline.store import load_properties, update_properties
from lakefmt._core.values import META_COLUMNS, WriteOperation, WriteStat

OPTIONS = {"lakefmt.durability": "none", "hoodie.clean.automatic": False}
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
GROUPS = {"x": "f0000000-0000-4000-8000-000000000000-0", "y": "f1111111-0000-4000-8000-000000000000-0"}
NUMBERS = count()


def rows(keys: Sequence[str], ts: int = 1, v: float = 0.0, partition: str = "x") -> pa.Table:
    """Return rows that differ by what a test wants them to differ by."""
    n = len(keys)
    return pa.table([list(keys), [partition] * n, [ts] * n, [v] * n], schema=SCHEMA)


class MorTable:
    """A merge-on-read table of one file group per partition, and the hand that writes it.

    Parameters:
        url: where it will be.
        version: its table version.
        ordering: the column whose larger value wins; None: the later write wins.
    """

    def __init__(self, url: str, version: int = 8, ordering: str | None = "ts") -> None:
        self.table: Table = lakefmt.create_table(
            url,
            schema=SCHEMA,
            record_key="id",
            partition_by="p",
            ordering=ordering,
            table_version=version,
            options=OPTIONS,
        )
        client = self.table.client
        beginning = parse_instant_time("20260101000000000")
        update_properties(client.store, {"hoodie.table.type": "MERGE_ON_READ"}, beginning, durable=False)
        assert load_properties(client.store)["hoodie.table.type"] == "MERGE_ON_READ"
        name = client.load_config().name
        self.ordering = ordering
        self.schema_text, self.plain_text = arrow_to_avro(SCHEMA, name, with_meta=True), arrow_to_avro(SCHEMA, name)

    def base(self, data: pa.Table, partition: str = "x") -> str:
        """Commit a base file; return its instant."""
        return self.complete(*self.write_base(self.begin(), data, partition))

    def write_base(self, time: str, data: pa.Table, partition: str = "x") -> tuple[str, WriteStat]:
        """Write a base file of the pending instant `time`; return what completes it."""
        name = f"{GROUPS[partition]}_0-1-0_{time}.parquet"
        store = self.table.client.store
        path = f"{self._directory(partition)}/{name}"
        store.put_if_absent(
            f"{self._directory(partition)}/.hoodie_partition_metadata", b"commitTime=1\npartitionDepth=1\n"
        )
        stored = self._with_meta(data, time, name)
        size = write_base_file(store, path, stored, self.schema_text, resolve_settings(OPTIONS))
        stat = WriteStat(
            GROUPS[partition],
            self._directory(partition),
            path,
            num_writes=data.num_rows,
            num_inserts=data.num_rows,
            file_size_in_bytes=size,
            total_write_bytes=size,
        )
        return time, stat

    def log(
        self, data: pa.Table | None = None, deletes: Sequence[str] = (), ts: int | None = None, partition: str = "x"
    ) -> str:
        """Commit a log with a data block, a delete block or both; `ts`: the deletes' ordering value. Returns the instant."""
        return self.complete(*self.write_log(self.begin(), data, deletes, ts, partition))

    def write_log(
        self, time: str, data: pa.Table | None, deletes: Sequence[str] = (), ts: int | None = None, partition: str = "x"
    ) -> tuple[str, WriteStat]:
        """Write a log of the pending instant `time`; return what completes it."""
        header = BlockHeader(time, self.schema_text)
        blocks = b""
        if data is not None:
            blocks += encode_data_block(self._with_meta(data, time, GROUPS[partition]), header)
        if deletes:
            keys, places = pa.array(deletes, pa.string()), pa.array([self._directory(partition)] * len(deletes))
            order = [] if self.ordering is None else [pa.array([ts] * len(deletes), pa.int64())]
            blocks += encode_delete_block(delete_records(keys, places, *order), header)
        name = self._log_name(time, partition)
        path = f"{self._directory(partition)}/{name}"
        store = self.table.client.store
        store.put_if_absent(
            f"{self._directory(partition)}/.hoodie_partition_metadata", b"commitTime=1\npartitionDepth=1\n"
        )
        assert store.put_if_absent(path, blocks) is PutOutcome.DONE
        stat = WriteStat(
            GROUPS[partition],
            self._directory(partition),
            path,
            prev_commit=time,
            num_update_writes=0 if data is None else data.num_rows,
            num_deletes=len(deletes),
            file_size_in_bytes=len(blocks),
            total_write_bytes=len(blocks),
            base_file="",
            log_files=(name,),
            log_version=1,
            log_offset=0,
        )
        return time, stat

    def begin(self) -> str:
        """Take a new deltacommit to inflight; return its time."""
        client = self.table.client
        state = client.load()
        time = client.instant_clock(state.config).next(state.timeline.highest_time)
        timeline = client.timeline_store(state.config, durable=False)
        timeline.request(time, Action.DELTA_COMMIT)
        timeline.start(time, Action.DELTA_COMMIT)
        return time

    def complete(self, time: str, stat: WriteStat) -> str:
        """Complete a deltacommit; return its requested time."""
        client = self.table.client
        state = client.load()
        body = encode_commit(
            CommitMetadata(WriteOperation.UPSERT, (stat,), extra_metadata={"schema": self.plain_text}),
            state.config.version,
            replace=False,
        )
        done = client.instant_clock(state.config).next(state.timeline.highest_time)
        client.timeline_store(state.config, durable=False).complete(time, Action.DELTA_COMMIT, done, body)
        return time

    def _log_name(self, time: str, partition: str) -> str:
        """Return a new log's name: with its own instant, in version 6 with that of the slice it goes to."""
        client = self.table.client
        state = client.load()
        if state.config.version.layout > 1:
            return f".{GROUPS[partition]}_{time}.log.1_0-1-0"
        bases, logs = client.listing(state.config).files(None)
        mine = [f for f in bases if f.file_id == GROUPS[partition] and state.timeline.is_committed(f.instant)]
        waiting = [i.time for i in state.timeline.pending if i.action is Action.COMPACTION]
        carried = [log.instant for log in logs if log.file_id == GROUPS[partition]]
        at = max([*(f.instant for f in mine), *waiting], default=max(carried, default=time))
        taken = [log.version for log in logs if log.file_id == GROUPS[partition] and log.instant == at]
        return f".{GROUPS[partition]}_{at}.log.{max(taken, default=0) + 1}_0-1-0"

    def _directory(self, partition: str) -> str:
        return f"p={partition}"

    def _with_meta(self, data: pa.Table, time: str, file_name: str) -> pa.Table:
        n = data.num_rows
        meta = [
            [time] * n,
            [f"{time}_0_{k}" for k in range(n)],
            data.column("id"),
            [f"p={value}" for value in data.column("p").to_pylist()],
            [file_name] * n,
        ]
        columns = [pa.array(c, pa.string()) if isinstance(c, list) else c for c in meta]
        return pa.table([*columns, *data.columns], names=[*META_COLUMNS, *SCHEMA.names])


def fresh_name() -> str:
    """Return a name for a store in memory that nobody has used."""
    return f"compact-{next(NUMBERS)}"
