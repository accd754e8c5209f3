"""A table among neighbours, and pictures of everything that lies there: what a refused call must leave as it was."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.multiset import multiset_difference

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("price", pa.decimal128(6, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
#: Everything that a directory holds, temporary files and empty directories included: path → digest.
Picture = dict[str, str]


def rows(first: int, last: int, ts: int = 1) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "city": [("sf", "oslo")[n % 2] for n in numbers],
            "ts": [ts] * len(numbers),
            "n": list(numbers),
            "price": pa.array([None] * len(numbers), pa.decimal128(6, 2)),
            "tags": [["a"]] * len(numbers),
        },
        schema=SCHEMA,
    )


def picture(root: Path) -> Picture:
    found: Picture = {}
    for directory, directories, files in os.walk(root):
        here = Path(directory)
        found |= {str((here / name).relative_to(root)) + "/": "" for name in directories}
        for name in files:
            path = here / name
            data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = hashlib.sha256(data).hexdigest()
    return found


def changes(before: Picture, after: Picture) -> list[str]:
    return sorted(
        [f"lost {name}" for name in before.keys() - after.keys()]
        + [f"new {name}" for name in after.keys() - before.keys()]
        + [f"changed {name}" for name in before.keys() & after.keys() if before[name] != after[name]]
    )


@dataclass
class Lake:
    """A directory with one table, `t`, and a neighbour that nobody may touch."""

    root: Path

    @property
    def base(self) -> Path:
        return self.root / "t"

    def open(self, **options: object) -> Table:
        return lakefmt.open_table(str(self.base), options={**OPTIONS, **options})

    def picture(self) -> Picture:
        return picture(self.root)

    def file(self, pattern: str) -> Path:
        return sorted(self.base.glob(pattern))[0]


def make_lake(root: Path, version: int = 8) -> Lake:
    lake = Lake(root)
    (root / "neighbour").mkdir(parents=True)
    (root / "neighbour" / "precious.parquet").write_bytes(b"precious")
    table = lakefmt.create_table(
        str(lake.base),
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_version=version,
        options=OPTIONS,
    )
    table.upsert(rows(0, 4))
    table.upsert(rows(2, 6, ts=2))
    return lake


def copy_lake(lake: Lake, to: Path) -> Lake:
    shutil.copytree(lake.root, to, symlinks=True)
    return Lake(to)


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def check_said(error: BaseException, *fragments: str) -> None:
    """One typed error whose message is a sentence that holds every fragment."""
    assert isinstance(error, LakefmtError), repr(error)
    text = str(error)
    assert len(text) > 12, text
    assert len(text) < 2000, f"a message of {len(text)} characters"
    for fragment in fragments:
        assert fragment in text, f"{text!r} lacks {fragment!r}"


def check_next_write(table: Table, expected: pa.Table) -> None:
    """The next good write works and sees what was there."""
    assert same_rows(table.read(), expected)
    assert table.upsert(rows(100, 103)).num_inserts == 3
    assert same_rows(table.read(), pa.concat_tables([expected, rows(100, 103)]))
    assert not table.client.load().timeline.pending
    check_invariants(table)
