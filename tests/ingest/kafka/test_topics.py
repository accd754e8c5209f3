"""Topics of a real broker as sources: each test is named after its rule."""

from __future__ import annotations

import json
import logging
import time

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from lakefmt._core.ingest.api import Checkpoint
from lakefmt._core.ingest.kafka.source import open_kafka_source
from lakefmt.errors import PositionLost, SourceRefused, SourceUnavailable, UnknownSetting
from tests.judges.kafka import free_port, kafka_broker, send

DELETE, UPSERT = 3, 2


def opened(kafka, topic, **more):
    """A source that begins at the beginning, unless more is said: `a__b` stands for `a.b`."""
    settings = {
        "hoodie.streamer.source.kafka.topic": topic,
        "bootstrap.servers": kafka.address,
        "auto.offset.reset": "earliest",
        "lakefmt.ingest.kafka.timeout.seconds": "20",
    }
    return open_kafka_source(settings | {name.replace("__", "."): value for name, value in more.items()})


class Job:
    """Rounds of a source; `rows` are those of committed rounds, `at` is the checkpoint of the last one."""

    def __init__(self, source, at=None):
        self.source, self.at = source, at
        self.rows, self.rejected, self.kinds, self.rounds = [], [], [], 0

    def run(self, limit=None, *, dies=False):
        """Run one round; return whether there was one. A round that dies is read and not committed."""
        planned = self.source.plan(self.at, limit)
        if planned is None:
            return False
        batches = list(planned.batches())
        if dies:
            return True
        self.at = planned.checkpoint
        self.rounds += 1
        for batch in batches:
            self.rows += batch.rows.to_pylist()
            self.kinds += [] if batch.kinds is None else batch.kinds.tolist()
            self.rejected += [] if batch.rejected is None else batch.rejected.to_pylist()
        return True

    def run_all(self, limit=None):
        while self.run(limit):
            pass
        return self


def values(numbers):
    return [b'{"id":%d}' % number for number in numbers]


def ids(job):
    return [row["id"] for row in job.rows]


def test_rounds_with_limits_take_every_message_once_in_the_order_of_its_partition(kafka):
    topic = kafka.create_topic(3)
    for partition in range(3):
        kafka.send_values(topic, values(range(partition * 100, partition * 100 + 5 + partition)), partition)
    job = Job(opened(kafka, topic))
    assert job.run(6)
    assert job.at.text == f"{topic},0:2,1:2,2:2"
    assert job.run(6, dies=True)
    job.run_all(6)
    assert sorted(ids(job)) == [*range(5), *range(100, 106), *range(200, 207)]
    assert all(
        [each for each in ids(job) if each // 100 == part] == sorted(each for each in ids(job) if each // 100 == part)
        for part in range(3)
    )
    assert job.at.text == f"{topic},0:5,1:6,2:7"


def test_a_round_reads_the_same_rows_again(kafka):
    topic = kafka.create_topic(2)
    kafka.send(topic, [(b"%d" % number, b'{"id":%d}' % number) for number in range(50)])
    planned = opened(kafka, topic).plan(None, 33)
    first, second = ([row["id"] for batch in planned.batches() for row in batch.rows.to_pylist()] for _ in range(2))
    assert sorted(first) == sorted(second)
    assert planned.expected_rows == 33


def test_a_job_that_begins_at_the_end_stays_there_until_its_first_commit_says_where_it_is(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(4)))
    source = opened(kafka, topic, auto__offset__reset="latest")
    first = source.plan(None, None)
    assert first.checkpoint.text == f"{topic},0:4"
    kafka.send_values(topic, values(range(4, 6)))
    job = Job(source).run_all()  # the first round could not be committed: there was no row to make a table of
    assert ids(job) == [4, 5]
    kafka.add_partitions(topic, 2)
    kafka.send_values(topic, values([7]), 1)
    assert ids(Job(source).run_all()) == [4, 5, 7]


def test_a_job_begins_at_the_beginning_unless_told_otherwise(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(3)))
    source = open_kafka_source({"hoodie.streamer.source.kafka.topic": topic, "bootstrap.servers": kafka.address})
    assert ids(Job(source).run_all()) == [0, 1, 2]


def test_a_job_may_begin_at_its_groups_offsets(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(5)))
    told = opened(kafka, topic, **{"group.id": "g1", "hoodie.streamer.source.kafka.enable.commit.offset": "true"})
    told.committed(Checkpoint(f"{topic},0:3"))
    told.close()
    job = Job(opened(kafka, topic, **{"group.id": "g1", "auto.offset.reset": "group"})).run_all()
    assert ids(job) == [3, 4]


