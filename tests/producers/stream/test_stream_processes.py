"""Streams of real processes: killed, side by side, restarted on another machine; hudi-rs reads the table."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.segments.codec import list_streams
from lakefmt._core.storage import LocalStore
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import SECONDS_FOR_A_CHILD
from tests.producers.stream.stream_kit import KEYED, PLAIN, rows_of

PROGRAM = """
import sys, lakefmt
path, writer, first, last, flushed = sys.argv[1], sys.argv[2] or None, *map(int, sys.argv[3:6])
table = lakefmt.open_table(path)
stream = table.open_stream(writer_id=writer, mutation_buffer_lines_num=10)
for number in range(first, last):
    row = {"v": number, "s": "x"}
    if stream.is_keyed:
        row["id"] = f"k{number}"
    stream.extend([row])
    if number + 1 == flushed:
        stream.mark(number + 1)
        stream.flush()
        print("flushed", flush=True)
        sys.stdin.readline()
stream.close()
"""


def start(path: Path, writer: str, first: int, last: int, flushed: int = -1) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(path), writer, str(first), str(last), str(flushed)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def create(path: Path, keyed: bool, table_type: str = "cow") -> lakefmt.Table:
    made = {"schema": KEYED, "record_key": "id"} if keyed else {"schema": PLAIN}
    return lakefmt.create_table(str(path), table_type=table_type, **made)


@pytest.mark.slow
@pytest.mark.judge_rs
@pytest.mark.parametrize(("keyed", "table_type"), [(False, "cow"), (True, "mor")])
def test_kill_9_after_a_flush(tmp_path: Path, keyed: bool, table_type: str, hudi_rs_judge: HudiRsJudge) -> None:
    table = create(tmp_path / "t", keyed, table_type)
    process = start(tmp_path / "t", "w", 0, 40, flushed=25)
    assert process.stdout is not None
    assert process.stdout.readline() == "flushed\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()  # type: ignore[union-attr]
    assert table.read().num_rows == 0
    assert sorted(table.read(include_uncommitted=True)["v"].to_pylist()) == list(range(25))
    (found,) = table.recover_streams()
    assert found.rows == 25
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="hudi-rs after the recovery")
    with table.open_stream(writer_id="w") as stream:
        assert stream.last_committed is not None
        assert stream.last_committed.offset == 25
        stream.extend({"v": n, "s": "x"} | ({"id": f"k{n}"} if keyed else {}) for n in range(25, 40))
    assert sorted(table.read()["v"].to_pylist()) == list(range(40))
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="hudi-rs at the end")


@pytest.mark.slow
def test_two_processes_side_by_side(tmp_path: Path) -> None:
    table = create(tmp_path / "t", keyed=True)
    processes = [start(tmp_path / "t", writer, n * 100, n * 100 + 60) for n, writer in enumerate(("a", ""))]
    for process in processes:
        assert process.wait(SECONDS_FOR_A_CHILD) == 0
        process.stdout.close()  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
    assert sorted(table.read()["v"].to_pylist()) == [*range(60), *range(100, 160)]
    assert list_streams(LocalStore(tmp_path / "t")) == ["a"]


@pytest.mark.judge_rs
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_hudi_rs_reads_what_a_stream_of_all_operators_committed(
    tmp_path: Path, table_type: str, hudi_rs_judge: HudiRsJudge
) -> None:
    table = create(tmp_path / "t", True, table_type)
    table.upsert([{"id": f"k{n}", "v": n, "s": "stored"} for n in range(5)])
    with table.open_stream() as stream:
        stream.upsert({"id": "k0", "v": 10, "s": "up"})
        stream.delete("k1")
        stream.update({"id": "k2", "s": "set"})
        stream.insert({"id": "n", "v": 9})
        stream.extend([{"id": "k3", "v": 77}, {"id": "m", "v": 8}], "insert_ignore")
    expected = [
        {"id": "k2", "v": 2, "s": "set"},
        {"id": "k3", "v": 3, "s": "stored"},
        {"id": "k4", "v": 4, "s": "stored"},
        {"id": "m", "v": 8, "s": None},
        {"id": "n", "v": 9, "s": None},
        {"id": "k0", "v": 10, "s": "up"},
    ]
    assert rows_of(table.read()) == expected
    judged = hudi_rs_judge.snapshot(tmp_path / "t")
    assert_same_multiset(judged, table.read(), what="hudi-rs")
    wrong = pa.Table.from_pylist([{**expected[0], "v": 3}, *expected[1:]], schema=table.schema)
    with pytest.raises(AssertionError):  # the judge can say no
        assert_same_multiset(judged, wrong, what="sabotage")


def test_the_awaited_stream(tmp_path: Path) -> None:
    table = create(tmp_path / "t", keyed=True)

    async def program() -> None:
        async with table.open_stream_async(mutation_buffer_lines_num=5) as stream:
            for number in range(12):
                await stream.upsert({"id": f"k{number}", "v": number})
            await stream.delete("k0")
            future = await stream.apply_tracked({"id": "t", "v": 99}, "upsert", until="durable")
            await stream.flush()
            await future
            assert table.read(include_uncommitted=True).num_rows == 12
            result = await stream.commit()
            assert result is not None
            assert result.num_inserts == 12

    asyncio.run(program())
    assert table.read().num_rows == 12


RESTARTED = """
import os, socket, sys, lakefmt
path, host, forks = sys.argv[1], sys.argv[2], sys.argv[3]
socket.gethostname = lambda: host
stream = lakefmt.open_table(path).open_stream()
stream.upsert({"id": "a", "v": 1, "s": "older"})
stream.flush()
if forks == "forks":
    begun, begins = os.pipe()
    if os.fork() == 0:
        os.write(begins, b".")  # from here on it has let go of what it inherited
        sys.stdin.readline()  # a worker that has nothing to do with the stream
        os._exit(0)
    os.read(begun, 1)
