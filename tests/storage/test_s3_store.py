"""What only a store over the network can do wrong: lost answers, repeated requests, pages, services that lie."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefmt._core.storage import PutOutcome, open_store, remote_s3
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import ObjectNotFound, StorageError, UnsafePath
from lakefmt.testing.suites import listed_names, together

pytestmark = pytest.mark.s3

numbers = itertools.count()


@pytest.fixture
def service(s3_service):
    s3_service.interference = None
    s3_service.requests.clear()
    yield s3_service
    s3_service.interference = None


@pytest.fixture
def store(s3_filesystem, s3_bucket, service):
    return RemoteStore(s3_filesystem, f"{s3_bucket}/table-{next(numbers)}")


@pytest.fixture
def impatient(s3_options, monkeypatch):
    """Return options with which neither s3fs nor botocore asks twice."""
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    return {**s3_options, "config_kwargs": {"retries": {"max_attempts": 0}}}


def answer_of(status, code, message="told to"):
    """Return an interference that answers every PUT of an object, or completion of one, with an error."""

    def interfere(environ, start_response, application):
        if not is_put(environ):
            return None
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        start_response(f"{status} Told", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    return interfere


def is_put(environ):
    is_completion = environ["REQUEST_METHOD"] == "POST" and "uploadId" in environ.get("QUERY_STRING", "")
    return (environ["REQUEST_METHOD"] == "PUT" and "uploadId" not in environ.get("QUERY_STRING", "")) or is_completion


def once(interference):
    """Return an interference that happens the first time only."""
    left = [interference]

    def interfere(environ, start_response, application):
        answer = left[0](environ, start_response, application) if left else None
        if answer is not None:
            left.clear()
        return answer

    return interfere


def lose_the_answer(environ, start_response, application):
    """Carry the PUT out, then hang up without a word."""
    if not is_put(environ):
        return None
    list(application(environ, lambda *_: None))
    environ["werkzeug.socket"].shutdown(2)
    return [b""]


def lose_the_request(environ, start_response, application):
    if not is_put(environ):
        return None
    environ["werkzeug.socket"].shutdown(2)
    return [b""]


# ------------------------------------------------------------------------------------------------- refused and unknown


def test_a_repeated_request_that_meets_our_own_object_is_done(store, service):
    service.interference = once(lose_the_answer)
    assert store.put_if_absent("a", b"mine") is PutOutcome.DONE
    puts = [request for request in service.requests if request[0] == "PUT"]
    assert len(puts) == 2, "the client should have asked again by itself"
    assert store.read("a") == b"mine"


def test_a_repeated_request_that_meets_another_object_is_refused(store, service):
    store.put_if_absent("a", b"same bytes")
    service.interference = once(lose_the_answer)
    assert store.put_if_absent("a", b"same bytes") is PutOutcome.REFUSED


@pytest.mark.parametrize("lose", [lose_the_answer, lose_the_request])
def test_an_answer_that_never_comes_is_unknown(s3_bucket, impatient, service, lose, caplog):
    store = open_store(f"s3://{s3_bucket}/lost-{next(numbers)}", impatient)
    service.interference = lose
    assert store.put_if_absent("a", b"mine") is PutOutcome.UNKNOWN
    service.interference = None
    assert (store.info("a") is not None) is (lose is lose_the_answer)
    assert "was lost" in caplog.text
    with store.create("b") as sink:
        sink.file.write(b"x")
        service.interference = lose
        assert sink.put_if_absent() is PutOutcome.UNKNOWN


@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (503, "ServiceUnavailable")])
def test_a_failing_service_leaves_the_outcome_unknown(s3_bucket, impatient, service, status, code):
    store = open_store(f"s3://{s3_bucket}/failing-{next(numbers)}", impatient)
    service.interference = answer_of(status, code)
    assert store.put_if_absent("a", b"x") is PutOutcome.UNKNOWN
    with pytest.raises(StorageError) as caught:
        store.put("a", b"x")
    assert caught.value.transient


def test_a_refused_answer_that_cannot_be_checked_is_unknown(s3_bucket, impatient, service):
    store = open_store(f"s3://{s3_bucket}/unchecked-{next(numbers)}", impatient)
    store.put("a", b"theirs")

    def no_heads(environ, start_response, application):
        if environ["REQUEST_METHOD"] != "HEAD":
            return None
        start_response("500 Told", [("Content-Length", "0")])
        return [b""]

    service.interference = no_heads
    assert store.put_if_absent("a", b"mine") is PutOutcome.UNKNOWN


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "InvalidRequest"), (404, "NoSuchBucket")])
def test_a_request_turned_down_is_an_error(store, service, status, code):
    service.interference = answer_of(status, code)
    with pytest.raises(StorageError, match=f"cannot create 'a' in {store.url}: .*status {status}") as caught:
        store.put_if_absent("a", b"x")
    assert not caught.value.transient
    service.interference = None
    assert store.info("a") is None


def test_a_conflict_under_way_is_tried_again(store, service):
    service.interference = once(answer_of(409, "ConditionalRequestConflict"))
    assert store.put_if_absent("a", b"x") is PutOutcome.DONE
    service.interference = answer_of(409, "ConditionalRequestConflict")
    assert store.put_if_absent("b", b"x") is PutOutcome.UNKNOWN


def test_a_service_without_the_condition_says_so(store, service):
    service.interference = answer_of(501, "NotImplemented")
    with pytest.raises(StorageError, match="does not know put-if-absent"):
        store.put_if_absent("a", b"x")


def test_a_service_that_ignores_the_condition_is_found_out(store, service):
    assert store.prove_put_if_absent()

    def ignore(environ, start_response, application):
        environ.pop("HTTP_IF_NONE_MATCH", None)

    service.interference = ignore
    assert not store.prove_put_if_absent()
    assert store._fs.find(store._root) == []


def test_an_old_client_is_not_trusted_with_the_condition(s3_filesystem, s3_bucket, service, monkeypatch, caplog):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.34.162")
    store = RemoteStore(s3_filesystem, f"{s3_bucket}/old-{next(numbers)}")
    assert not store.capabilities.put_if_absent
    assert "one writer at a time" in caplog.text
    assert store.put_if_absent("a", b"1") is PutOutcome.DONE
    assert store.put_if_absent("a", b"2") is PutOutcome.REFUSED
    assert store.read("a") == b"1"


def test_without_any_client_there_is_no_promise(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert remote_s3._botocore_version() < remote_s3._IF_NONE_MATCH_SINCE


# ------------------------------------------------------------------------------------------------------- many and large


@pytest.fixture
def small_parts(monkeypatch):
    # The service takes parts of 5 MiB and more, except the last.
    monkeypatch.setattr(remote_s3, "_ONE_REQUEST_BYTES", 1 << 20)
    monkeypatch.setattr(remote_s3, "_PART_BYTES", 5 << 20)


def put_sink(store, name, body):
    with store.create(name) as sink:
        sink.file.write(body)
        return sink.put_if_absent()


def test_a_large_object_goes_up_in_parts_and_is_refused_whole(store, service, small_parts):
    body = bytes(range(251)) * 50_000
    assert put_sink(store, "big", body) is PutOutcome.DONE
    assert store.read("big") == body
    assert put_sink(store, "big", b"y" * len(body)) is PutOutcome.REFUSED
    assert store.put_if_absent("big", b"z" * len(body)) is PutOutcome.REFUSED
    assert store.read("big") == body
    store.put("big", body[1:])
    assert store.read("big") == body[1:]
    assert unfinished_uploads(store) == []


def unfinished_uploads(store):
    return store._fs.call_s3("list_multipart_uploads", Bucket=store._root.partition("/")[0]).get("Uploads", [])


def test_of_four_uploads_in_parts_one_is_done(store, small_parts):
    bodies = [bytes([65 + n]) * (6 << 20) for n in range(4)]
    outcomes = together([lambda body=body: put_sink(store, "race", body) for body in bodies])
    assert sorted(outcome.value for outcome in outcomes) == ["done"] + ["refused"] * 3
    assert store.read("race") == bodies[outcomes.index(PutOutcome.DONE)]


def test_a_completion_whose_answer_is_lost_is_done_or_unknown_but_never_refused(store, service, small_parts):
    service.interference = once(lose_the_answer)
    assert put_sink(store, "big", b"x" * (6 << 20)) is PutOutcome.DONE


def test_an_upload_that_fails_leaves_no_parts(store, service, small_parts):
    def refuse_the_last_part(environ, start_response, application):
        if "partNumber=2" not in environ.get("QUERY_STRING", ""):
            return None
        start_response("403 Told", [("Content-Length", "0")])
        return [b""]

    service.interference = refuse_the_last_part
    with pytest.raises(StorageError):
        put_sink(store, "big", b"x" * (6 << 20))
    service.interference = None
    assert listed_names(store) == []
    assert unfinished_uploads(store) == []


def test_listings_come_in_pages(s3_bucket, s3_options, service):
    paged = {**s3_options, "s3_additional_kwargs": {"MaxKeys": 2}}
    store = open_store(f"s3://{s3_bucket}/paged", paged)
    names = [f"d{number % 3}/{number}" for number in range(7)]
    for name in names:
        store.put(name, b"x")
    service.requests.clear()
    assert listed_names(store) == sorted(names)
    assert len(service.requests) == 4
    assert sorted(store.list_directories()) == ["d0", "d1", "d2"]
    store.delete_tree("d0")
    assert listed_names(store) == sorted(name for name in names if not name.startswith("d0"))


def test_removals_go_many_at_a_time(store, service, monkeypatch):
    monkeypatch.setattr(remote_s3, "_DELETE_AT_ONCE", 4)
    names = [f"n{number}" for number in range(10)]
    for name in names:
        store.put(name, b"")
    service.requests.clear()
    store.delete([*names, "missing"])
    assert [request[0] for request in service.requests] == ["POST"] * 3
    assert listed_names(store) == []


def test_a_removal_that_fails_is_told(store, service):
    def deny_one(environ, start_response, application):
        if "delete" not in environ.get("QUERY_STRING", ""):
            return None
        key = f"{store._root.partition('/')[2]}/kept"
        error = f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
        body = f"<DeleteResult>{error}</DeleteResult>".encode()
        start_response("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    service.interference = deny_one
    with pytest.raises(StorageError, match=r"cannot remove 'kept' in .*: AccessDenied"):
        store.delete(["gone", "kept"])
    service.interference = None


def test_markers_of_directories_are_no_objects_and_go_with_the_tree(store):
    bucket, _, start = store._root.partition("/")
    for key in ("d/", "d/sub/", "d/a", "d/sub//b"):
        store._fs.call_s3("put_object", Bucket=bucket, Key=f"{start}/{key}", Body=b"")
    assert listed_names(store) == ["d/a"]
    assert listed_names(store, "d", recursive=False) == ["d/a"]
    assert store.list_directories("d") == ["d/sub"]
    store.delete_tree("d")
    assert store._fs.find(store._root) == []


# ------------------------------------------------------------------------------------------------------- few requests


def test_how_many_requests_the_verbs_cost(store, service):
    verbs = {
        "put_if_absent": lambda: store.put_if_absent("a", b"xyz"),
        "put": lambda: store.put("b", b"xyz"),
        "read": lambda: store.read("a", 100),
        "info": lambda: store.info("a"),
        "info of a missing one": lambda: store.info("missing"),
        "list": lambda: listed_names(store),
        "list_directories": lambda: store.list_directories(),
        "delete": lambda: store.delete(["a", "b"]),
    }
    counts = {}
    for verb, act in verbs.items():
        service.requests.clear()
        act()
        counts[verb] = len(service.requests)
    assert counts == dict.fromkeys(verbs, 1)


@pytest.mark.parametrize(
    ("size", "asked"),
    [(0, []), (10_000, []), (256 * 1024, []), (256 * 1024 + 15, ["bytes=10-14"]), (400_000, ["bytes=10-19"])],
)
def test_arrow_fetches_the_end_first_and_then_only_what_it_asks_for(store, service, size, asked):
    """Of a small object no more is asked for: the size, a footer and every column come with the end."""
    content = (b"0123456789" * (size // 10 + 1))[:size]
    store.put("a", content)
    fs, prefix = store.arrow_filesystem()
    requests = []

    def note(environ, start_response, application):
        requests.append((environ["REQUEST_METHOD"], environ.get("HTTP_RANGE")))

    service.interference = note
    with fs.open_input_file(f"{prefix}a") as file:
        assert file.size() == size
        assert requests == [("GET", "bytes=-262144")]
        for start, length in ((10, 10), (size - 20, 30), (size // 2, size), (0, 0)) if size else ((0, 10),):
            assert file.read_at(length, start) == content[start : start + length]
            if start == 10:
                assert requests[1:] == [("GET", span) for span in asked]


def test_a_service_that_knows_no_range_from_the_end(store, service):
    """It sends the object from its beginning, without saying which part that is."""

    def whole(environ, start_response, application):
        if environ["REQUEST_METHOD"] == "GET" and environ.get("HTTP_RANGE", "").startswith("bytes=-"):
            del environ["HTTP_RANGE"]

    for size in (0, 30, 400_000):
        content = (b"0123456789" * (size // 10 + 1))[:size]
        service.interference = None
        store.put(f"of {size}", content)
        service.interference = whole
        fs, prefix = store.arrow_filesystem()
        with fs.open_input_file(f"{prefix}of {size}") as file:
            assert (file.size(), file.read()) == (size, content)


def test_a_bounded_read_fetches_no_more(store, service):
    store.put("a", b"x" * 100_000)
    ranges = []

    def note(environ, start_response, application):
        ranges.append(environ.get("HTTP_RANGE"))

    service.interference = note
    with pytest.raises(Exception, match="more than the 10 bytes expected"):
        store.read("a", 10)
    assert ranges == ["bytes=0-10"]


# --------------------------------------------------------------------------------------------------------------- others


def test_a_file_system_that_keeps_listings_is_told_not_to(s3_options, s3_bucket, service):
    import s3fs

    fs = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    fs.find(s3_bucket)
    fs.ls(s3_bucket)
    store = RemoteStore(fs, f"{s3_bucket}/cached")
    arrow, prefix = store.arrow_filesystem()
    assert arrow.get_file_info(f"{prefix}d/a").type.name == "NotFound"
    other = open_store(f"s3://{s3_bucket}/cached", s3_options)
    assert listed_names(store, "d") == []
    other.put("d/a", b"x")
    assert listed_names(store, "d") == ["d/a"]
    assert arrow.get_file_info(f"{prefix}d/a").size == 1
    fs.ls(f"{s3_bucket}/cached/d")  # whoever else uses the file system fills no cache for us either
    other.put("d/a", b"four")
    assert arrow.get_file_info(f"{prefix}d/a").size == 4
    other.delete(["d/a"])
    assert store.info("d/a") is None


def test_no_file_system_is_shared_with_others_in_the_process(s3_options, s3_bucket):
    import fsspec

    theirs = fsspec.filesystem("s3", **s3_options)
    ours = [open_store(f"s3://{s3_bucket}/x", s3_options)._fs for _ in range(2)]
    assert theirs is not ours[0]
    assert ours[0] is not ours[1]
    assert theirs.dircache.use_listings_cache
    assert not ours[0].dircache.use_listings_cache


def test_a_bucket_can_be_the_base(s3_options, s3_bucket, service):
    store = open_store(f"s3://{s3_bucket}/", s3_options)
    assert store.url == f"s3://{s3_bucket}"
    store.put("at the top", b"x")
    assert store.read("at the top") == b"x"
    assert "at the top" in listed_names(store, recursive=False)
    store.delete_tree("")
    assert listed_names(store) == []


def test_a_bucket_that_is_not_there(s3_options, service):
    store = open_store("s3://no-such-bucket/table", s3_options)
    assert store.info("a") is None
    with pytest.raises(ObjectNotFound):
        store.read("a")
    # An empty listing would say that the table is empty.
    with pytest.raises(StorageError, match="bucket does not exist"):
        list(store.list())
    with pytest.raises(StorageError, match="bucket does not exist"):
        store.put_if_absent("a", b"x")


def test_a_name_that_would_be_read_as_a_version_is_refused(store):
    store.put("a", b"x")
    for verb in (store.read, store.info):
        with pytest.raises(UnsafePath):
            verb("a?versionId=1")


def test_nothing_of_the_options_is_shown(s3_bucket, s3_options, service, caplog):
    caplog.set_level(logging.WARNING, "lakefmt")
    options = {**s3_options, "token": "session-token-77"}
    store = open_store(f"s3://{s3_bucket}/secret", options)
    echo = " ".join(map(str, (options["key"], options["secret"], options["token"])))
    service.interference = answer_of(403, "AccessDenied", f"you sent {echo}")
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("a", b"x")
    shown = [str(caught.value), repr(caught.value), repr(store), store.url, caplog.text]
    for value in (options["key"], options["secret"], options["token"], options["endpoint_url"]):
        assert all(value not in text for text in shown)
    assert "you sent *** *** ***" in str(caught.value)
    # Nor by way of the client's own error.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_it_is_not_pickled_with_its_secrets(store):
    with pytest.raises(TypeError, match="open_store"):
        pickle.dumps(store)


# ------------------------------------------------------------------------------------------------------ trees, footers


@pytest.mark.newest_only("the oldest botocore has no If-Match: there the parts are listed one by one")
def test_a_tree_is_listed_with_the_marks_of_versions(store, service):
    store.put(".hoodie/a", b"one")
    store.put(".hoodie/below/b", b"two")
    store.put("c", b"beside")
    service.requests.clear()
    listed = {info.name: info for info in store.list_tree(".hoodie")}
    assert len(service.requests) == 1
    assert set(listed) == {".hoodie/a", ".hoodie/below/b"}
    version = store.read_version(".hoodie/a", 9)
    assert (listed[".hoodie/a"].mark, listed[".hoodie/a"].size) == (version.mark, 3)
    store.put(".hoodie/a", b"new")
    assert {info.mark for info in store.list_tree(".hoodie")}.isdisjoint({version.mark})


def test_a_tree_that_one_answer_does_not_hold_is_not_listed(store, service, monkeypatch):
    for number in range(3):
        store.put(f"tree/{number}", b"")
    call = remote_s3.S3Objects._call
    monkeypatch.setattr(
        remote_s3.S3Objects, "_call", lambda self, method, **asked: call(self, method, **asked, MaxKeys=2)
    )
    assert store.list_tree("tree") is None


def test_a_footer_is_kept_until_it_is_asked_for(store, service):
    with store.create("f.parquet") as sink:
        pq.write_table(pa.table({"a": [1, 2, 3]}), sink.file)
        assert sink.put_if_absent() is PutOutcome.DONE
    service.requests.clear()
    footer = store.take_footer("f.parquet")
    assert pq.read_metadata(pa.BufferReader(footer)).equals(pq.read_metadata(pa.BufferReader(store.read("f.parquet"))))
    assert len(service.requests) == 1
    assert store.take_footer("f.parquet") is None


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 40, b"PAR1" + b"\xff" * 16 + b"PAR1"])
def test_what_is_no_parquet_file_has_no_footer(store, content):
    with store.create("f.parquet") as sink:
        sink.file.write(content)
        assert sink.put_if_absent() is PutOutcome.DONE
    assert store.take_footer("f.parquet") is None
