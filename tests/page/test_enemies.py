"""Names, values and requests of an enemy: they are shown as they are and never become markup; what is damaged is named."""

from __future__ import annotations

import html.parser
import random
import re
import shutil
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.page import timeline
from tests.page.kit import HOSTILE, TOKEN, Page, id_of, make_hostile_table, make_table, served, unpack


class _Names(html.parser.HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("<b>hostile' \"")
    make_hostile_table(root / "<i>t")
    with served(root) as page:
        yield page, f"/tables/{id_of(page)}"


def pages_of(page: Page, base: str) -> list[str]:
    partitions = page.facts(f"{base}/files")["partitions"]
    instant = page.facts(base)["latest"]
    paths = ["/", f"{base}/timeline", f"{base}/files", f"{base}/rows", f"{base}/services", f"{base}/health"]
    paths += [f"{base}/files?part=plans", f"{base}/rows?part=columns", f"{base}/instants/{instant}"]
    paths += [f"{base}/partition?partition={quote(each['partition'], safe='')}" for each in partitions]
    return paths


def test_names_are_data_and_never_markup(hostile):
    page, base = hostile
    for path in pages_of(page, base):
        reply = page.ask(path)
        assert reply.status == 200, (path, reply.text[:300])
        names = _Names()
        names.feed(reply.text)
        assert not names.elements & {"script", "img", "i", "b"} - ({"script"} if "<!doctype" in reply.text else set())
        assert not {name for name in names.attributes if name.startswith("on") or name == "style"}
        assert reply.text.count("<script") == reply.text.count('<script src="/static/page.js" defer>')
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", reply.text), "characters that no markup may have"
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in reply.text, "a name that turns the direction would look like another"


def test_values_come_back_whole_for_programs(hostile):
    page, base = hostile
    import json

    facts = page.facts(f"{base}/rows?limit=100")
    assert {json.loads(row[0]) for row in facts["values"]} == set(HOSTILE)
    instant = page.facts(base)["latest"]
    found = page.facts(f"{base}/instants/{instant}")
    notes = {each["name"]: each for each in found["metadata"]}
    assert notes["note0"]["value"] == HOSTILE[0]
    assert (notes["large"]["characters"], len(notes["large"]["value"])) == (1_000_000, 4096)


def test_pages_of_hostile_tables_stay_small(hostile):
    page, base = hostile
    for path in pages_of(page, base):
        assert len(page.ask(path).body) < 300_000, path


# --- damage -------------------------------------------------------------------------------------------------------


def _newest(folder, pattern):
    return sorted(folder.glob(pattern))[-1]


DAMAGE = {
    "a commit that is no commit": lambda path: _newest(path / ".hoodie" / "timeline", "*commit").write_bytes(
        b"Obj\x01garbage"
    ),
    "an empty commit": lambda path: _newest(path / ".hoodie" / "timeline", "*commit").write_bytes(b""),
    "a base file that is gone": lambda path: next(path.glob("city=oslo/*.parquet")).unlink(),
    "a base file that is cut": lambda path: next(path.glob("city=oslo/*.parquet")).write_bytes(b"PAR1"),
    "properties that are no properties": lambda path: (path / ".hoodie" / "hoodie.properties").write_bytes(
        b"\xff\xfe\0"
    ),
    "no properties": lambda path: (path / ".hoodie" / "hoodie.properties").unlink(),
    "a table version of tomorrow": lambda path: (path / ".hoodie" / "hoodie.properties").write_text(
        "hoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=99\n"
    ),
    "instants of no date": lambda path: (path / ".hoodie" / "timeline" / "99999999999999999.commit.requested").touch(),
    "no table at all": lambda path: shutil.rmtree(path),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_page_of_a_damaged_table_comes_and_says_what_is_wrong(tmp_path, damage):
    make_table(tmp_path / "t", commits=2, table_type="cow")
    with served(tmp_path / "t") as page:
        DAMAGE[damage](tmp_path / "t")
        assert page.ask("/").status == 200
        base = f"/tables/{id_of(page)}"
        said = page.ask("/").text
        for view in ("timeline", "files", "rows", "services", "health"):
            reply = page.ask(f"{base}/{view}")
            assert reply.status in (200, 400, 404, 422, 502), (view, reply.text[-600:])
            assert 'aria-label="Views of the table"' in reply.text or reply.status == 404, (
                "the way to the other views stays"
            )
            said += reply.text
        assert "Traceback" not in said
        if damage != "instants of no date":
            assert "cannot be read" in said or "finding" in said or "problem" in said


def test_instants_that_vanish_between_two_requests_are_not_found(tmp_path):
    table = make_table(tmp_path / "t", commits=3, table_type="cow")
    with served(tmp_path / "t") as page:
        base = f"/tables/{id_of(page)}"
        newest = page.facts(base)["latest"]
        table.delete_savepoint(newest)
        table.rollback(newest)
        page.server.tables.find(id_of(page)).forget()
        reply = page.ask(f"{base}/instants/{newest}?action=commit")
        assert reply.status in (200, 404)
        assert page.ask(f"{base}/timeline").status == 200


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    make_table(root / "t", commits=2)
    with served(root) as page:
        yield page, id_of(page)


NAMES = [
    "start",
    "end",
    "width",
    "archived",
    "before",
    "limit",
    "action",
    "contains",
    "from",
    "to",
    "by",
    "offset",
    "partition",
]
NAMES += ["where", "columns", "as_of", "meta_columns", "part", "token", "x"]
VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "-1",
            "1e400",
            "nan",
            "inf",
            "1,2",
            "../..",
            "%00",
            "20260101000000000",
            "main",
            "true",
            "'",
            "city=oslo",
        ]
    ),
    st.text(max_size=40),
    st.integers().map(str),
    st.floats().map(str),
)