print("flushed", flush=True)
os.read(0, 0)
import signal
signal.pause()
"""


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("case", ["another host", "a forked child lives on"])
def test_rows_of_a_killed_program_lose_against_those_of_the_restarted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, case: str
) -> None:
    table = create(tmp_path / "t", True, table_type)
    elsewhere = case == "another host"
    how = ["pod-1", "alone"] if elsewhere else ["pod", "forks"]
    process = subprocess.Popen(
        [sys.executable, "-c", RESTARTED, str(tmp_path / "t"), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        process.kill()
        process.wait()
        monkeypatch.setattr("socket.gethostname", lambda: "pod-2" if elsewhere else "pod")
        if not elsewhere:
            assert [found.rows for found in table.recover_streams()] == [1]  # the child does not hold the claim
        with table.open_stream() as stream:
            stream.upsert({"id": "a", "v": 2, "s": "newer"})
        assert rows_of(table.read()) == [{"id": "a", "v": 2, "s": "newer"}]
        monkeypatch.setattr("socket.gethostname", lambda: how[0])  # where the operating system says that it is dead
        table.recover_streams()
        assert rows_of(table.read()) == [{"id": "a", "v": 2, "s": "newer"}]
        assert list_streams(LocalStore(tmp_path / "t")) == []
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.stdout.close()  # type: ignore[union-attr]


CLAIMS = """
import sys, lakefmt
sys.stdin.readline()
for _ in range(3):
    stream = lakefmt.open_table(sys.argv[1]).open_stream(writer_id=sys.argv[2] or None)
    stream.insert({"v": 1})
    stream.flush()
    stream.close()
    print("closed", flush=True)
"""


@pytest.mark.slow
def test_processes_that_start_together_do_not_take_new_claims_for_dead(tmp_path: Path) -> None:
    table = create(tmp_path / "t", keyed=False)
    arguments = [sys.executable, "-c", CLAIMS, str(tmp_path / "t"), ""]
    processes = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in processes:
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    outputs = [process.communicate(timeout=SECONDS_FOR_A_CHILD)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert outputs == ["closed\n" * 3] * 3
    assert table.read().num_rows == 9
    assert list_streams(LocalStore(tmp_path / "t")) == []


FILLS = """
import os, sys, lakefmt, pyarrow as pa
table = lakefmt.create_table(sys.argv[1], schema=pa.schema([("v", pa.int64()), ("s", pa.binary())]), kind="append")
stream = table.open_stream(writer_id="w", commit_interval=10**9, commit_bytes=0, mutation_buffer_lines_num=500)
for _ in range(int(sys.argv[2])):
    stream.write_arrow(pa.table({"v": pa.array(range(500)), "s": [os.urandom(8192)] * 500}))
stream.flush()
os._exit(0)
"""
RECOVERS = """
import resource, sys, lakefmt
table = lakefmt.open_table(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(found,) = table.recover_streams()
print(found.rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_a_recovery_does_not_hold_all_waiting_segments(tmp_path: Path) -> None:
    path, segments = str(tmp_path / "t"), 24  # of 4 MB
    subprocess.run([sys.executable, "-c", FILLS, path, str(segments)], check=True)
    told = subprocess.run([sys.executable, "-c", RECOVERS, path], check=True, capture_output=True, text=True)
    rows, megabytes = map(int, told.stdout.split())
    assert rows == segments * 500 == lakefmt.open_table(path).read(["v"]).num_rows
    assert megabytes < 100
