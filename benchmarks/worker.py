"""One peer's process: requests as JSON lines on standard input, answers as JSON lines on standard output.

    python -m benchmarks.worker PEER

Runs in the peer's own environment, which may lack everything but pyarrow, NumPy and the peer. A request is
``{"op": …}``; an answer holds what the operation gives, or ``error``. Seconds are those of the peer's own call: data is
read from its file before, rows are digested after. Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import memory
from benchmarks.harness.data import PARTITION, SUMMED, load_table, stored_batches, streamed, totals
from benchmarks.harness.digest import digest
from benchmarks.peers.base import NotOffered, Peer

#: Module and class by the name of the peer.
PEERS = {
    "lakefmt": ("lakefmt_peer", "LakefmtPeer"),
    "pyarrow": ("pyarrow_peer", "PyarrowPeer"),
    "deltalake": ("delta_peer", "DeltaPeer"),
    "ducklake": ("ducklake_peer", "DuckLakePeer"),
    "pypaimon": ("paimon_peer", "PaimonPeer"),
    "pyiceberg": ("iceberg_peer", "IcebergPeer"),
    "hudi-spark": ("spark_peer", "SparkPeer"),
}
Answer = dict[str, Any]


class Worker:
    """Answers requests about one table at a time."""

    def __init__(self, peer: str) -> None:
        module, name = PEERS[peer]
        self.kind: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
        self.peer: Peer | None = None

    def answer(self, request: dict[str, Any]) -> Answer:
        """Do what one request asks."""
        operation: Callable[..., Answer] = getattr(self, f"do_{request.pop('op')}")
        return operation(**request)

    def _open(self) -> Any:
        if self.peer is None:
            raise RuntimeError("no table is open")
        return self.peer

    def do_versions(self) -> Answer:
        versions = {name: importlib.metadata.version(name) for name in self.kind.packages}
        return {"versions": versions, "durability": self.kind.durability}

    def do_use(self, path: str, columns: dict[str, str], options: dict[str, Any], schema: str | None = None) -> Answer:
        """Take up the table at `path`; with the path of a file of `schema`, make it first."""
        self.do_close()
        self.peer = self.kind(path, columns, options)
        if schema is None:
            self.peer.open()
        else:
            self.peer.create(load_table(schema).schema)
        return {}

    def do_close(self) -> Answer:
        if self.peer is not None:
            self.peer.close()
        self.peer = None
        return {}

    def do_load(self, data: str) -> Answer:
        peer = self._open()
        return _timed(peer.load, peer.prepare(load_table(data)))

    def do_upsert(self, data: str, start: int = 0, rows: int | None = None) -> Answer:
        peer = self._open()
        return _timed(peer.upsert, peer.prepare(_own(load_table(data).slice(start, rows))))

    def do_appends(self, data: str, first: int, count: int, rows: int) -> Answer:
        """`count` commits of `rows` rows each, timed one by one."""
        whole = _own(load_table(data))
        pieces = [whole.slice((first + number) * rows, rows).combine_chunks() for number in range(count)]
        peer = self._open()
        gc.collect()  # once: before each commit it would take longer than the commit
        each = []
        for piece in map(peer.prepare, pieces):
            begin = time.perf_counter()
            peer.append(piece)
            each.append(time.perf_counter() - begin)
        return {"each": each}

    def do_cold(
        self,
        job: str,
        path: str,
        columns: dict[str, str],
        options: dict[str, Any],
        data: str,
        rows: int | None = None,
        warm: bool = False,
    ) -> Answer:
        """Open a table and do one job with it; what the peer leaves in the page cache is synced, in its time.

        With `warm` the table is opened, and the job done with a first row, before the time begins.
        """
        whole = _own(load_table(data))
        peer = self.kind(path, columns, options)
        given = peer.prepare(whole if rows is None else whole.slice(0, rows))
        if warm:
            peer.open()
            getattr(peer, job)(peer.prepare(whole.slice(0, 1)))
        before = _files_below(path)

        def run() -> None:
            if not warm:
                peer.open()
            getattr(peer, job)(given)
            if not peer.syncs:
                _sync(file for file, changed in _files_below(path).items() if before.get(file) != changed)

        answer = _timed(run)
        peer.close()
        return answer

    def do_compact(self) -> Answer:
        return _timed(self._open().compact)

    def do_scan(self) -> Answer:
        found: list[pa.Table] = []
        before = memory.bytes_read()
        timed = _timed(lambda: found.append(self._open().scan()))
        after, peak = memory.bytes_read(), memory.peak()
        read = None if before is None or after is None else after - before
        return timed | {"digest": digest(found[0]), "read": read, "returned": found[0].nbytes, "peak": peak}

    def do_behind(self) -> Answer:
        return {"commits": self._open().behind()}

    def do_look_up(self, keys: str) -> Answer:
        wanted = _own(load_table(keys)).column(0).combine_chunks()
        found: list[pa.Table] = []
        timed = _timed(lambda: found.append(self._open().look_up(wanted)))
        return timed | {"digest": digest(found[0])}

    def do_reopen(self, times: int) -> Answer:
        return {"each": [_timed(self._open().open)["seconds"] for _ in range(times)]}

    def do_files(self) -> Answer:
        return {"files": self._open().files()}

    def do_resident(self, job: str, **given: Any) -> Answer:
        """Run another operation and tell how far resident memory rose above what it was before, and its peak."""
        gc.collect()
        memory.forget_peak()
        before = memory.resident()
        answer: Answer = getattr(self, f"do_{job}")(**given)
        most = memory.peak()
        if before is None or most is None:
            return answer | {"peak": None, "rise": None}
        return answer | {"peak": most, "rise": most - before}

    def do_stream_in(self, rows: int) -> Answer:
        """`rows` rows from a generator, written in one commit."""
        write = getattr(self._open(), "load_stream", None)
        if write is None:
            raise NotOffered
        return _timed(write, streamed(rows))

    def do_load_streamed(self, data: str) -> Answer:
        """The rows of a file, batch by batch, written in one commit."""
        return _timed(self._open().load_stream, stored_batches(data))

    def do_totals(self) -> Answer:
        """What the rows of each day add up to."""
        return {"totals": totals(self._open().scan_columns([PARTITION, *SUMMED]))}

    def do_two_columns(self) -> Answer:
        """Every row's values of two columns as a stream of batches, added up."""
        found: list[float] = []

        def add() -> None:
            for batch in self._open().scan_columns(["i0", "f0"]):
                found.extend((batch.num_rows, pc.sum(batch["i0"]).as_py() or 0, pc.sum(batch["f0"]).as_py() or 0))

        return _timed(add) | {"rows": sum(found[::3]), "sum": sum(found[1::3])}

    def do_cluster(self) -> Answer:
        return _timed(self._open().cluster, "city")

    def do_stream_out(self) -> Answer:
        """Every row as a stream of batches; only the rows are counted."""
        read = getattr(self._open(), "scan_stream", None)
        if read is None:
            raise NotOffered
        counted: list[int] = []
        timed = _timed(lambda: counted.extend(batch.num_rows for batch in read()))
        return timed | {"rows": sum(counted)}

    def do_part(self, part: str, **given: Any) -> Answer:
        """Run a part of lakefmt once, on one core: ``benchmarks/formats/bench_<part>.py``; processor seconds by name."""
        pa.set_cpu_count(1)
        module = importlib.import_module(f"benchmarks.formats.bench_{part}")
        gc.collect()
        return dict(module.once(**given))


def _timed(call: Callable[..., object], *arguments: Any) -> Answer:
    gc.collect()
    begin = time.perf_counter()
    call(*arguments)
    return {"seconds": time.perf_counter() - begin}


def _files_below(path: str) -> dict[Path, int]:
    """Return when each file below a folder was changed."""
    return {file: file.stat().st_mtime_ns for file in Path(path).rglob("*") if file.is_file()}


def _sync(paths: Iterable[Path]) -> None:
    """Sync files, and the folders that hold them."""
    files = list(paths)
    for path in [*files, *sorted({file.parent for file in files})]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _own(table: pa.Table) -> pa.Table:
    """Copy rows out of the memory map, whose pages would count as this process's memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def main() -> int:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except NotOffered:
            answer = {"not_offered": True}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
