"""From a path or URL to a store, and nothing secret on the way."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.storage import LocalStore, MemoryStore, open_store
from lakefmt._core.storage.messages import Redactor, has_password, printable_url
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import InvalidInputError, StorageError, UnsafePath, UnsupportedFeature


@pytest.mark.parametrize(
    ("given_as", "path"),
    [
        ("/data/trips", "/data/trips"),
        ("/data/trips/", "/data/trips"),
        ("/data/a b%20c#d?e", "/data/a b%20c#d?e"),
        (Path("/data/trips"), "/data/trips"),
        ("file:///data/trips", "/data/trips"),
        ("file:/data/trips", "/data/trips"),
        ("file://localhost/data/trips", "/data/trips"),
        ("local:///data/trips", "/data/trips"),
        ("file:///data/f%20v", "/data/f v"),
        ("file:/data/caf%C3%A9/100%25/a%3Fb%23c", "/data/café/100%/a?b#c"),
        ("file:///data/café v", "/data/café v"),
        ("local:///data/f%20v", "/data/f%20v"),
        ("/data/x/../trips", "/data/trips"),
    ],
)
def test_local_paths(given_as, path):
    store = open_store(given_as)
    assert isinstance(store, LocalStore)
    assert store.url == path
    assert open_store(store.url).url == path


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20))
def test_a_file_url_is_the_path_that_other_readers_of_urls_take(name):
    path = f"/data/{name}/t"
    url = Path(path).as_uri() if name not in (".", "..") else f"file://{path}"
    assert open_store(url).url == os.path.abspath(path)
    assert open_store(path).url == os.path.abspath(path)
    assert pyarrow.fs.FileSystem.from_uri(url)[1] == path


def test_a_table_at_a_file_url_is_the_table_at_the_path(tmp_path):
    made = lakefmt.create_table(f"file://{tmp_path}/f%20v", data=pa.table({"id": ["a"]}), record_key="id")
    made.upsert(pa.table({"id": ["a"]}))
    assert [item.name for item in tmp_path.iterdir()] == ["f v"]
    assert lakefmt.open_table(str(tmp_path / "f v")).read().num_rows == 1
    assert made.properties.name == "f v"


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/t?x=1", "s3://bucket/t?versionId=1", "gs://b/t#part", "file:///data/a?b", "file:/data/a#b",
     "abfs://box@account/t?sig=very-secret", "s3://bucket?x", "nosuchprotocol://b/t?x=1"],
)  # fmt: skip
def test_a_query_or_a_fragment_is_refused_at_the_door(url):
    for act in (open_store, lakefmt.open_table, lambda path: lakefmt.create_table(path, data=None, schema=SCHEMA)):
        with pytest.raises(InvalidInputError, match=r"was given with a (query \(\?|fragment \(#)") as caught:
            act(url)
        assert "very-secret" not in str(caught.value)


SCHEMA = pa.schema([("id", pa.string())])
ACCESS = {"key": "AKIAMADEUPKEY", "secret": "a-secret-value"}


@pytest.mark.parametrize(
    ("url", "given_options", "said"),
    [
        ("s3://bucket/t", {"secrt": "a-secret-value"}, r"'secrt'.*did you mean 'secret'\?"),
        ("s3://bucket/t", {"aws_acces_key_id": "a-secret-value"}, "'aws_acces_key_id'"),
        ("s3://bucket/t", {**ACCESS, "endpont": "http://127.0.0.1:1"}, "'endpont'"),
        ("gs://bucket/t", {"tokn": "a-secret-value"}, r"'tokn'.*did you mean 'token'\?"),
        ("s3://bucket/t", {5: "a-secret-value"}, "takes a text"),
        ("s3://bucket/t", ["a-secret-value"], "takes a dict"),
        ("/data/t", "a-secret-value", "takes a dict"),
    ],
)
def test_a_wrong_name_in_the_options_is_named(url, given_options, said):
    with pytest.raises(InvalidInputError, match=said) as caught:
        open_store(url, given_options)
    assert "a-secret-value" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("inner", ["client_kwargs", "config_kwargs"])
def test_a_wrong_name_inside_the_options_is_named_by_the_first_request(inner):
    store = open_store("s3://bucket/t", {**ACCESS, inner: {"regon_name": "a-secret-value"}})
    with pytest.raises(InvalidInputError, match="'regon_name'") as caught:
        store.read("a")
    assert "a-secret-value" not in str(caught.value)


def test_what_the_drivers_take_is_taken():
    taken = {**ACCESS, "token": "t", "anon": False, "use_ssl": False, "endpoint_url": "http://127.0.0.1:1",
             "client_kwargs": {}, "config_kwargs": {}, "s3_additional_kwargs": {}, "requester_pays": True,
             "default_block_size": 1, "use_listings_cache": True, "batch_size": 3}  # fmt: skip
    assert open_store("s3://bucket/t", taken).url == "s3://bucket/t"
    assert open_store("s3a://bucket/t", {"profile": "none-such"}).url == "s3a://bucket/t"
    gcs = {"token": "anon", "project": "p", "endpoint_url": "http://127.0.0.1:1", "requests_timeout": 3}
    assert open_store("gs://bucket/t", gcs).url == "gs://bucket/t"


def test_relative_and_home_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert open_store("trips").url == str(tmp_path / "trips")
    assert open_store("~/trips").url == str(tmp_path / "me" / "trips")


def test_a_memory_name_is_one_store_for_everybody():
    one, other = open_store("memory://opening/trips"), open_store("memory://opening/trips/")
    one.put("a", b"x")
    assert isinstance(other, MemoryStore)
    assert other.read("a") == b"x"
    assert open_store("memory://opening").read("trips/a") == b"x"
    assert open_store("memory://opening/trips/deeper").info("a") is None
    assert one.url == other.url == "memory://opening/trips"
    assert open_store(one.url).read("a") == b"x"


def test_memory_stores_without_a_name_are_strangers():
    one, other = MemoryStore(), MemoryStore()
    one.put("a", b"x")
    assert other.info("a") is None
    assert one.url != other.url


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "memory://",
        "memory:///",
        "file:",
        "file://",
        "file:///",
        "file://host/data",
        "nosuchprotocol://bucket/x",
        "s3://",
    ],
)
def test_what_names_no_place_is_refused(bad):
    with pytest.raises(InvalidInputError):
        open_store(bad)


def test_an_unsafe_memory_name_is_refused():
    with pytest.raises(UnsafePath):
        open_store("memory://a/../b")


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/table", "sftp://me:SECRET@host/table"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url):
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert "SECRET" not in str(caught.value)
    assert "KEY" not in str(caught.value)
    assert "storage_options" in str(caught.value)


def test_chains_answer_from_caches_and_are_refused():
    with pytest.raises(InvalidInputError, match="caches"):
        open_store("simplecache::s3://bucket/table")
    with pytest.raises(InvalidInputError, match="caches"):
        open_store("filecache::file:///data/trips")


def test_a_missing_package_is_named(monkeypatch):
    import fsspec

    def missing(protocol):
        raise ImportError("secret place")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(UnsupportedFeature, match=r"s3://bucket/t needs lakefmt\[s3\]"):
        open_store("s3://bucket/t")
    with pytest.raises(UnsupportedFeature, match="needs an fsspec driver for hdfs"):
        open_store("hdfs://host/t")


def test_options_that_a_driver_does_not_take_are_not_shown():
    with pytest.raises(StorageError) as caught:
        open_store("ftp:///path", {"host": None, "no_such_option_but": "a-secret-value"})
    assert "a-secret-value" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_any_fsspec_protocol_opens(tmp_path):
    store = open_store(f"dir://{tmp_path}", {"path": str(tmp_path), "target_protocol": "file"})
    assert isinstance(store, RemoteStore)


def test_local_disks_need_no_fsspec():
    script = (
        "import sys\nfrom lakefmt._core.storage import open_store\n"
        "open_store('/data/x'); open_store('memory://x')\nassert 'fsspec' not in sys.modules, 'fsspec was imported'\n"
    )
    import subprocess

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", [lambda: LocalStore("/data/x"), MemoryStore, lambda: open_store("memory://pickled")])
def test_stores_are_not_pickled_or_copied(make):
    store = make()
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="open_store"):
            act(store)


# ------------------------------------------------------------------------------------------------------------ redaction

secrets = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=6, max_size=40)
options = st.recursive(
    st.one_of(secrets, st.integers(min_value=10**6), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def texts_in(value):
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts_in(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts_in(inner)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


@given(st.dictionaries(st.text(max_size=5), options, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_no_value_of_the_options_survives(given_options, before, after):
    redact = Redactor(given_options)
    for value in texts_in(given_options):
        # What hides a value may not be made of it.
        if value.strip("*"):
            assert value not in redact(f"{before}{value}{after}").replace("***", "")


@given(st.text(st.characters(exclude_characters="*?:@"), max_size=60))
def test_harmless_text_stays(text):
    assert Redactor({})(text) == text
    assert Redactor({"use_ssl": True, "anon": False, "x": None})(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        ("cannot reach https://me:pw@host:9000/x?X-Amz-Signature=abc now", "cannot reach https://host:9000/x?*** now"),
        ("is it there?", "is it there?"),
        ("short a1 stays apart: a1b2, a1", "short *** stays apart: a1b2, ***"),
    ],
)
def test_what_a_message_shows(text, shown):
    assert Redactor({"pin": "a1"})(text) == shown


def test_a_redactor_shows_nothing_itself():
    assert "hunter" not in repr(Redactor({"secret": "hunter22"}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/t", "s3://bucket/t"),
        ("https://token@host/t?sig=1&x=2", "https://host/t"),
        ("sftp://me:pw@host/t", "sftp://host/t"),
        ("abfs://container@account.dfs.core.windows.net/t", "abfs://container@account.dfs.core.windows.net/t"),
        ("abfs://me:pw@account/t", "abfs://account/t"),
        ("/data/a?b@c", "/data/a?b@c"),
        ("s3://KEY:SEC/RET@bucket/t", "s3://bucket/t"),
        ("s3://KEY:sec@RET@bucket/t", "s3://bucket/t"),
        ("mysql://me:p?w@host/db?x=1", "mysql://host/db"),
        ("hdfs://host:8020/day@1/t", "hdfs://host:8020/day@1/t"),
        ("s3://bucket/a@b:c@d", "s3://bucket/a@b:c@d"),
    ],
)
def test_what_a_url_shows(url, shown):
    assert printable_url(url) == shown


@pytest.mark.parametrize("password", ["hunter22", "hun/ter22", "hun@ter22", "hunter?22"])
@pytest.mark.parametrize("protocol", ["s3", "abfs", "file", "sftp"])
def test_no_error_shows_the_password_of_a_url(protocol, password):
    with pytest.raises(InvalidInputError) as raised:
        open_store(f"{protocol}://me:{password}@host/t")
    assert "22" not in str(raised.value)
    assert "ter" not in Redactor({})(f"cannot connect to {protocol}://me:{password}@host/t: refused")


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("s3://k:s@b/x", True),
        ("s3://b/x", False),
        ("s3://b/x:y@z", False),
        ("abfs://c@a/x", False),
        ("h://:s@b", True),
        ("s3://k:s/t@b", True),
        ("hdfs://h:80/a@b", False),
    ],
)
def test_passwords_are_seen(url, has):
    assert has_password(url) is has


def test_a_nul_names_no_table():
    with pytest.raises(InvalidInputError, match="NUL"):
        open_store("/data/a" + chr(0) + "b")