def test_partitions_that_are_added_begin_at_0(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(3)))
    job = Job(opened(kafka, topic)).run_all()
    kafka.add_partitions(topic, 3)
    kafka.send_values(topic, values(range(10, 14)), partition=2)
    job.run_all()
    assert ids(job) == [0, 1, 2, 10, 11, 12, 13]
    assert job.at.text == f"{topic},0:3,1:0,2:4"


def test_nothing_new_is_no_round(kafka):
    topic = kafka.create_topic(2)
    kafka.send_values(topic, values(range(3)))
    job = Job(opened(kafka, topic)).run_all()
    assert job.rounds == 1
    assert not job.run()


def test_a_topic_that_was_made_anew_is_not_read_on_also_where_it_has_grown_past_the_checkpoint(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(3)))
    job = Job(opened(kafka, topic)).run_all()
    kafka.delete_topic(topic)
    kafka.create_topic(name=topic)
    with pytest.raises(PositionLost, match="deleted and made anew"):
        Job(opened(kafka, topic), job.at).run()
    hudis = Checkpoint(job.at.text)  # has no id of the topic
    with pytest.raises(PositionLost, match=r"the checkpoint is at offset 3, and the topic ends at 0"):
        Job(opened(kafka, topic), hudis).run()
    kafka.send_values(topic, values(range(10)))
    with pytest.raises(PositionLost, match="deleted and made anew"):
        Job(opened(kafka, topic), job.at).run()


def test_retention_that_passed_the_checkpoint_stops_the_job_or_by_option_loses_what_is_gone_of_that_partition_alone(
    kafka, caplog
):
    topic = kafka.create_topic(2)
    kafka.send_values(topic, values(range(10)), 0)
    kafka.send_values(topic, values(range(100, 110)), 1)
    job = Job(opened(kafka, topic))
    job.run(8)
    assert job.at.text == f"{topic},0:4,1:4"
    kafka.delete_before(topic, {1: 7})
    with pytest.raises(
        PositionLost, match=r"partition 1 .* is at offset 4, and the topic begins at 7: 3 offsets are gone"
    ):
        job.run()
    lenient = Job(opened(kafka, topic, **{"hoodie.deltastreamer.source.kafka.enable.failOnDataLoss": "false"}), job.at)
    with caplog.at_level(logging.WARNING, "lakefmt.kafka"):
        lenient.run_all()
    assert ids(lenient) == [*range(4, 10), *range(107, 110)]
    assert "partition 1: 3 offsets are gone and left out" in caplog.text


def test_messages_that_go_while_a_round_reads_them_stop_it(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(10)))
    planned = opened(kafka, topic).plan(None, None)
    kafka.delete_before(topic, {0: 5})
    with pytest.raises(PositionLost, match="were removed while they were read"):
        list(planned.batches())


# ----------------------------------------------------------------------------------------------------- transactions


def test_transactions_count_when_they_are_committed_and_their_marks_make_no_round_hang(kafka):
    topic = kafka.create_topic()
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    job = Job(opened(kafka, topic))
    for number, ends in enumerate(["commit", "abort", "commit", "abort", "abort"]):
        producer.begin_transaction()
        send(producer, topic, [(None, b'{"id":%d}' % number)])
        assert producer.flush(30) == 0
        (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(30)
        kafka.wait_for_end(topic, number * 2 + 2)
        while job.run(1):  # ends in the middle of aborted messages and marks, too
            pass
    assert ids(job) == [0, 2]
    assert job.at.text == f"{topic},0:10"
    producer.begin_transaction()
    send(producer, topic, [(None, b'{"id":7}')])
    assert producer.flush(30) == 0
    kafka.send_values(topic, values([8]))
    assert not job.run()  # nobody knows yet whether 7 counts, and 8 stands behind it
    producer.commit_transaction(30)
    kafka.wait_for_end(topic, 13)
    job.run_all()
    assert ids(job) == [0, 2, 7, 8]


def test_uncommitted_messages_are_read_by_option_and_a_later_job_that_does_not_read_them_waits(kafka):
    topic = kafka.create_topic()
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, topic, [(None, b'{"id":1}')])
    assert producer.flush(30) == 0
    eager = Job(opened(kafka, topic, **{"isolation.level": "read_uncommitted"})).run_all()
    assert ids(eager) == [1]
    assert not Job(opened(kafka, topic), eager.at).run()
    producer.abort_transaction(30)


