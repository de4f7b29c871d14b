"""The hot frames, against bytes that kio's independent implementation of the protocol makes."""

from __future__ import annotations

import datetime
import io
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch_request_schema
from kio.schema.fetch.v13 import response as fetch_schema
from kio.schema.produce.v9 import request as produce_request_schema
from kio.schema.produce.v9 import response as produce_schema
from kio.schema.produce.v13 import request as produce_by_id_request_schema
from kio.schema.produce.v13 import response as produce_by_id_schema
from kio.serial import entity_reader, entity_writer

from heliograph.errors import WireError
from heliograph.wire.fetch import FetchFrom, fetch_request, parse_fetch_answer
from heliograph.wire.produce import parse_produce_answer, produce_request

TOPIC_ID = uuid.UUID("0c12b63f-6f93-41ba-bebd-37dfba57c4d4")
OTHER_ID = uuid.UUID("11111111-6f93-41ba-bebd-37dfba57c4d4")
NO_TIME: Any = datetime.timedelta(0)


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def test_a_fetch_request_is_read_by_an_independent_decoder_as_meant() -> None:
    body = fetch_request(
        wait_ms_max=500,
        bytes_max=1 << 20,
        read_committed=True,
        session_id=7,
        session_epoch=3,
        wanted={
            (TOPIC_ID.bytes, 2): FetchFrom(41, -1, 5, 1000),
            (TOPIC_ID.bytes, 0): FetchFrom(9, -1, -1, 2000),
        },
        forgotten=[(OTHER_ID.bytes, 4)],
    )

    read = entity_reader(fetch_request_schema.FetchRequest)(body, 0)[0]

    assert (int(read.session_id), int(read.session_epoch), int(read.isolation_level)) == (7, 3, 1)
    assert [topic.topic_id for topic in read.topics] == [TOPIC_ID]
    rows = {int(p.partition): p for p in read.topics[0].partitions}
    assert int(rows[2].fetch_offset) == 41
    assert int(rows[2].last_fetched_epoch) == 5
    assert int(rows[0].partition_max_bytes) == 2000
    assert [int(i) for i in read.forgotten_topics_data[0].partitions] == [4]


def fetch_answer(records: bytes | None) -> Any:
    partition = fetch_schema.PartitionData(
        partition_index=3,  # type: ignore[arg-type]
        error_code=ErrorCode.none,
        high_watermark=100,  # type: ignore[arg-type]
        last_stable_offset=90,  # type: ignore[arg-type]
        log_start_offset=10,  # type: ignore[arg-type]
        aborted_transactions=(
            fetch_schema.AbortedTransaction(producer_id=77, first_offset=42),  # type: ignore[arg-type]
        ),
        records=records,  # type: ignore[arg-type]
    )
    return fetch_schema.FetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        session_id=12,  # type: ignore[arg-type]
        responses=(
            fetch_schema.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,)),
        ),
    )


@pytest.mark.parametrize("records", [b"", b"x" * 5, b"y" * 300])
def test_a_fetch_answer_keeps_its_records_and_offsets(records: bytes) -> None:
    answer = parse_fetch_answer(memoryview(kio_bytes(fetch_answer(records))))

    (partition,) = answer.partitions
    assert answer.session_id == 12
    assert partition.key == (TOPIC_ID.bytes, 3)
    assert (partition.high_watermark, partition.last_stable_offset) == (100, 90)
    assert partition.aborted == ((77, 42),)
    assert bytes(partition.records) == records


def test_a_fetch_answer_cut_anywhere_is_a_wire_error() -> None:
    whole = kio_bytes(fetch_answer(b"z" * 40))

    for size in range(len(whole)):
        with pytest.raises(WireError):
            parse_fetch_answer(memoryview(whole)[:size])


