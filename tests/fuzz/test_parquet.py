"""Damaged Parquet files, base files and pages of the archive: a value or a typed error, and the process lives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefmt._core.formats.parquet.base_file import check_row_counts, decode_footer
from lakefmt.errors import CorruptFile
from tests.fuzz.bounds import FREE_BYTES
from tests.fuzz.damage import effort
from tests.fuzz.parquet_cases import (
    RUNS,
    SEEDS,
    case,
    footer_size,
    read_archive,
    read_footer,
    read_rows,
    read_small,
    seed_bytes,
    with_footer,
)

ROOT = Path(__file__).parents[2]
CASES = 240
#: Resident memory: pools that keep what they once had. A page whose header announces 2^31 bytes reserves addresses, not
#: memory; what Arrow touched of 31 GB for a row group of 2^31 rows was a gigabyte.
GROWTH_BYTES = 64 * 1024 * 1024
SECONDS = 120.0


def in_a_process(*arguments: str) -> dict[str, Any]:
    """Run Python in a process of its own; return its last line.

    Raises:
        AssertionError: it died or hung; the case is named.
    """
    command = [sys.executable, "-X", "faulthandler", *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS * effort(), check=False)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"still running: {_last_line(error.stdout)}") from None
    assert done.returncode == 0, f"ended {done.returncode}: {_last_line(done.stdout)}\n{done.stderr.decode()[-2000:]}"
    found: dict[str, Any] = json.loads(_last_line(done.stdout))
    return found


def _last_line(output: bytes | None) -> str:
    return ((output or b"").decode().splitlines() or ["nothing said"])[-1]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 12)
def test_a_damaged_file_is_a_value_or_a_typed_error() -> None:
    found = in_a_process("-m", "tests.fuzz.parquet_cases", str(CASES * effort()))
    assert list(found) == [" ".join(run) for run in RUNS]
    for name, one in found.items():
        assert one["wrong"] == [], name
        assert sum(one["ends"].values()) == CASES * effort()
        assert one["ends"]["CorruptFile"] > CASES // 4, f"{name}: hardly any damage was noticed"
        assert one["grown"] <= GROWTH_BYTES, f"{name}: {one['grown']:,} bytes more than for whole files"
    for way, seed in RUNS:
        if way == "footer":
            assert found[f"{way} {seed}"]["allocated"] <= 4 * len(seed_bytes(seed)) + FREE_BYTES
    # Pages have no checksum: a changed value is another value. Nothing is ever cut short without a word.
    assert found["face slice"]["ends"].get("other rows", 0) < CASES * effort() // 4


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.write(1, b'footer small 7\\n'); os.abort()", "ended -6: footer small 7"),
        ("import os, signal; os.write(1, b'rows types 3\\n'); signal.pause()", "still running: rows types 3"),
    ],
)
def test_a_process_that_dies_or_hangs_is_seen(code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pause" in code:
        monkeypatch.setattr(f"{__name__}.SECONDS", 1.5 / effort())
    with pytest.raises(AssertionError, match=said):
        in_a_process("-c", code)


# ------------------------------------------------------------------------------------------- row groups that do not add up


def lying(seed: str, rows: int) -> bytes:
    """Return a file whose first row group claims another number of rows; everything else is as it was."""
    data = seed_bytes(seed)
    true = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).num_rows
    footer, told = data[-8 - footer_size(data) : -8], _zigzag(true)
    for at in range(len(footer)):
        if footer[at : at + len(told)] == told:
            made = with_footer(data, footer[:at] + _zigzag(rows) + footer[at + len(told) :])
            try:
                found = pq.ParquetFile(pa.BufferReader(made)).metadata
                if found.row_group(0).num_rows == rows and found.num_rows == true:
                    return made
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                continue
    raise AssertionError("the number was not found")


def _zigzag(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


@pytest.mark.parametrize("rows", [0, 1, (1 << 31) - 1, 1 << 40])
@pytest.mark.parametrize(
    ("read", "seed"),
    [
        (read_footer, "small"),
        (read_rows, "small"),
        (read_rows, "types"),
        (read_small, "types"),
        (read_archive, "archive"),
    ],
)
def test_row_groups_have_the_rows_that_the_file_announces(read: Any, seed: str, rows: int) -> None:
    with pytest.raises(CorruptFile, match=r"announces [0-9]+ rows and [0-9,]+ in 1 row groups"):
        read(lying(seed, rows))


@pytest.mark.parametrize("seed", SEEDS)
def test_real_files_add_up(seed: str) -> None:
    with pq.ParquetFile(pa.BufferReader(seed_bytes(seed))) as file:
        check_row_counts(file.metadata)
        assert decode_footer(file.metadata).num_rows == file.read().num_rows


def test_a_case_is_made_again_from_its_number() -> None:
    assert [case("small", number) for number in range(40)] == [case("small", number) for number in range(40)]
    assert len({data for _, data in (case("small", number) for number in range(200))}) > 150