@pytest.mark.slow
def test_a_compacted_topic_has_gaps_and_its_last_message_ends_the_round(kafka):
    topic = kafka.create_topic(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="100",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="100",
    )
    for number in range(6):
        kafka.send(topic, [(b"%d" % (each % 3), b'{"id":%d}' % (number * 10 + each)) for each in range(9)])
    source = opened(kafka, topic)
    rows = ids(Job(source).run_all())
    deadline = time.monotonic() + 60
    while len(rows) > 40 and time.monotonic() < deadline:  # until the broker has compacted
        kafka.send(topic, [(b"x", b'{"id":-1}')])  # rolls the segment
        rows = ids(Job(source).run_all())
    assert len(rows) < 40
    limited = Job(source).run_all(4)
    assert limited.rounds >= 2
    assert max(ids(limited)) == 58


# ------------------------------------------------------------------------------------------------- keys and values


def test_messages_without_a_value_are_left_out_and_counted(kafka):
    topic = kafka.create_topic()
    kafka.send(topic, [(b"1", b'{"id":1}'), (b"1", None), (None, None), (b"2", b'{"id":2}')])
    job = Job(opened(kafka, topic)).run_all()
    assert ids(job) == [1, 2]
    assert job.source.skipped == {"null values": 2}
    assert job.at.text == f"{topic},0:4"


def test_a_topic_of_nothing_but_null_values_still_moves_its_checkpoint(kafka):
    topic = kafka.create_topic()
    kafka.send(topic, [(b"1", None)] * 3)
    job = Job(opened(kafka, topic))
    assert job.run()
    assert job.rows == []
    assert job.at.text == f"{topic},0:3"


def test_by_option_a_message_without_a_value_deletes_its_key_in_order(kafka):
    topic = kafka.create_topic()
    kafka.send(
        topic,
        [(b'{"id":1}', b'{"id":1,"v":"a"}'), (b'{"id":1}', None), (b'{"id":1}', b'{"id":1,"v":"b"}'), (None, None)],
    )
    job = Job(opened(kafka, topic, **{"lakefmt.ingest.kafka.null.values": "delete"})).run_all()
    assert job.rows == [{"id": 1, "v": "a"}, {"id": 1, "v": None}, {"id": 1, "v": "b"}]
    assert job.kinds == [UPSERT, DELETE, UPSERT]
    assert job.rejected == [{"reason": "neither a key nor a value", "origin": f"{topic}-0@3", "payload": None}]


def test_a_key_of_text_deletes_by_the_column_that_is_named_for_it(kafka):
    topic = kafka.create_topic()
    kafka.send(topic, [(b"k1", b'{"v":1}'), (b"k1", None)])
    more = {"lakefmt.ingest.kafka.null.values": "delete", "lakefmt.ingest.kafka.key.column": "id"}
    job = Job(opened(kafka, topic, **more)).run_all()
    assert job.rows == [{"v": 1, "id": "k1"}, {"v": None, "id": "k1"}]
    assert job.kinds == [UPSERT, DELETE]


def test_offsets_keys_times_and_headers_are_columns_by_option(kafka):
    topic = kafka.create_topic(2)
    more = {"partition": 1, "timestamp": 1_700_000_000_123, "headers": [("h", b"1"), ("n", None)]}
    kafka.send(topic, [("kéy", b'{"id":1}', more), (None, b'{"id":2}', {"partition": 1})])
    names = {"hoodie.streamer.source.kafka.append.offsets": "true", "lakefmt.ingest.kafka.headers": "true"}
    job = Job(opened(kafka, topic, **names)).run_all()
    assert job.rows[0] == {
        "id": 1,
        "_hoodie_kafka_source_offset": 0,
        "_hoodie_kafka_source_partition": 1,
        "_hoodie_kafka_source_timestamp": 1_700_000_000_123,
        "_hoodie_kafka_source_key": "kéy",
        "_kafka_headers": [("h", b"1"), ("n", None)],
    }
    assert job.rows[1]["_hoodie_kafka_source_key"] is None
    assert job.rows[1]["_kafka_headers"] is None


def test_poison_messages_are_rejected_with_their_origins_and_the_others_are_rows(kafka):
    topic = kafka.create_topic()
    sent = values(range(1000))
    for place, poison in {3: b"", 500: b'{"id":', 501: b'{"id":1}{"id":2}', 999: b"\xff\xfe"}.items():
        sent[place] = poison
    kafka.send_values(topic, sent)
    job = Job(opened(kafka, topic)).run_all()
    assert ids(job) == [each for each in range(1000) if each not in (3, 500, 501, 999)]
    assert [record["origin"] for record in job.rejected] == [f"{topic}-0@{place}" for place in (3, 500, 501, 999)]
    assert [record["payload"] for record in job.rejected] == [sent[place] for place in (3, 500, 501, 999)]
    assert all(record["reason"] for record in job.rejected)