@given(st.data())
def test_no_request_is_an_error_of_the_page(fuzzed, data):
    page, table_id = fuzzed
    views = [
        "timeline",
        "instants",
        "files",
        "partition",
        "rows",
        "explain",
        "changes",
        "services",
        "health",
        "x",
        "%ff",
        "instants/1",
    ]
    view = data.draw(st.sampled_from(views))
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4))
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs)
    prefix = data.draw(st.sampled_from(["", "/api/v1"]))
    reply = page.ask(f"{prefix}/tables/{table_id}/{view}?{query}")
    assert reply.status in (200, 303, 400, 401, 404, 422), (view, query, reply.text[-400:])
    assert TOKEN not in reply.text
    assert "Traceback" not in reply.text


def test_garbage_instead_of_a_request_ends_the_connection_only(fuzzed):
    import socket

    page, _table_id = fuzzed
    chance = random.Random(7)
    garbage = [
        chance.randbytes(200),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n",
        b"GET " + b"/" * 100_000,
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ]
    garbage += [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n",
    ]
    for sent in garbage:
        with socket.create_connection(("127.0.0.1", page.server.port), timeout=10) as link:
            said = b""
            try:
                link.sendall(sent + b"\r\n\r\n")
                link.shutdown(socket.SHUT_WR)
                while part := link.recv(65536):
                    said += part
            except OSError:  # it has hung up already
                pass
        assert b"200 OK" not in said
    assert page.ask("/").status == 200


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    make_table(tmp_path / "lake" / "own", commits=1)
    make_table(tmp_path / "elsewhere" / "secret", commits=1)
    (tmp_path / "lake" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "lake" / "alias").symlink_to(tmp_path / "lake" / "own")
    with served(tmp_path / "lake") as page:
        facts = page.facts("/tables")
        assert {each["name"] for each in facts["tables"]} == {"own", "alias"}
        assert [each["problem"] for each in facts["problems"]] == [
            "a link leads out of the folder: name the table to show it"
        ]
    with served(tmp_path / "lake", tmp_path / "lake" / "linked" / "secret") as page:
        assert {each["name"] for each in page.facts("/tables")["tables"]} == {"own", "alias", "secret"}


def test_a_link_in_a_circle_is_a_problem_and_the_page_comes(tmp_path):
    make_table(tmp_path / "lake" / "own", commits=1)
    (tmp_path / "lake" / "loop").symlink_to(tmp_path / "lake")
    with served(tmp_path / "lake", tmp_path / "lake" / "own") as page:
        facts = page.facts("/tables")
        assert len(facts["problems"]) == 1
        assert {each["name"] for each in facts["tables"]} == {"own"}


def test_a_table_that_is_made_anew_is_shown_as_it_is_now(tmp_path):
    make_table(tmp_path / "t", commits=2)
    with served(tmp_path / "t") as page:
        base = f"/tables/{id_of(page)}"
        views = ("timeline?archived=1", "files", "rows", "schema", "services", "health", "instants?archived=1")
        for view in views:
            assert page.ask(f"/api/v1{base}/{view}").status == 200
        shutil.rmtree(tmp_path / "t")
        page.server.tables.find(id_of(page)).forget()
        assert {page.ask(f"/api/v1{base}/{view}").status for view in views} <= {404, 422}
        assert page.facts("/tables")["tables"][0]["problem"]
        other = lakefmt.create_table(str(tmp_path / "t"), data=pa.table({"k": [1], "w": ["x"]}), record_key="k")
        other.insert(pa.table({"k": [7, 8], "w": ["new", "rows"]}))
        page.server.tables.find(id_of(page)).forget()
        for view in views:
            reply = page.ask(f"/api/v1{base}/{view}")
            assert (view, reply.status) == (view, 200)
            assert "oslo" not in reply.text
        assert [each["name"] for each in page.facts(f"{base}/rows")["columns"]] == ["k", "w"]
        assert page.facts(f"{base}/rows")["num_rows"] == 2
        assert page.facts(f"{base}/files")["total"]["rows"] == 2


def test_a_table_that_is_upgraded_while_it_is_shown_has_the_same_instants(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "_MOST_ARCHIVED", 0)
    path = unpack("read/v6_cow_archived_0150", tmp_path)
    with served(path) as page:
        base = f"/tables/{id_of(page)}"
        before = page.facts(f"{base}/instants?archived=1&limit=1000")["instants"]
        rows = page.facts(f"{base}/rows?limit=1000")["num_rows"]
        lakefmt.open_table(path).upgrade(to=8)
        page.server.tables.find(id_of(page)).forget()
        after = page.facts(f"{base}/instants?archived=1&limit=1000")["instants"]
        assert {each["time"] for each in before} <= {each["time"] for each in after}
        assert all(not each["problem"] for each in after)
        assert page.facts(f"{base}/rows?limit=1000")["num_rows"] == rows
        assert page.facts(base)["version"] == 8


def test_a_hundred_tables_are_paged_and_read_only_when_they_are_shown(tmp_path):
    make_table(tmp_path / "t000", commits=1, table_type="cow")
    for number in range(1, 100):
        shutil.copytree(tmp_path / "t000", tmp_path / f"t{number:03}")
    with served(tmp_path) as page:
        facts = page.facts("/tables?limit=10&offset=20")
        assert [each["name"] for each in facts["tables"]] == [f"t{number:03}" for number in range(20, 30)]
        assert facts["total"] == 100
        opened = [each for each in page.server.tables.listed()[0] if each._table is not None]
        assert len(opened) == 10
