"""Who may ask the page, and how: the wrong name, the wrong origin, no token, other methods, and paths that lead elsewhere."""

from __future__ import annotations

import http.client
import socket

import pytest

from lakefmt._core.page.server import PageServer
from lakefmt._core.page.tables import PageTables
from lakefmt.errors import InvalidInputError
from tests.page.kit import TOKEN, Page, id_of, make_table, served


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("door")
    make_table(root / "trips", commits=2)
    (root / "other.txt").write_text("a secret beside the tables")
    with served(root / "trips") as each:
        yield each


def test_the_address_with_the_token_sets_a_cookie_and_loses_the_token(page: Page):
    reply = page.ask(f"/?token={TOKEN}&contains=tr", token=None)
    assert (reply.status, reply.headers["location"]) == (303, "/?contains=tr")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    opened = page.ask("/", token=None, headers={"Cookie": cookie.partition(";")[0]})
    assert opened.status == 200
    assert TOKEN not in opened.text


@pytest.mark.parametrize("path", ["/", "/api/v1/tables", "/tables/x/timeline", "/events?table=x", "/api", "/nothing"])
@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1], TOKEN + "x", "é"])
def test_without_the_token_nothing_is_told(page: Page, path, token):
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
    reply = page.ask(path, token=None, headers=headers)
    assert reply.status == 401
    assert b"trips" not in reply.body


def test_a_wrong_token_in_the_address_is_refused(page: Page):
    assert page.ask("/?token=wrong", token=None).status == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{port}", ""])
def test_another_host_name_is_refused(page: Page, host):
    reply = page.ask("/", headers={"Host": host.format(port=page.server.port)})
    assert reply.status == 421
    assert b"trips" not in reply.body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://localhost"])
@pytest.mark.parametrize("path", ["/api/v1/tables", "/", "/events?table=x"])
def test_another_origin_is_refused(page: Page, origin, path):
    assert page.ask(path, headers={"Origin": origin}).status == 403


def test_a_script_of_another_site_is_refused_and_a_visit_from_there_is_not(page: Page):
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert page.ask("/", headers=script).status == 403
    assert page.ask("/", headers=visit).status == 200


def test_the_page_itself_is_answered(page: Page):
    assert page.ask("/api/v1/tables", headers={"Origin": page.server.origin}).status == 200


def test_answers_forbid_inline_scripts_and_frames(page: Page):
    for path in ("/", f"/tables/{id_of(page)}/timeline", "/api/v1/tables", "/nothing", "/static/page.js"):
        headers = page.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
def test_pages_have_no_inline_script_style_or_handler(page: Page):
    import re

    for view in ("timeline", "files", "rows", "services", "health"):
        text = page.ask(f"/tables/{id_of(page)}/{view}").text
        assert "<style" not in text
        assert not re.search(r"<[^>]+\s(style|on\w+)\s*=", text)
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/page.js" defer>']
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text), "a request that leaves the machine"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/page.py",
        "/static/",
        "//evil.example/",
        "/tables/..%2f..%2fother.txt/timeline",
        "/tables/%2e%2e/%2e%2e/other.txt",
        "/tables/{id}/..%2f..%2fother.txt",
        "/tables/{id}/instants/..%2f..%2fhoodie.properties",
        "/api/v1/tables/other.txt",
        "/tables/{id}\\..\\other/timeline",
        "/tables/{id}/timeline/",
        "/%00",
        "/\xe9",
    ],
)
def test_no_path_leads_elsewhere(page: Page, path):
    shown = path.format(id=id_of(page))
    reply = page.ask(shown) if shown.isascii() else raw(page, shown)
    assert reply.status in (200, 303, 400, 404)
    if reply.status in (200, 303):  # a slash at the end names the same page
        assert shown.endswith("timeline/") or shown.startswith("//")
    assert b"a secret" not in reply.body
    assert b"hoodie.table" not in reply.body


