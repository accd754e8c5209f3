"""How many requests verbs cost on S3: each step of the table in docs/dev/speed.md, the metadata table off and on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.storage import bench_requests

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(400)]  # a service, and some twenty commits to it

#: What today's code needs, the metadata table off and on. Fewer is better: then the number here, and in docs/dev/speed.md, falls.
MOST = {
    "load into 30 partitions": (69, 75),
    "open": (2, 2),
    "read one partition, cold, 8 files": (10, 10),
    "read all, 66 files": (68, 68),
    "increment over everything": (68, 68),
    "append of 100 rows, one partition": (10, 15),
    "upsert of 10 rows, one partition, warm": (12, 17),
}
#: How many requests wait for each other. Pools of threads share theirs out as they come: a few more pass where there are many.
DEPTH = {
    "load into 30 partitions": (20, 24),
    "open": (2, 2),
    "read one partition, cold, 8 files": (3, 3),
    "read all, 66 files": (13, 13),
    "increment over everything": (14, 14),
    "append of 100 rows, one partition": (8, 11),
    "upsert of 10 rows, one partition, warm": (10, 13),
}
SECONDS_PER_REQUEST = 0.03

Counted = tuple[bool, dict[str, bench_requests.Step]]
WRITES = [name for name in MOST if name.startswith(("load", "append", "upsert"))]


@pytest.fixture(scope="module", params=[False, True], ids=["without", "with the metadata table"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    pytest.importorskip("s3fs")
    with bench_requests.counted_service() as (options, requests):
        yield request.param, bench_requests.measure(options, requests, metadata=request.param)


def test_no_step_costs_more_requests_than_before(counted: Counted) -> None:
    metadata, steps = counted
    assert set(steps) == set(MOST)
    more = {name: step.requests for name, step in steps.items() if len(step.requests) > MOST[name][metadata]}
    assert not more, {name: [len(asked), *asked] for name, asked in more.items()}


def test_no_step_waits_for_more_requests_than_before(counted: Counted) -> None:
    """At 30 ms a request an append takes at most 0.35 s of waiting, a cold read of one partition 0.3 s with the opening."""
    metadata, steps = counted
    escaped = {name for name, step in steps.items() if step.counted_by_clock != len(step.requests)}
    assert not escaped, "a request that the clock does not see would not be waited for"
    more = {name: step.depth for name, step in steps.items() if step.depth > DEPTH[name][metadata]}
    assert not more
    cold_read = steps["open"].depth + steps["read one partition, cold, 8 files"].depth
    assert cold_read * SECONDS_PER_REQUEST <= 0.3
    assert steps["append of 100 rows, one partition"].depth * SECONDS_PER_REQUEST <= 0.35


def test_known_sizes_are_used_and_small_files_come_at_once(counted: Counted) -> None:
    """No data file is looked at before it is read, and none is asked for twice."""
    _, steps = counted
    for name in ("read one partition, cold, 8 files", "read all, 66 files", "increment over everything"):
        files = [asked for asked in steps[name].requests if ".parquet" in asked]
        assert len(files) == len(set(files)) == (8 if "8" in name else bench_requests.FILES)
        assert not [asked for asked in steps[name].requests if asked.startswith("HEAD")]


def test_a_small_table_is_listed_once_a_read(counted: Counted) -> None:
    """As a whole; the opening listed it before."""
    _, steps = counted
    for name in ("open", "read one partition, cold, 8 files", "read all, 66 files"):
        listed = [asked for asked in steps[name].requests if "prefix" in asked]
        assert len(listed) == 1, (name, listed)
        assert ".hoodie" not in listed[0]


def test_what_a_handle_put_when_it_made_the_table_is_not_read(counted: Counted) -> None:
    """Properties, notes, definitions of indexes and the first files of the metadata table."""
    _, steps = counted
    read = [
        asked
        for asked in steps["load into 30 partitions"].requests
        if asked.startswith("GET") and "prefix" not in asked
    ]
    assert not read


def test_the_timeline_is_listed_twice_a_write(counted: Counted) -> None:
    """It comes with everything else below ``.hoodie``, the metadata table's files included."""
    _, steps = counted
    for name in WRITES:
        listed = [asked for asked in steps[name].requests if "prefix" in asked and ".hoodie%2F" in asked]
        assert len(listed) <= 2, (name, listed)


def test_what_a_handle_wrote_to_the_metadata_table_is_not_read_again(counted: Counted) -> None:
    _, steps = counted
    for name in WRITES[1:]:
        assert not [asked for asked in steps[name].requests if asked.startswith("GET") and "/metadata/" in asked], name


def test_properties_are_read_where_a_listing_shows_another_version(counted: Counted) -> None:
    _, steps = counted
    for name, step in steps.items():
        if not name.startswith(("load", "open")):
            assert not [asked for asked in step.requests if "hoodie.properties" in asked], name


def test_no_file_that_was_just_written_is_read_and_no_new_partition_listed(counted: Counted) -> None:
    _, steps = counted
    asked = steps["load into 30 partitions"].requests
    assert not [each for each in asked if each.startswith("GET") and ".parquet" in each]
    assert not [each for each in asked if "prefix" in each and "place" in each]


def test_many_files_have_their_markers_in_one(counted: Counted) -> None:
    _, steps = counted
    asked = steps["load into 30 partitions"].requests
    assert len([each for each in asked if each.startswith("PUT") and "/.hoodie/.temp/" in each]) == 2
    of_partitions = [each for each in asked if ".hoodie_partition_metadata" in each and "/metadata/" not in each]
    assert len(of_partitions) == bench_requests.PARTITIONS
