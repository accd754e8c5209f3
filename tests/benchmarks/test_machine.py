"""The machine is named with the file system that holds the tables: without a journal new files are slow."""

from __future__ import annotations

import pytest

from benchmarks.harness.machine import file_system

MOUNTS = "/dev/sda / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/sdb /data ext4 rw 0 0\nnone /data/fast tmpfs rw 0 0\n"


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("/opt/tables", "ext4 without a journal"),
        ("/data/tables", "ext4"),
        ("/data/fast/tables", "tmpfs"),
        ("/database", "ext4 without a journal"),
    ],
)
def test_the_innermost_mount_is_named(tmp_path, place, named):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(MOUNTS)
    for device in ("sda", "sdb"):
        (tmp_path / "fs/ext4" / device).mkdir(parents=True)
    (tmp_path / "fs/jbd2/sdb-8").mkdir(parents=True)
    assert file_system(type(tmp_path)(place), tmp_path) == named


def test_elsewhere_nothing_is_said(tmp_path):
    assert file_system(tmp_path, tmp_path) == ""