def raw(page: Page, path: str):
    """Send a path as bytes that the client of the standard library would refuse."""
    from tests.page.kit import Reply

    with socket.create_connection(("127.0.0.1", page.server.port), timeout=30) as link:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{page.server.port}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        link.sendall(head.encode("latin-1"))
        answer = http.client.HTTPResponse(link)
        answer.begin()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())


@pytest.mark.parametrize("partition", ["../other.txt", "/etc", "city=none", "city=oslo/../..", "..%2f"])
def test_only_partitions_of_the_table_are_shown(page: Page, partition):
    from urllib.parse import quote

    assert page.ask(f"/api/v1/tables/{id_of(page)}/partition?partition={quote(partition, safe='')}").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_a_page_that_reads_takes_nothing(page: Page, method):
    headers = {"Origin": page.server.origin, "Content-Type": "application/x-www-form-urlencoded"}
    reply = page.ask(f"/tables/{id_of(page)}/actions/plan", method=method, headers=headers, body=b"action=clean")
    assert reply.status in (403, 501)


def test_head_has_no_body(page: Page):
    reply = page.ask("/", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"host": "0.0.0.0"}, "give a token"),
        ({"token": "short"}, "at least 16"),
        ({"token": "with spaces and more"}, "visible ASCII"),
        ({"host": "203.0.113.1", "token": "x" * 20}, "cannot be served"),
    ],
)
def test_an_unsafe_start_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        PageServer(PageTables([]), **arguments)


@pytest.mark.slow
def test_secrets_of_storage_options_are_shown_nowhere(tmp_path):
    table = make_table(tmp_path / "t", commits=1)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    assert table is not None
    from lakefmt._core.storage.open import open_store

    secret = "hunter22-of-the-store"

    def opened(path, options):
        assert options == {"secret": secret}
        return open_store(path)

    def failing(path, options):
        from lakefmt.errors import StorageError

        raise StorageError(f"denied for {options['secret']} at s3://key:pass@bucket/t?sig=abc")

    assert text
    for open_with in (opened, failing):
        tables = PageTables([str(tmp_path)], storage_options={"secret": secret}, open_with=open_with)
        with PageServer(tables, token=TOKEN) as server:
            page = Page(server)
            table_id = id_of(page)
            for view in ("", "/timeline", "/files", "/rows", "/services", "/health", "/settings"):
                for prefix in ("", "/api/v1"):
                    body = page.ask(f"{prefix}/tables/{table_id}{view}").text
                    assert secret not in body
                    assert "sig=abc" not in body
                    assert "key:pass" not in body


def test_settings_that_are_secrets_are_hidden(tmp_path):
    make_table(tmp_path / "t", commits=1)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    with properties.open("a") as file:
        file.write("hoodie.some.password=swordfish\n")
    with served(tmp_path / "t") as page:
        rows = page.facts(f"/tables/{id_of(page)}/settings")["settings"]
        assert {"name": "hoodie.some.password", "value": "***", "origin": "property"} in rows
        assert "swordfish" not in page.ask(f"/tables/{id_of(page)}/services").text


def test_only_so_many_listen_at_a_time(page: Page):
    held = [page.server.listeners.acquire(blocking=False) for _ in range(64)]
    try:
        assert page.ask(f"/events?table={id_of(page)}").status == 503
    finally:
        for each in held:
            if each:
                page.server.listeners.release()


@pytest.mark.parametrize(
    "doubtful", [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n"], ids=["encoding", "two lengths"]
)
def test_a_form_whose_end_is_doubtful_is_refused_and_the_connection_ends(page: Page, doubtful: bytes):
    with socket.create_connection(("127.0.0.1", page.server.port), timeout=30) as connection:
        head = f"POST /tables HTTP/1.1\r\nHost: 127.0.0.1:{page.server.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        inner = f"GET /api/v1/tables HTTP/1.1\r\nHost: 127.0.0.1:{page.server.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(head.encode() + doubtful + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + inner.encode())
        received = b""
        while more := connection.recv(65536):
            received += more
    assert received.startswith(b"HTTP/1.1 413")
    assert received.count(b"HTTP/1.1 ") == 1
