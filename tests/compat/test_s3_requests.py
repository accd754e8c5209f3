"""How many requests verbs cost on S3: each step of the table in docs/speed.md, the metadata table off and on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.storage import bench_requests

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(400)]  # a service, and some twenty commits to it

#: What today's code needs, the metadata table off and on. Fewer is better: then the number here, and in docs/speed.md, falls.
MOST = {
    "load into 30 partitions": (79, 159),
    "open": (2, 2),
    "read one partition, cold, 8 files": (14, 26),
    "read all, 66 files": (72, 84),
    "increment over everything": (79, 79),
    "append of 100 rows, one partition": (20, 40),
    "upsert of 10 rows, one partition, warm": (20, 40),
}

WRITES = [name for name in MOST if name.startswith(("load", "append", "upsert"))]


@pytest.fixture(scope="module", params=[False, True], ids=["without", "with the metadata table"])
def counted(request: pytest.FixtureRequest) -> Iterator[tuple[bool, dict[str, list[str]]]]:
    pytest.importorskip("s3fs")
    with bench_requests.counted_service() as (options, requests):
        yield request.param, bench_requests.measure(options, requests, metadata=request.param)


def test_no_step_costs_more_requests_than_before(counted: tuple[bool, dict[str, list[str]]]) -> None:
    metadata, found = counted
    assert set(found) == set(MOST)
    more = {name: asked for name, asked in found.items() if len(asked) > MOST[name][metadata]}
    assert not more, {name: [len(asked), *asked] for name, asked in more.items()}


def test_known_sizes_are_used_and_small_files_come_at_once(counted: tuple[bool, dict[str, list[str]]]) -> None:
    """No data file is looked at before it is read, and none is asked for twice."""
    _, found = counted
    for name in ("read one partition, cold, 8 files", "read all, 66 files", "increment over everything"):
        files = [asked for asked in found[name] if ".parquet" in asked]
        assert len(files) == len(set(files)) == (8 if "8" in name else bench_requests.FILES)
        assert not [asked for asked in found[name] if asked.startswith("HEAD")]


def test_the_timeline_is_listed_twice_a_write(counted: tuple[bool, dict[str, list[str]]]) -> None:
    metadata, found = counted
    for name in WRITES:
        listed = [
            asked
            for asked in found[name]
            if "prefix" in asked and asked.endswith(".hoodie%2Ftimeline%2F&delimiter=%2F&encoding-type=url")
        ]
        of_the_table = [asked for asked in listed if "metadata" not in asked]
        assert len(of_the_table) <= (3 if metadata else 2), name  # to list files by the metadata table takes one more


def test_many_files_have_their_markers_in_one(counted: tuple[bool, dict[str, list[str]]]) -> None:
    _, found = counted
    put = [
        asked for asked in found["load into 30 partitions"] if asked.startswith("PUT") and "/.hoodie/.temp/" in asked
    ]
    assert len(put) == 2
    assert (
        len(
            [
                asked
                for asked in found["load into 30 partitions"]
                if ".hoodie_partition_metadata" in asked and "/metadata/" not in asked
            ]
        )
        == 30
    )
