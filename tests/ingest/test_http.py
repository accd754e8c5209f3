"""JSON over HTTP as a source, from a server that gives pages as real ones do, and fails as they do."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt._core.ingest.http as http_sources
from lakefmt.errors import (
    InvalidInputError,
    LakefmtError,
    RowsRejected,
    SourceRefused,
    SourceUnavailable,
    UnknownSetting,
)
from tests.example_counts import examples
from tests.ingest.ingest_kit import Clock, commits_of, extra_of, ingest, job, rows_of

V1 = "deltastreamer.checkpoint.key"
TABLES = itertools.count()


class Asked(NamedTuple):
    """A request: its path, its parameters and its headers."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


#: What a server says: status, headers, body; None: it closes the connection.
Said = tuple[int, dict[str, str], bytes] | None


class Server:
    """A server on this machine whose answers are those of a function."""

    def __init__(self) -> None:
        self.answer: Callable[[Asked], Said] = lambda _asked: (404, {}, b"")
        self.asked: list[Asked] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                asked = Asked(parts.path, query, dict(self.headers.items()))
                outer.asked.append(asked)
                said = outer.answer(asked)
                self.close_connection = True
                if said is None:
                    return
                self.send_response(said[0])
                for name, value in {"Content-Length": str(len(said[2])), **said[1]}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said[2])

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/orders"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def said(value: Any, status: int = 200, **headers: str) -> Said:
    return status, {name.replace("_", "-"): each for name, each in headers.items()}, json.dumps(value).encode()


class Orders:
    """Rows that a server gives by pages."""

    def __init__(self, url: str, pages: str, size: int, compares: str, *, newest_first: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self._url, self._pages, self._size, self._compares, self._first = url, pages, size, compares, newest_first
        #: How the next answers fail; they are repeated then.
        self.failures: list[str] = []

    def __call__(self, asked: Asked) -> Said:
        failure = self.failures.pop() if self.failures else ""
        if failure == "closed":
            return None
        if failure:
            return int(failure), {"Retry-After": "7"} if failure == "429" else {}, b"later"
        since = asked.query.get("since")
        found = [row for row in self.rows if since is None or self._is_asked_for(row["changed"], int(since))]
        found.sort(key=lambda row: row["changed"], reverse=self._first)
        begin = int(asked.query.get("page", "1" if self._pages == "number" else "0"))
        begin = (begin - 1) * self._size if self._pages == "number" else begin
        end = begin + self._size if self._pages != "none" else len(found)
        more = end < len(found)
        at = f"{self._url}?page={end}" + ("" if since is None else f"&since={since}")
        headers = {"Link": f'<{self._url}>; rel="first", <{at}>; rel="next"'} if more and self._pages == "link" else {}
        cursor = {"next": str(end) if self._pages == "cursor" else at} if more else {"next": None}
        return said({"data": {"rows": found[begin:end]}, "meta": cursor}, **headers)

    def _is_asked_for(self, changed: int, since: int) -> bool:
        return {">=": changed >= since, ">": changed > since, "all": True}[self._compares]


def how(pages: str, **more: Any) -> dict[str, Any]:
    paged = {"http.pages": "cursor" if pages == "url" else pages}
    if pages in ("cursor", "url"):
        paged["http.cursor"] = "meta.next"
    if pages in ("cursor", "number"):
        paged["http.page.parameter"] = "page"
    grows = {"http.records": "data.rows", "http.column": "changed", "http.parameter": "since"}
    return {**grows, **paged, **more}


STORY = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), max_size=5), st.lists(st.sampled_from(["503", "429", "500", "closed"]), max_size=3)
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True, deadline=None)
@given(
    story=STORY,
    pages=st.sampled_from(["none", "link", "cursor", "url", "number"]),
    size=st.integers(1, 4),
    compares=st.sampled_from([">=", ">", "all"]),
    newest_first=st.booleans(),
    limit=st.sampled_from([None, 1, 2, 5]),
    declared=st.booleans(),
)
def test_each_row_is_taken_once(
    server: Server,
    story: list[Any],
    pages: str,
    size: int,
    compares: str,
    newest_first: bool,
    limit: int | None,
    declared: bool,
) -> None:
    """Whatever the server's pages, its order, what it takes the parameter for, how it fails, and how many rows a round has.

    Rows are only added.
    """
    bounded: dict[str, Any] = {} if limit is None else {"source_limit": limit}
    if declared and not newest_first:
        bounded["http.order"] = "ascending"
    server.answer = orders = Orders(server.url, pages, size, compares, newest_first=newest_first)
    table, now = f"memory://http-{next(TABLES)}", 0
    for steps, failures in story:
        now += compares == ">"  # such a server does not give rows that have the last value, and come later
        for step in steps:
            now += step
            orders.rows.append({"id": f"r{len(orders.rows)}", "changed": now})
        orders.failures = list(failures)
        ingest(server.url, table, key=(), operation="insert", **how(pages), **bounded)
    if orders.rows:
        assert Counter(row["id"] for row in rows_of(table)) == Counter(row["id"] for row in orders.rows)
        assert extra_of(table)[V1] == str(
            now if story[-1][0] or compares != ">" else max(row["changed"] for row in orders.rows)
        )