def test_text_and_bytes_are_one_column(kafka):
    topic = kafka.create_topic()
    kafka.send(topic, [(b"a", "é".encode()), (b"b", b"\xff")])
    as_text = Job(
        opened(kafka, topic, **{"lakefmt.ingest.kafka.format": "text", "lakefmt.ingest.kafka.key.column": "key"})
    ).run_all()
    assert as_text.rows == [{"value": "é", "key": "a"}]
    assert [record["reason"] for record in as_text.rejected] == ["no UTF-8"]
    as_bytes = Job(
        opened(kafka, topic, **{"lakefmt.ingest.kafka.format": "bytes", "lakefmt.ingest.kafka.value.column": "raw"})
    ).run_all()
    assert as_bytes.rows == [{"raw": "é".encode()}, {"raw": b"\xff"}]


def test_envelopes_of_debezium_have_kinds(kafka):
    topic = kafka.create_topic(name="s.shop.items")
    source = {"db": "shop", "table": "items", "connector": "mysql"}

    def envelope(op, before, after):
        return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()

    kafka.send(
        topic,
        [
            (b'{"id":1}', envelope("c", None, {"id": 1, "v": "a"})),
            (b'{"id":1}', envelope("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"})),
            (b'{"id":1}', envelope("d", {"id": 1, "v": "b"}, None)),
            (b'{"id":1}', None),
            (b'{"id":2}', b"poison"),
        ],
    )
    job = Job(
        opened(
            kafka,
            topic,
            **{"hoodie.streamer.source.class": "org.apache.hudi.utilities.sources.debezium.MysqlDebeziumSource"},
        )
    )
    job.run_all()
    assert [row["v"] for row in job.rows] == ["a", "a", "b", "b"]
    assert job.kinds == [0, 1, 2, 3]
    assert [record["origin"] for record in job.rejected] == ["s.shop.items-0@4"]


def test_batches_are_bounded_in_rows_and_bytes(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(3000)))
    batches = list(opened(kafka, topic, **{"lakefmt.ingest.kafka.batch.rows": "500"}).plan(None, None).batches())
    assert sum(batch.rows.num_rows for batch in batches) == 3000
    assert len(batches) >= 2
    kafka.send_values(topic, [b'{"id":1,"v":"%s"}' % (b"x" * 200_000)] * 20)
    large = opened(kafka, topic, **{"lakefmt.ingest.kafka.batch.bytes": "1000000"}).plan(
        Checkpoint(f"{topic},0:3000"), None
    )
    assert len(list(large.batches())) >= 2


# ---------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_that_is_a_time_begins_at_the_first_message_that_is_not_older(kafka):
    topic = kafka.create_topic(2)
    for number in range(5):
        kafka.send(
            topic, [(None, b'{"id":%d}' % number, {"partition": 0, "timestamp": 1_700_000_000_000 + number * 1000})]
        )
    kafka.send(topic, [(None, b'{"id":9}', {"partition": 1, "timestamp": 1_600_000_000_000})])
    more = {"hoodie.streamer.source.kafka.checkpoint.type": "timestamp"}
    for text in ("1700000003", "1700000002500"):
        job = Job(opened(kafka, topic, **more), Checkpoint(text)).run_all()
        assert ids(job) == [3, 4]
        assert job.at.text == f"{topic},0:5,1:1"
    assert not Job(opened(kafka, topic, **more), job.at).run()  # the next one is Hudi's text


def test_a_checkpoint_that_is_one_offset_is_for_a_topic_of_one_partition(kafka):
    topic, wider = kafka.create_topic(), kafka.create_topic(2)
    kafka.send_values(topic, values(range(5)))
    more = {"hoodie.streamer.source.kafka.checkpoint.type": "single_offset"}
    assert ids(Job(opened(kafka, topic, **more), Checkpoint("3")).run_all()) == [3, 4]
    with pytest.raises(SourceRefused, match="has 2"):
        Job(opened(kafka, wider, **more), Checkpoint("3")).run()


def test_a_checkpoint_of_a_source_of_files_says_so(kafka):
    topic = kafka.create_topic()
    with pytest.raises(SourceRefused, match="comes from a source of another kind"):
        opened(kafka, topic).plan(Checkpoint("1700000000000"), None)


