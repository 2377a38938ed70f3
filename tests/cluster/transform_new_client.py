"""The loop of `transform_client` with KIP-890, by hand: `python -m cluster.transform_new_client BOOTSTRAP ID GROUP`.

Reads all of "in" from the offsets of a group that has no members, writes the same to "out-new". It says the same as that one.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import confluent_kafka as ck
from cluster.routed import Routed, UnansweredError
from cluster.transform_client import FAILED, FENCED, FENCED_CODES, say
from support.transactional import Producer

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

PARTITIONS: Final = 3
WAIT_S: Final = 60.0
MOST: Final = 200
OFFSET_FETCH_VERSION: Final = 9
TIMEOUT_MS: Final = 10_000


class RefusedError(Exception):
    pass


def must(code: ErrorCode) -> None:
    if code:
        raise RefusedError(code.name)


def main(bootstrap: str, transactional_id: str, group: str, _: str = "") -> int:
    routed = Routed(bootstrap, transactional_id, group, WAIT_S)
    producer = Producer(routed, transactional_id, timeout_ms=TIMEOUT_MS)
    try:
        must(producer.init())
        consumer = _consumer(bootstrap, group, _committed(routed, group))
        say("ready")
        while True:
            _once(consumer, producer, group)
    except (RefusedError, UnansweredError, AssertionError) as error:
        say(f"failed {error}")
        return FENCED if str(error) in FENCED_CODES else FAILED


def _committed(routed: Routed, group: str) -> dict[int, int]:
    """Where to begin: nothing of a transaction before is pending any more."""
    topic = OffsetFetchRequestTopics(name="in", partition_indexes=list(range(PARTITIONS)))
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=True)
    answer = routed.ask(asked, OFFSET_FETCH_VERSION)
    return {row.partition_index: max(0, row.committed_offset) for row in answer.groups[0].topics[0].partitions}


def _consumer(bootstrap: str, group: str, positions: dict[int, int]) -> Any:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "socket.timeout.ms": 10_000,
            "enable.metrics.push": False,
            "log_level": 0,
        }
    )
    consumer.assign([ck.TopicPartition("in", partition, offset) for partition, offset in positions.items()])
    return consumer


def _once(consumer: Any, producer: Producer, group: str) -> None:
    records = [one for one in consumer.consume(MOST, 0.5) if one.error() is None]
    for partition in sorted({one.partition() for one in records}):
        own = [one for one in records if one.partition() == partition]
        must(producer.send(*(one.value() for one in own), topic="out-new", partition=partition))
        must(producer.commit_offset(group, own[-1].offset() + 1, "in", partition))
    if records:
        must(producer.end(commit=True))
        say(f"committed {len(records)}")


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
