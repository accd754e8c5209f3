"""What the page says is what the library says, by value: for tables that Spark wrote, and for our own."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads.protocol import LoadOptions
from lakefmt._core.loads.service import LoadService
from lakefmt._core.page import contents
from lakefmt._core.storage.open import open_store
from tests.kit import values_of_run
from tests.loads import loads_kit
from tests.page.kit import BY_SPARK, id_of, make_table, served, unpack


@pytest.fixture(scope="module", params=[*values_of_run(BY_SPARK, usual=4), "own"])
def shown(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("values")
    path = root / "own" if request.param == "own" else unpack(request.param, root)
    if request.param == "own":
        make_table(path)
    with served(path) as page:
        yield page, f"/tables/{id_of(page)}", lakefmt.open_table(path)


def test_instants_are_those_of_the_history(shown):
    page, base, table = shown
    for archived in (False, True):
        history = table.history(archived=archived).to_pylist()
        listed = page.facts(f"{base}/instants?limit=1000&archived={int(archived)}")["instants"][::-1]
        wanted = [
            (r["instant"], r["completion_time"], r["action"], r["state"], r["operation"] or "", r["num_inserts"])
            for r in history
        ]
        assert [
            (e["time"], e["completion"], e["action"], e["state"], e["operation"], e["inserts"]) for e in listed
        ] == pytest.approx(wanted)
        assert [e["bytes_written"] for e in listed] == [r["bytes_written"] for r in history]
        assert [e["note"] or None for e in listed] == [r["note"] for r in history]


def test_the_timeline_has_every_instant_once(shown):
    page, base, table = shown
    facts = page.facts(f"{base}/timeline?archived=1")
    while not facts["complete"]:
        facts = page.facts(f"{base}/timeline?archived=1")
    assert sorted((e["time"], e["action"]) for e in facts["instants"]) == sorted(
        (r["instant"], r["action"]) for r in table.history(archived=True).to_pylist()
    )
    assert facts["total"] == facts["shown"] == len(facts["instants"])


def test_pages_of_the_list_join_to_the_whole(shown):
    page, base, _table = shown
    whole = page.facts(f"{base}/instants?limit=1000")["instants"]
    parts, before = [], ""
    while True:
        facts = page.facts(f"{base}/instants?limit=2&before={before}")
        parts += facts["instants"]
        before = facts["next"]
        if not before:
            break
    assert [(e["time"], e["action"]) for e in parts] == [(e["time"], e["action"]) for e in whole]


def test_partitions_and_sizes_are_those_of_the_files(shown):
    page, base, table = shown
    stats = table.partition_stats().to_pylist()
    listed = page.facts(f"{base}/files?by=partition&limit=1000")
    assert [
        (p["partition"], p["file_groups"], p["log_files"], p["bytes"], p["newest"]) for p in listed["partitions"]
    ] == [(r["partition"], r["num_file_groups"], r["num_log_files"], r["bytes"], r["newest_instant"]) for r in stats]
    counted = table.stats()
    assert (listed["total"]["rows"], listed["total"]["bytes"]) == (counted.rows, counted.size_bytes)
    assert (listed["total"]["file_groups"], listed["total"]["log_files"]) == (counted.file_groups, counted.log_files)


def test_file_groups_of_a_partition_are_its_slices(shown):
    page, base, table = shown
    for row in table.partition_stats().to_pylist()[:2]:
        facts = page.facts(f"{base}/partition?partition={quote(row['partition'], safe='')}&limit=1000")
        slices = [each for each in table.file_groups() if each.partition == row["partition"]]
        assert {g["file_id"]: g["bytes"] for g in facts["groups"]} == {str(s.file_id): s.size_bytes for s in slices}
        for group in facts["groups"]:
            newest = next(s for s in slices if s.file_id == group["file_id"])
            assert group["slices"][0]["instant"] == newest.instant
            assert group["slices"][0]["num_logs"] == len(newest.logs)


def test_rows_are_those_of_a_read(shown):
    page, base, table = shown
    facts = page.facts(f"{base}/rows?limit=1000")
    rows = table.read()
    assert [column["name"] for column in facts["columns"]] == rows.schema.names
    assert facts["num_rows"] == min(rows.num_rows, 1000)
    key = table.properties.record_key_fields[0]
    place = rows.schema.names.index(key)
    assert sorted(json.loads(row[place]) for row in facts["values"]) == sorted(rows.column(key).to_pylist())[:1000]


def test_explain_stats_and_schema_are_the_library_s(shown):
    page, base, table = shown
    assert page.facts(f"{base}/explain")["text"] == str(table.explain())
    assert page.facts(f"{base}/schema")["history"] == table.schema_history().to_pylist()[::-1]
    assert [c["name"] for c in page.facts(f"{base}/schema")["columns"]] == table.schema.names


def test_the_check_is_the_library_s(shown):
    page, base, table = shown
    facts, report = page.facts(f"{base}/health"), table.check()
    assert (facts["is_clean"], facts["num_findings"], facts["files"]) == (
        report.is_clean,
        len(report.findings),
        report.files,
    )
    assert [f["kind"] for f in facts["findings"]] == [f.kind.value for f in report.findings]


def test_plans_are_those_of_dry_runs(shown):
    page, base, table = shown
    plans = {plan["service"]: plan for plan in page.facts(f"{base}/plans")["plans"]}
    assert plans["clean"]["title"] == str(table.clean(dry_run=True).plan).partition("\n")[0]
    assert plans["clean"]["num_steps"] == table.clean(dry_run=True).plan.num_files


def test_every_instant_has_its_details(shown):
    page, base, table = shown
    for row in table.history(archived=True).to_pylist():
        facts = page.facts(f"{base}/instants/{row['instant']}?action={row['action']}")
        assert (facts["action"], facts["state"], facts["bytes_written"]) == (
            row["action"],
            row["state"],
            row["bytes_written"],
        )
        if row["operation"]:
            assert sum(part["bytes"] for part in facts["partitions"]) == row["bytes_written"]
            assert facts["num_files"] == row["num_files"]
        assert page.ask(f"{base}/instants/{row['instant']}?action={row['action']}").status == 200


def test_every_page_comes(shown):
    page, base, _table = shown
    for view in ("timeline", "files", "rows", "services", "health"):
        reply = page.ask(f"{base}/{view}")
        assert reply.status == 200, reply.text
        assert "cannot be read" not in reply.text


@pytest.mark.slow
def test_changes_between_two_commits_are_the_library_s(tmp_path):
    table = make_table(tmp_path / "t", table_type="cow")
    commits = [r for r in table.history().to_pylist() if r["operation"]]
    first, last = commits[1], commits[3]
    with served(tmp_path / "t") as page:
        facts = page.facts(f"/tables/{id_of(page)}/changes?from={last['instant']}&to={first['instant']}&limit=1000")
        changed = table.changes(first["completion_time"], last["completion_time"])
        assert (facts["start"], facts["end"]) == (first["instant"], last["instant"]), "whichever was marked first"
        assert facts["num_changes"] == changed.num_rows > 0
        assert facts["inserts"] == changed.column("op").to_pylist().count("i")
        assert page.ask(f"/tables/{id_of(page)}/changes?from={first['instant']}&to={last['instant']}").status == 200


def test_streams_consumers_and_savepoints_are_told(tmp_path):
    table = make_table(tmp_path / "t", commits=2)
    table.consumers.reset("report", to="earliest")
    with served(tmp_path / "t") as page:
        facts = page.facts(f"/tables/{id_of(page)}/services")
    assert [(c["id"], c["lag_instants"]) for c in facts["consumers"]] == [
        (c.id, c.lag.instants) for c in table.consumers.list()
    ]
    assert [s["comment"] for s in facts["savepoints"]] == ["kept"]
    assert facts["problems"] == {}


def test_a_stream_is_told_with_what_waits(tmp_path):
    table = make_table(tmp_path / "t", commits=1)
    with table.open_stream(writer_id="feed", commit_interval=3_600_000) as stream:
        stream.upsert({"id": "s1", "city": "oslo", "v": 1})
        stream.upsert({"id": "s2", "city": "rome", "v": 2})
        stream.flush()
        with served(tmp_path / "t") as page:
            (told,) = page.facts(f"/tables/{id_of(page)}/services")["streams"]
            assert (told["stream"], told["waiting_rows"], told["open"], told["what"]) == ("feed", 2, True, "stream")
            assert told["waiting_bytes"] > 0
    with served(tmp_path / "t") as page:
        (told,) = page.facts(f"/tables/{id_of(page)}/services")["streams"]
        assert (told["waiting_rows"], told["open"], bool(told["committed_at"])) == (0, False, True)
        newest = page.facts(f"/tables/{id_of(page)}")["latest"]
        labels = page.facts(f"/tables/{id_of(page)}/instants/{newest}")["labels"]
        assert [(each["what"], each["name"]) for each in labels] == [("stream", "feed")]


def test_a_load_and_a_checkpoint_are_told_by_their_labels(tmp_path):
    table = make_table(tmp_path / "t", commits=1)
    noted = {"lakefmt.load.label": "monday", "streamer.checkpoint.key.v2": "topic,0:17"}
    done = table.upsert(table.read().slice(0, 1), commit_metadata=noted)
    with served(tmp_path / "t") as page:
        labels = page.facts(f"/tables/{id_of(page)}/instants/{done.instant}")["labels"]
        jobs = page.facts(f"/tables/{id_of(page)}/services")["jobs"]
    assert [each["time"] for each in jobs] == [done.instant] * 2
    assert [{name: job[name] for name in ("what", "name", "value")} for job in jobs] == labels
    assert [(each["what"], each["name"], each["value"]) for each in labels] == [
        ("load", "label", "monday"),
        ("checkpoint", "streamer.checkpoint.key.v2", "topic,0:17"),
    ]


def test_the_phases_of_an_instant_are_those_of_its_files(shown):
    page, base, table = shown
    folder = table.client.at().config.timeline_directory
    for entry in page.facts(f"{base}/instants?limit=1000")["instants"]:
        named = [
            each
            for each in table.client.store.list(folder, recursive=False)
            if each.name.rpartition("/")[2].startswith(entry["time"]) and each.name.endswith("inflight")
        ]
        phases = (entry["requested_seconds"], entry["inflight_seconds"])
        if not named or entry["inflight"] is None:
            assert phases == (None, None)  # Spark wrote it: its files have other times than when they were unpacked
            continue
        end = entry["end"] or entry["inflight"]
        assert entry["start"] <= entry["inflight"] <= end
        times = [min(max(each.modified, entry["start"]), entry["end"] or each.modified) for each in named]
        assert any(entry["inflight"] == pytest.approx(time, abs=0.001) for time in times)
        assert (phases[1] is None) == (entry["end"] is None)
        assert sum(each for each in phases if each is not None) == pytest.approx(end - entry["start"], abs=0.002)


def test_how_long_a_plan_waited_is_told_apart_from_how_long_it_ran(tmp_path):
    table = make_table(tmp_path / "t", commits=1, table_type="cow")
    instant = table.client.at().timeline.commits[0]
    (file,) = (tmp_path / "t" / ".hoodie" / "timeline").glob(f"{instant.time}.inflight")
    with served(tmp_path / "t") as page:
        base = f"/tables/{id_of(page)}"
        start = page.facts(f"{base}/instants/{instant.time}")["start"]
        moved = (tmp_path / "t" / ".hoodie" / "timeline").glob(f"{instant.time}_*.commit")
        (done,) = moved
        done.rename(done.with_name(done.name.replace(str(instant.completion), _later(instant.time, 90))))
        os.utime(file, (start + 60, start + 60))
        page.server.tables.find(id_of(page)).forget()
        (entry,) = [e for e in page.facts(f"{base}/timeline")["instants"] if e["action"] == "commit"]
        assert (entry["requested_seconds"], entry["inflight_seconds"]) == pytest.approx((60.0, 30.0))
        shown = page.ask(f"{base}/timeline").text
        assert "requested for 60.000 s; inflight for 30.000 s" in shown
        assert "lf-wait" in shown
        # A store whose clock is a day ahead tells nothing.
        os.utime(file, (start + 86_400, start + 86_400))
    with served(tmp_path / "t") as page:
        assert page.facts(f"{base}/instants/{instant.time}")["inflight"] is None


def _later(time: str, seconds: int) -> str:
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S") + timedelta(seconds=seconds)
    return f"{moment:%Y%m%d%H%M%S}{time[14:]}"


def test_open_transactions_of_loads_are_told(tmp_path):
    base = loads_kit.Base(
        t={"schema": loads_kit.KEYED, "record_key": "id"}, other={"schema": loads_kit.KEYED, "record_key": "id"}
    )
    client = loads_kit.Client(base.service())
    assert client.whole("done", b"1,a,1.5\n", format="csv", column_separator=",") == ["OK"] * 4
    for label in ("empty", "filled", "prepared", "gone"):
        assert client.transaction("begin", label)["Status"] == "OK"
    for label in ("filled", "prepared"):
        client.transaction("load", label, b"2,b,2.5\n3,c,1\n", format="csv", column_separator=",")
    assert client.transaction("prepare", "prepared")["Status"] == "OK"
    assert client.transaction("rollback", "gone")["Status"] == "OK"
    assert client.transaction("begin", "elsewhere", table="other")["Status"] == "OK"
    before = {each.name: each.modified for each in open_store(base.url).list()}
    with served(f"{base.url}/db/t") as page:
        told = page.facts(f"/tables/{id_of(page)}/services")
        assert told["problems"] == {}
        assert {(each["label"], each["state"], each["rows"], each["tables"]) for each in told["loads"]} == {
            ("empty", "PREPARE", 0, 1),
            ("filled", "PREPARE", 0, 1),  # until it is prepared its server holds the rows
            ("prepared", "PREPARED", 2, 1),
        }
        assert "filled" in page.ask(f"/tables/{id_of(page)}/services").text
        open_store(base.url).put(".lakefmt/loads/db/transactions/bad.json", b"{")
        (damaged,) = [each for each in page.facts(f"/tables/{id_of(page)}/services")["loads"] if each["problem"]]
        assert (damaged["label"], damaged["rows"]) == ("", 0)
        open_store(base.url).delete([".lakefmt/loads/db/transactions/bad.json"])
    assert {each.name: each.modified for each in open_store(base.url).list()} == before


def test_records_of_loads_that_are_not_read_are_told(monkeypatch):
    """An old transaction that is prepared may lie behind many that have ended."""
    monkeypatch.setattr("lakefmt._core.page.services._MOST_LOADS", 2)
    base = loads_kit.Base()
    client = loads_kit.Client(base.service())
    for label in ("a", "b", "c"):
        client.transaction("begin", label)
    with served(f"{base.url}/db/t") as page:
        told = page.facts(f"/tables/{id_of(page)}/services")
    assert [each["problem"] for each in told["loads"]] == ["", "", "1 older records were not read"]


def test_a_journal_that_lies_elsewhere_is_named():
    base = loads_kit.Base(t={"schema": loads_kit.KEYED, "record_key": "id"})
    elsewhere = f"{base.url}-journal"
    service = LoadService(base.url, LoadOptions(durable=False, wait_seconds=0, journal=elsewhere), clock=base.clock)
    service.start()
    assert loads_kit.Client(service).transaction("begin", "open")["Status"] == "OK"
    for journal, labels in ((None, []), (elsewhere, ["open"])):
        with served(f"{base.url}/db/t", journal=journal) as page:
            told = page.facts(f"/tables/{id_of(page)}/services")
            assert [each["label"] for each in told["loads"]] == labels


def test_a_position_of_a_follower_is_one_of_cdc():
    from lakefmt._core.page.services import _position_text, _stream_kind

    offset = {"position": {"file": "bin.1", "pos": 4}, "since": 3}
    assert (_stream_kind(offset), _position_text(offset)) == ("CDC", '{"file": "bin.1", "pos": 4}')
    assert (_stream_kind(17), _position_text(17)) == ("stream", "17")


def test_a_dead_writer_is_named(tmp_path):
    table = make_table(tmp_path / "t", commits=1, table_type="cow")
    (tmp_path / "t" / ".hoodie" / "timeline" / "20200101000000000.commit.requested").touch()
    import os

    os.utime(tmp_path / "t" / ".hoodie" / "timeline" / "20200101000000000.commit.requested", (1, 1))
    assert next(entry.failed for entry in table.timeline)
    with served(tmp_path / "t") as page:
        health = page.facts(f"/tables/{id_of(page)}")["health"]
        assert [(word["level"], word["words"]) for word in health] == [
            ("bad", "1 dead writer: the next write rolls back")
        ]
        (dead,) = [e for e in page.facts(f"/tables/{id_of(page)}/timeline")["instants"] if e["state"] == "failed"]
        assert dead["sign"] == "✗"


@pytest.mark.slow
def test_a_hundred_dead_writers_are_all_told(tmp_path):
    import os

    table = make_table(tmp_path / "t", commits=1, table_type="cow")
    for number in range(100):
        name = tmp_path / "t" / ".hoodie" / "timeline" / f"20200101000000{number:03}.commit.requested"
        name.touch()
        os.utime(name, (1, 1))
    with served(tmp_path / "t") as page:
        base = f"/tables/{id_of(page)}"
        for _ in range(100):
            facts = page.facts(f"{base}/timeline")
            if facts["complete"]:
                break
        assert facts["complete"], "the page asks again until all is known, and comes to an end"
        assert sum(each["state"] == "failed" for each in facts["instants"]) == 100
        assert page.facts(base)["health"][0]["level"] == "bad"
    assert len(table.timeline) == 102


def test_a_second_look_costs_a_listing_and_the_properties(tmp_path):
    """On an object store each request costs: what was read of completed instants is not read again."""
    from lakefmt._core.storage.open import open_store
    from lakefmt.testing.stores import CountingStore

    make_table(tmp_path / "t", commits=5)
    stores = []

    def counted(path, options):
        stores.append(CountingStore(open_store(path, options)))
        return stores[-1]

    with served(tmp_path / "t", open_with=counted) as page:
        base = f"/tables/{id_of(page)}"
        page.facts(f"{base}/timeline")
        page.server.tables.find(id_of(page)).forget()
        before = sum(len(store.log) for store in stores)
        page.facts(f"{base}/timeline")
        first = sum(len(store.log) for store in stores) - before
        page.facts(f"{base}/timeline")
        assert first <= 4, [access.kind for access in stores[-1].log[-first:]]
        assert sum(len(store.log) for store in stores) == before + first, "within a moment nothing is read at all"


def test_a_sabotaged_answer_is_noticed(tmp_path, monkeypatch):
    """The comparison above can fail: one byte more in the facts, and it does."""

    table = make_table(tmp_path / "t", commits=1)
    real = contents._size_facts
    monkeypatch.setattr(contents, "_size_facts", lambda path, size: {**real(path, size), "bytes": size.bytes + 1})
    with served(tmp_path / "t") as page:
        listed = page.facts(f"/tables/{id_of(page)}/files?by=partition")["partitions"]
        assert [p["bytes"] for p in listed] != [r["bytes"] for r in table.partition_stats().to_pylist()]


def test_the_description_names_what_is_there(tmp_path):
    make_table(tmp_path / "t", commits=1)
    with served(tmp_path / "t") as page:
        described = page.facts("/openapi.json")
        assert described["openapi"] == "3.1.0"
        instant = page.facts(f"/tables/{id_of(page)}")["latest"]
        for path in described["paths"]:
            address = path.format(table=id_of(page), instant=instant)
            query = f"?from={instant}&to={instant}" if path.endswith("/changes") else ""
            query = "?partition=city%3Doslo" if path.endswith("/partition") else query
            reply = page.ask(f"/api/v1{address}{query}")
            assert reply.status == 200, (path, reply.text)
        assert page.ask("/api").status == 200


def _misfits(value: Any, schema: dict[str, Any], known: dict[str, Any], at: str = "") -> list[str]:
    """Return where a value is not what a schema says; a field that it does not name is one, too."""
    if "$ref" in schema:
        return _misfits(value, known[schema["$ref"].rpartition("/")[2]], known, at)
    if "anyOf" in schema:
        return min((_misfits(value, each, known, at) for each in schema["anyOf"]), key=len)
    types = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    expected = type(None) if schema.get("type") == "null" else types[schema["type"]] if schema else object
    if not isinstance(value, expected) or (isinstance(value, bool) and schema and schema["type"] != "boolean"):
        return [f"{at}: {value!r:.60} is no {schema['type']}"]
    if isinstance(value, list):
        return [
            found
            for place, each in enumerate(value)
            for found in _misfits(each, schema["items"], known, f"{at}[{place}]")
        ]
    if not isinstance(value, dict) or not schema:
        return []
    fields, rest = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{at}.{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, each in value.items():
        if name not in fields and rest is None:
            found.append(f"{at}.{name} is not described")
        else:
            found += _misfits(each, fields.get(name, rest), known, f"{at}.{name}")
    return found


def test_every_answer_is_what_the_description_says(shown):
    page, base, table = shown
    described = page.facts("/openapi.json")
    known = described["components"]["schemas"]
    commits = [str(each.time) for each in table.client.at().timeline.commits]
    partition = quote(page.facts(f"{base}/files")["partitions"][0]["partition"], safe="")
    more = {
        "/changes": f"?from={commits[-2]}&to={commits[-1]}" if len(commits) > 1 else None,
        "/partition": f"?partition={partition}",
        "/timeline": "?archived=1&width=400",
        "/instants": "?archived=1&limit=1000",
    }
    used = set()
    for path, described_path in described["paths"].items():
        answers = described_path["get"]["responses"]
        schema = answers["200"]["content"]["application/json"]["schema"]
        used.add(schema["$ref"].rpartition("/")[2])
        query = next((text for end, text in more.items() if path.endswith(end)), "")
        if query is None:
            continue
        places = (
            page.facts(f"{base}/instants?archived=1&limit=1000")["instants"] if "{instant}" in path else [{"time": ""}]
        )
        for place in places:
            address = path.replace("/tables/{table}", base).replace("{instant}", place["time"])
            reply = page.ask(f"/api/v1{address}{query}")
            if reply.status != 200:
                assert _misfits(reply.json(), known["Error"], known) == []
                assert str(reply.status) in answers
                continue
            assert (address, _misfits(reply.json(), schema, known)) == (address, [])
    assert used <= set(known)
    assert all(each.get("properties") for name, each in known.items())


def test_an_answer_that_is_not_described_is_noticed():
    known = {"A": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}
    schema = {"$ref": "#/components/schemas/A"}
    assert _misfits({"x": 1}, schema, known) == []
    assert _misfits({"x": True}, schema, known) == [".x: True is no integer"]
    assert _misfits({"y": 1}, schema, known) == [".x is missing", ".y is not described"]


def test_tables_are_searched_and_paged(tmp_path):
    for name in ("alpha", "beta", "gamma"):
        make_table(tmp_path / name, commits=1)
    with served(tmp_path) as page:
        assert [t["name"] for t in page.facts("/tables")["tables"]] == ["alpha", "beta", "gamma"]
        assert [t["name"] for t in page.facts("/tables?contains=BET")["tables"]] == ["beta"]
        second = page.facts("/tables?limit=1&offset=1")
        assert ([t["name"] for t in second["tables"]], second["matching"]) == (["beta"], 3)
        assert "beta" in page.ask("/").text


def test_a_file_of_paths_names_tables(tmp_path):
    make_table(tmp_path / "a" / "one", commits=1)
    make_table(tmp_path / "b" / "two", commits=1)
    (tmp_path / "paths").write_text(f"# tables\n{tmp_path}/a\n\n{tmp_path}/b/two\n{tmp_path}/none\n")
    with served(tmp_path / "paths") as page:
        tables = page.facts("/tables")["tables"]
    assert [(t["name"], bool(t["problem"])) for t in tables] == [("none", True), ("one", False), ("two", False)]


PARTS = ["", "main", "timeline", "instants", "cost", "layout", "plans", "columns", "check", "advice", "other"]


@pytest.mark.parametrize(
    ("view", "parts"),
    [
        ("timeline", ["timeline", "instants", "cost"]),
        ("files", ["layout", "plans"]),
        ("rows", ["columns"]),
        ("services", ["advice"]),
        ("health", ["check"]),
    ],
)
def test_a_page_has_its_own_parts_and_no_others(tmp_path, view, parts):
    make_table(tmp_path / "t", commits=2)
    with served(tmp_path / "t") as page:
        base = f"/tables/{id_of(page)}/{view}"
        answered = [part for part in PARTS if page.ask(f"{base}?part={part}").status == 200]
        refused = [part for part in PARTS if page.ask(f"{base}?part={part}").status == 400]
    assert answered == [part for part in PARTS if part in ("", "main", *parts)]
    assert sorted(answered + refused) == sorted(PARTS)


def test_dates_that_python_cannot_show_have_no_bounds(tmp_path):
    far = {"day": pa.array([-(10**6), 10**7], pa.int32()).cast(pa.date32())}
    far["at"] = pa.array([-(2**62), 2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"id": ["a", "b"], "n": [1, 2], **far})
    lakefmt.write_table(str(tmp_path / "t"), rows, mode="upsert", record_key="id")
    with served(tmp_path / "t") as page:
        columns = page.facts(f"/tables/{id_of(page)}/columns")["columns"]
        assert page.ask(f"/tables/{id_of(page)}/rows?part=columns").status == 200
    assert {each["name"]: (each["least"], each["largest"]) for each in columns} == {
        "id": ("a", "b"),
        "n": ("1", "2"),
        "day": (None, None),
        "at": (None, None),
    }