# ------------------------------------------------------------------------------------------------------- failures


def test_a_topic_that_is_not_there_and_a_setting_that_is_none_are_refused(kafka):
    with pytest.raises(SourceRefused, match="has no topic 'nowhere'"):
        opened(kafka, "nowhere").plan(None, None)
    with pytest.raises(SourceRefused, match=r"refuses the setting sasl.pasword: there is no such setting") as raised:
        opened(kafka, "nowhere", **{"kafka.sasl.pasword": "s3cret"}).plan(None, None)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(SourceRefused) as raised:
        opened(kafka, "nowhere", **{"kafka.socket.timeout.ms": "s3cret"}).plan(None, None)
    assert "s3cret" not in str(raised.value)


def test_brokers_that_do_not_answer_are_unavailable_and_nothing_goes_to_standard_error(capfd):
    source = open_kafka_source(
        {
            "hoodie.streamer.source.kafka.topic": "t",
            "bootstrap.servers": f"127.0.0.1:{free_port()}",
            "lakefmt.ingest.kafka.timeout.seconds": "1",
        }
    )
    with pytest.raises(SourceUnavailable, match="Connection refused"):
        source.plan(None, None)
    source.close()
    assert capfd.readouterr().err == ""


def test_what_librdkafka_has_to_say_goes_to_a_logger(kafka, capfd, caplog):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(3)))
    with caplog.at_level(logging.DEBUG, "lakefmt.kafka"):
        Job(opened(kafka, topic, **{"kafka.debug": "consumer"})).run_all()
    assert "ASSIGN" in caplog.text
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_broker_that_dies_amid_a_round_is_unavailable_and_after_its_restart_nothing_is_lost_or_repeated():
    with kafka_broker() as broker:
        topic = broker.create_topic(2)
        broker.send(topic, [(b"%d" % number, b'{"id":%d,"v":"%s"}' % (number, b"x" * 500)) for number in range(60_000)])
        job = Job(
            opened(
                broker, topic, **{"lakefmt.ingest.kafka.timeout.seconds": "2", "lakefmt.ingest.kafka.batch.rows": "500"}
            )
        )
        job.run(20_000)
        planned = job.source.plan(job.at, None)
        batches = planned.batches()
        next(batches)
        broker.kill()
        with pytest.raises(SourceUnavailable, match="nothing came for 2 s"):
            list(batches)
        with pytest.raises(SourceUnavailable):
            job.source.plan(job.at, None)
        broker.start()
        job.run_all()
        assert sorted(ids(job)) == list(range(60_000))


def test_rebalances_of_the_group_do_not_matter(kafka):
    from confluent_kafka import Consumer

    topic = kafka.create_topic(2)
    kafka.send(topic, [(b"%d" % number, b'{"id":%d}' % number) for number in range(100)])
    job = Job(opened(kafka, topic, **{"group.id": "shared"}))
    job.run(30)
    other = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": "shared", "logger": logging.getLogger("tests.kafka")}
    )
    other.subscribe([topic])
    other.consume(10, 0.5)
    job.run(30)
    other.close()
    job.run_all()
    assert sorted(ids(job)) == list(range(100))


def test_the_types_of_the_table_are_those_that_json_is_read_with(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, [b'{"id":1,"price":1,"day":"2024-01-01"}'])
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("day", pa.date32())])
    source = opened(kafka, topic)
    source.table_schema = schema
    batches = list(source.plan(None, None).batches())
    assert batches[0].rows.schema == pa.schema(
        [("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("day", pa.date32())]
    )


def test_a_source_needs_a_topic_and_brokers():
    with pytest.raises(UnknownSetting, match=r"needs hoodie\.streamer\.source\.kafka\.topic"):
        open_kafka_source({"bootstrap.servers": "b"})
    with pytest.raises(UnknownSetting, match=r"needs bootstrap\.servers"):
        open_kafka_source({"hoodie.streamer.source.kafka.topic": "t"})


def test_group_offsets_follow_the_table_for_others_to_look_at(kafka):
    from confluent_kafka import Consumer

    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(5)))
    more = {"group.id": "watched", "hoodie.streamer.source.kafka.enable.commit.offset": "true"}
    job = Job(opened(kafka, topic, **more)).run_all()
    job.source.committed(job.at)
    watcher = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": "watched", "logger": logging.getLogger("tests.kafka")}
    )
    assert watcher.committed([TopicPartition(topic, 0)], timeout=20)[0].offset == 5
    watcher.close()