@pytest.mark.parametrize("compares", [">=", ">", "all"])
@pytest.mark.parametrize("changed", [lambda n: n, lambda n: n // 25, lambda n: 7], ids=["distinct", "groups", "equal"])
def test_a_round_has_about_so_many_rows_of_a_server_in_ascending_order(
    server: Server, tmp_path: Any, compares: str, changed: Callable[[int], int]
) -> None:
    """It ends behind a page, also in the middle of rows with one value; memory has no more than the rows of a round."""
    server.answer = orders = Orders(server.url, "link", 10, compares, newest_first=False)
    orders.rows += [{"id": f"{n:03}", "changed": changed(n)} for n in range(100)]
    bounded = how("link", **{"http.order": "ascending", "source_limit": 15})
    told = list[int]()
    pull = job(server.url, tmp_path / "t", key=(), operation="insert", **bounded)
    pull._on_round = lambda progress: told.append(progress.tables[0].rows)
    pull.run("until_idle")
    assert told[-1] == 100
    assert all(10 < after - before <= 30 for before, after in itertools.pairwise([0, *told[:-2]]))
    assert len(told) >= 6
    assert Counter(row["id"] for row in rows_of(tmp_path / "t")) == Counter(row["id"] for row in orders.rows)
    assert job(server.url, tmp_path / "o", **bounded).run("once").tables[0].rows == 20


def test_rows_in_another_order_than_was_said_are_refused(server: Server, tmp_path: Any) -> None:
    server.answer = orders = Orders(server.url, "link", 2, ">=", newest_first=True)
    orders.rows += [{"id": f"{n}", "changed": n} for n in range(6)]
    with pytest.raises(SourceRefused, match=r"another order than http\.order says"):
        ingest(server.url, tmp_path / "t", **how("link", **{"http.order": "ascending", "source_limit": 1}))
    assert not (tmp_path / "t").exists()


def test_a_round_that_finds_nothing_new_commits_nothing(server: Server, tmp_path: Any) -> None:
    rows = [{"id": "a", "n": 1}]
    server.answer = lambda _asked: said(rows)
    assert ingest(server.url, tmp_path / "t") == 1
    assert ingest(server.url, tmp_path / "t") == 0
    rows.append({"id": "b", "n": 2})
    assert ingest(server.url, tmp_path / "t") == 2  # without a field that grows all rows are taken again
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    assert commits_of(tmp_path / "t") == 2


def test_rows_that_are_many_wait_in_a_temporary_file(
    server: Server, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sources, "_MEMORY", 1)
    server.answer = orders = Orders(server.url, "link", 7, ">=", newest_first=True)
    orders.rows += [{"id": f"{n:03}", "changed": n, **({"more": "x"} if n % 2 else {})} for n in range(50)]
    assert ingest(server.url, tmp_path / "t", **how("link")) == 50
    assert all((row["more"] == "x") == (row["changed"] % 2 == 1) for row in rows_of(tmp_path / "t"))


def test_times_are_compared_as_moments(server: Server, tmp_path: Any) -> None:
    """As texts the fraction would come before the end of the text, and the zone would not count."""
    given_how = how("none", **{"http.records": "", "http.start": "2026-01-01"})
    rows = [{"id": "a", "changed": "2026-01-01T10:00:00Z"}, {"id": "b", "changed": "2026-01-01T10:00:00.5Z"}]
    server.answer = lambda _asked: said(rows)
    server.asked.clear()
    assert ingest(server.url, tmp_path / "t", **given_how) == 2
    assert server.asked[0].query == {"since": "2026-01-01"}
    assert extra_of(tmp_path / "t")[V1] == "2026-01-01T10:00:00.5Z"
    rows.append({"id": "c", "changed": "2026-01-01T11:30:00+01:00"})
    assert ingest(server.url, tmp_path / "t", **given_how) == 1
    assert server.asked[-1].query == {"since": "2026-01-01T11:30:00+01:00"}  # until idle: asked once more
    rows.append({"id": "d", "changed": 5})
    with pytest.raises(SourceRefused, match="cannot be compared"):
        ingest(server.url, tmp_path / "t", **given_how)


def test_a_server_that_is_busy_is_asked_again_when_it_says(server: Server, tmp_path: Any) -> None:
    orders = Orders(server.url, "none", 1, ">=", newest_first=False)
    orders.rows.append({"id": "a", "changed": 1})
    orders.failures = ["503", "429", "closed"]
    server.answer, clock = orders, Clock()
    before = clock.seconds
    assert job(server.url, tmp_path / "t", clock, **how("none")).run("once").tables[0].rows == 1
    assert clock.seconds - before == 1 + 7 + 4
    orders.failures = ["503"] * 3
    with pytest.raises(SourceUnavailable, match="answers 503"):
        ingest(server.url, tmp_path / "t", **how("none", **{"http.retries": "2"}))
    server.answer = lambda _asked: (429, {"Retry-After": "86400"}, b"")
    with pytest.raises(SourceUnavailable, match="answers 429"):
        ingest(server.url, tmp_path / "t", **how("none"))


def test_secrets_come_from_the_environment_and_are_in_no_message(
    server: Server, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_TOKEN", "hush-hush")
    secrets = {"http.header.Authorization": "Bearer ${ORDERS_TOKEN}", "http.query.api_key": "${ORDERS_TOKEN}"}
    orders = Orders(server.url, "link", 1, ">=", newest_first=False)
    orders.rows += [{"id": "a", "changed": 1}, {"id": "b", "changed": 2}]
    server.answer = orders
    server.asked.clear()
    assert ingest(server.url, tmp_path / "t", **how("link", **secrets)) == 2
    assert len(server.asked) > 2
    for asked in server.asked:
        assert (asked.headers["Authorization"], asked.query["api_key"]) == ("Bearer hush-hush", "hush-hush")
    assert "hush" not in json.dumps(dict(extra_of(tmp_path / "t")))
    for answer in (
        lambda _asked: (401, {}, b"hush-hush"),
        lambda _asked: (302, {"Location": "http://elsewhere/?api_key=hush-hush"}, b""),
        lambda _asked: said({"data": {"rows": []}}, Link='<http://elsewhere/x>; rel="next"'),
        lambda _asked: said({"odd": 1}),
    ):
        server.answer = answer
        with pytest.raises(LakefmtError) as caught:
            ingest(server.url, tmp_path / "t", **how("link", **secrets))
        assert "hush" not in str(caught.value)
    monkeypatch.delenv("ORDERS_TOKEN")
    with pytest.raises(InvalidInputError, match="ORDERS_TOKEN is not set"):
        ingest(server.url, tmp_path / "t", **how("link", **secrets))


@pytest.mark.parametrize(
    ("answer", "more", "error", "message"),
    [
        (said({"rows": []}), {}, InvalidInputError, "http.records=rows"),
        (said([{"id": "a"}]), {"http.column": "changed"}, SourceRefused, "http.nulls=skip"),
        (said([{"id": "a", "n": True}]), {"http.column": "n"}, SourceRefused, "take numbers, texts or times"),
        ((200, {}, b'[{"id": "a", "n": 1e400}]'), {}, InvalidInputError, "no number that a double holds"),
        ((200, {}, b'[{"id": "a"}'), {}, InvalidInputError, "no JSON"),
        ((200, {}, b"[" * 100_000), {}, InvalidInputError, "no JSON"),
        ((200, {}, b'[{"id": "\xff"}]'), {}, InvalidInputError, "no UTF-8"),
        ((200, {}, b""), {}, InvalidInputError, "no JSON"),
        ((200, {"Content-Encoding": "gzip"}, b"x"), {}, SourceRefused, "compressed"),
        ((200, {"Content-Length": "100"}, b"[]"), {"http.retries": "0"}, SourceUnavailable, "cannot be asked"),
        (said([{"id": "a"}]), {"http.max.bytes": "5"}, SourceRefused, "more than 5 bytes"),
        (said([{"id": "a"}]), {"http.pages": "number"}, SourceRefused, "the one before again"),
        (said([{"id": "a"}], Link="</v1/orders?x=1>; rel=next"), {}, SourceRefused, "go round"),
        (said({"rows": [{"id": "a"}], "next": [1]}), {"http.records": "rows", "http.pages": "cursor", "http.cursor": "next"}, SourceRefused, "neither"),
        ((404, {}, b""), {}, SourceRefused, "answers 404"),
        (said([{"id": "a"}, 5]), {}, RowsRejected, "no object"),
        (said([]), {"http.colunm": "n"}, UnknownSetting, "is no setting"),
        (said([]), {"http.pages": "pages"}, UnknownSetting, "http.pages"),
        (said([]), {"http.pages": "cursor"}, UnknownSetting, "needs http.cursor"),
        (said([]), {"http.parameter": "since"}, UnknownSetting, "http.column"),
        (said([]), {"http.retries": "many"}, UnknownSetting, "http.retries"),
        (said([]), {"http.header.X-Api-Key": "hush"}, UnknownSetting, "looks like a secret"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_committed(
    server: Server, tmp_path: Any, answer: Said, more: dict[str, Any], error: type[Exception], message: str
) -> None:
    server.answer = lambda _asked: answer
    with pytest.raises(error, match=message):
        ingest(server.url, tmp_path / "t", **more)
    assert not (tmp_path / "t").exists() or commits_of(tmp_path / "t") == 0


def test_what_is_no_row_goes_to_the_table_of_rejected_rows_once(server: Server, tmp_path: Any) -> None:
    body = b'{"id": "a", "n": 1}\nnot json\n\n{"id": "b", "n": 2}\n[3]\n'
    server.answer = lambda _asked: (200, {"Content-Type": "application/x-ndjson"}, body)
    given_how = {"errors": str(tmp_path / "e"), "http.column": "n"}
    assert ingest(server.url, tmp_path / "t", **given_how) == 2
    assert ingest(server.url, tmp_path / "t", **given_how) == 0
    assert [row["payload"] for row in rows_of(tmp_path / "e")] == [b"[3]", b"not json"]
    assert commits_of(tmp_path / "t") == 1


@pytest.mark.parametrize("first", [b'{"id": "a", "n": ""}', b"[3]"], ids=["empty text", "no row"])
def test_a_round_without_a_value_to_go_on_from_is_not_taken_again(server: Server, tmp_path: Any, first: bytes) -> None:
    told = {"errors": str(tmp_path / "e"), "http.column": "n", "key": (), "operation": "insert"}
    server.answer = lambda _asked: (200, {"Content-Type": "application/x-ndjson"}, first)
    rows = ingest(server.url, tmp_path / "t", "once", **told)
    assert ingest(server.url, tmp_path / "t", "once", **told) == 0
    body = first + b'\n{"id": "z", "n": "z"}'
    server.answer = lambda _asked: (200, {"Content-Type": "application/x-ndjson"}, body)
    assert ingest(server.url, tmp_path / "t", "once", **told) == 1
    assert len(rows_of(tmp_path / "t")) == rows + 1
    assert rows or len(rows_of(tmp_path / "e")) == 1


def test_a_checkpoint_of_another_url_is_refused(server: Server, tmp_path: Any) -> None:
    server.answer = lambda _asked: said([{"id": "a", "n": 1}])
    assert ingest(server.url, tmp_path / "t", **{"http.column": "n"}) == 1
    for url, more in (
        (f"{server.url}/more", {"http.column": "n"}),
        (f"{server.url}?x=1", {"http.column": "n"}),
        (server.url, {}),
    ):
        with pytest.raises(SourceRefused, match="another source"):
            ingest(url, tmp_path / "t", **more)
    with pytest.raises(InvalidInputError, match="has a user or password"):
        ingest(server.url.replace("//", "//me:hush@"), tmp_path / "t")


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["\ud800", 2**70, ""]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["id", "n", "rows", "next"]), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=40),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.lists(VALUES, max_size=3).map(lambda values: json.dumps({"rows": values, "next": None}).encode()),
    st.lists(st.fixed_dictionaries({"n": VALUES}), max_size=3).map(lambda values: json.dumps(values).encode()),
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Link": st.sampled_from(
            ["<http://[x>; rel=next", "</\xfc \xdf?a=%zz>; rel=next", "<//elsewhere>; rel=next", "<>; rel=next", "<"]
        ),
        "Content-Length": st.sampled_from(["-1", "x", "\xb2", "99"]),
        "Retry-After": st.sampled_from(["\xb2", "-5", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT", "x"]),
        "Content-Type": st.sampled_from(["application/x-ndjson", "", ";;", "text/html; charset=x"]),
    },
)


@pytest.mark.slow
@settings(max_examples=examples(400), derandomize=True, deadline=None)
@given(
    status=st.sampled_from([200, 200, 200, 204, 301, 403, 429, 599]),
    headers=HEADERS,
    body=BODIES,
    options=st.sampled_from(
        [
            {},
            {"http.column": "n"},
            {"http.column": "n", "http.nulls": "skip"},
            {"http.records": "rows", "http.pages": "cursor", "http.cursor": "next"},
        ]
    ),
)
def test_whatever_a_server_says_is_rows_or_an_error_with_a_type(
    server: Server, status: int, headers: dict[str, str], body: bytes, options: dict[str, str]
) -> None:
    server.answer = lambda _asked: (status, headers, body)
    given_options = {"http.retries": "1", "http.timeout.seconds": "5", **options}
    source = http_sources.open_http_source(server.url, given_options, None, Clock())  # type: ignore[arg-type]
    with contextlib.suppress(LakefmtError):
        found = source.plan(None, None)
        if found is not None:
            rows = sum(each.rows.num_rows for each in found.batches())
            assert rows == found.expected_rows
            found.checkpoint.text.encode()
            after = found.checkpoint
            assert source.plan(after, None) is None
    source.close()
