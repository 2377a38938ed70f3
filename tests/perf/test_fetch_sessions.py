"""What a fetch session adds to a fetch. Printed, not asserted: `make perf`."""

from __future__ import annotations

import random
import threading

import pytest
from perf.measure import best_us, report

from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pybroker.protocol.messages.fetch import PartitionData as Data
from pybroker.replication.fetch_sessions import FetchContext, FetchSessions

pytestmark = pytest.mark.perf


def request_of(partitions: int, session_id: int, epoch: int) -> FetchRequest:
    rows = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)]
    topics = [FetchTopic(topic="t", partitions=rows)] if rows else []
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)


def data_of(index: int) -> Data:
    return Data(
        partition_index=index, error_code=0, high_watermark=0, last_stable_offset=0, aborted_transactions=None, records=b""
    )


def name_of(topic_id: bytes) -> str:
    return "t"


def test_overhead_of_sessions() -> None:
    print()
    sessions = FetchSessions(1000, random.randrange, lock=threading.Lock())
    data = data_of(0)
    answer = FetchResponse(session_id=0, responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    assert answer.session_id == 0
    report(
        "the response message by itself",
        best_us(lambda: FetchResponse(session_id=0, responses=[FetchableTopicResponse(topic="t", partitions=[data])])),
        "µs",
    )

    def answered(context: FetchContext) -> int:
        return context.response([(wanted, data) for wanted in context.partitions], 0).session_id

    sessionless, full = request_of(1, 0, -1), request_of(1, 0, 0)
    took = best_us(lambda: answered(sessions.context_for(sessionless, 12, name_of, 0)))
    report("sessionless fetch of one partition, message and all", took, "µs")

    def fetch_fully() -> None:
        full.session_id = answered(sessions.context_for(full, 12, name_of, 0))

    report("full fetch of one partition that opens a session", best_us(fetch_fully), "µs")
    for partitions in (1, 1000):
        rows = [data_of(index) for index in range(partitions)]
        context = sessions.context_for(request_of(partitions, 0, 0), 12, name_of, 0)
        first = context.response(list(zip(context.partitions, rows, strict=True)), 0)
        request = request_of(0, first.session_id, 0)

        def fetch(request: FetchRequest = request, rows: list[Data] = rows) -> None:
            request.session_epoch += 1
            rows[0].high_watermark += 1
            context = sessions.context_for(request, 12, name_of, 0)
            context.response(list(zip(context.partitions, rows, strict=True)), 0)

        report(f"incremental fetch, 1 of {partitions} partitions changed", best_us(fetch), "µs")