def test_a_produce_request_is_read_by_an_independent_decoder_as_meant() -> None:
    parts = produce_request(
        [("orders", 0, b"a" * 70), ("orders", 1, b"b" * 200), ("pay", 0, b"c" * 3)],
        timeout_ms=1234,
    )

    read = entity_reader(produce_request_schema.ProduceRequest)(b"".join(parts), 0)[0]

    assert int(read.acks) == -1
    assert [topic.name for topic in read.topic_data] == ["orders", "pay"]
    assert [int(p.index) for p in read.topic_data[0].partition_data] == [0, 1]
    assert [len(p.records or b"") for p in read.topic_data[0].partition_data] == [70, 200]


def test_a_produce_request_by_topic_id_is_read_by_an_independent_decoder_as_meant() -> None:
    parts = produce_request(
        [(TOPIC_ID.bytes, 0, b"a" * 70), (OTHER_ID.bytes, 1, b"b"), (TOPIC_ID.bytes, 2, b"c" * 3)],
        timeout_ms=1234,
    )

    read = entity_reader(produce_by_id_request_schema.ProduceRequest)(b"".join(parts), 0)[0]

    assert [topic.topic_id for topic in read.topic_data] == [TOPIC_ID, OTHER_ID]
    assert [int(p.index) for p in read.topic_data[0].partition_data] == [0, 2]
    assert [len(p.records or b"") for p in read.topic_data[0].partition_data] == [70, 3]


def test_a_produce_answer_by_topic_id_names_the_offset_of_each_partition() -> None:
    row = produce_by_id_schema.PartitionProduceResponse(
        index=4,  # type: ignore[arg-type]
        error_code=ErrorCode.unknown_topic_id,
        base_offset=-1,  # type: ignore[arg-type]
        log_append_time=None,
        log_start_offset=-1,  # type: ignore[arg-type]
        record_errors=(),
        error_message=None,
    )
    topic = produce_by_id_schema.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=(row,))
    whole = kio_bytes(
        produce_by_id_schema.ProduceResponse(responses=(topic,), throttle_time=NO_TIME)
    )

    (found,) = parse_produce_answer(memoryview(whole), by_id=True)

    assert (found.topic, found.partition, found.error_code) == (TOPIC_ID.bytes, 4, 100)
    for size in range(len(whole)):
        with pytest.raises(WireError):
            parse_produce_answer(memoryview(whole)[:size], by_id=True)


def produce_answer() -> bytes:
    def row(index: int, code: ErrorCode, message: str | None) -> Any:
        errors: Any = ()
        if message is not None:
            errors = (
                produce_schema.BatchIndexAndErrorMessage(
                    batch_index=0,  # type: ignore[arg-type]
                    batch_index_error_message="a record",
                ),
            )
        return produce_schema.PartitionProduceResponse(
            index=index,  # type: ignore[arg-type]
            error_code=code,
            base_offset=1000 + index,  # type: ignore[arg-type]
            log_append_time=None,
            log_start_offset=1,  # type: ignore[arg-type]
            record_errors=errors,
            error_message=message,
        )

    rows = (
        row(0, ErrorCode.none, None),
        row(1, ErrorCode.message_too_large, "too large"),
        row(2, ErrorCode.none, None),
    )
    topic = produce_schema.TopicProduceResponse(
        name="orders",  # type: ignore[arg-type]
        partition_responses=rows,
    )
    return kio_bytes(produce_schema.ProduceResponse(responses=(topic,), throttle_time=NO_TIME))


def test_a_produce_answer_names_the_offset_or_the_error_of_each_partition() -> None:
    rows = parse_produce_answer(memoryview(produce_answer()))

    assert [(row.partition, row.error_code) for row in rows] == [(0, 0), (1, 10), (2, 0)]
    assert [row.base_offset for row in rows] == [1000, 1001, 1002]
    assert rows[1].message == "too large"


def test_a_produce_answer_cut_anywhere_is_a_wire_error() -> None:
    whole = produce_answer()

    for size in range(len(whole)):
        with pytest.raises(WireError):
            parse_produce_answer(memoryview(whole)[:size])
