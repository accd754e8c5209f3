"""`lakefmt stream` and `lakefmt consumers`."""

from __future__ import annotations

import json


def test_stream_prints_rows_and_goes_on_after_its_consumer(run, trips):
    first = run("stream", trips, "--consumer", "feed", "--json").stdout.splitlines()
    assert sorted((row["op"], row["id"]) for row in map(json.loads, first)) == [("i", "a"), ("i", "b"), ("i", "c")]
    assert run("stream", trips, "--consumer", "feed", "--json").stdout == ""
    run("write", trips, "--format", "jsonl", stdin='{"id": "d", "city": "sf", "fare": 9.0, "tags": [], "at": null}\n')
    (line,) = run("stream", trips, "--consumer", "feed", "--json", "--columns", "id").stdout.splitlines()
    assert json.loads(line) == {"op": "i", "id": "d"}


def test_stream_as_csv_has_its_columns_once(run, trips):
    run("write", trips, "--format", "jsonl", stdin='{"id": "d", "city": "sf", "fare": 9.0, "tags": [], "at": null}\n')
    lines = run("stream", trips, "--columns", "id,fare", "--filter", "fare > 1.6", "--row-kinds").stdout.splitlines()
    assert lines == ["_row_kind,id,fare", "+I,b,2.0", "+I,d,9.0"]
    assert run("stream", trips, "--start", "latest").stdout == ""


def test_watermarks_as_start_and_end(run, trips):
    assert run("stream", trips, "--start", "watermark=5").stdout == ""
    assert run("stream", trips, "--end", "watermark=-5").stdout.count("\n") == 4
    assert "watermark=MILLISECONDS" in run("stream", trips, "--start", "offset=5", status=2).stderr


def test_consumers_are_listed_reset_and_deleted(run, trips):
    run("stream", trips, "--consumer", "feed")
    assert "feed: idle" in run("consumers", "list", trips).stdout
    assert "0 instants" in run("consumers", "list", trips).stdout
    run("consumers", "reset", trips, "feed", "--to", "earliest")
    (line,) = run("consumers", "list", trips, "--json").stdout.splitlines()
    told = json.loads(line)
    assert (told["id"], told["lag"]["instants"], told["active"]) == ("feed", 1, False)
    assert told["lag"]["bytes"] > 0
    refused = run("consumers", "reset", trips, "fed", status=1)
    assert "no consumer 'fed': did you mean 'feed'?" in refused.stderr
    assert "no shard" in run("consumers", "reset", trips, "feed", "--shard", "0/2", status=1).stderr
    assert len(run("consumers", "list", trips).stdout.splitlines()) == 1
    run("consumers", "reset", trips, "other", "--to", "latest", "--shard", "0/2", "--create")
    run("consumers", "reset", trips, "other", "--shard", "x", status=2)
    assert run("consumers", "delete", trips, "*", "--exclude", "o*").stdout == "removed: feed\n"
    assert json.loads(run("consumers", "delete", trips, "other", "--json").stdout) == {"deleted": ["other"]}
    assert "no consumer 'feed'" in run("consumers", "delete", trips, "feed", status=1).stderr
