"""A consume-transform-produce loop as a process of its own, to be killed and hung: `python -m cluster.transform_client
BOOTSTRAP TRANSACTIONAL_ID GROUP [hold]`.

Reads "in", writes the same to "out", the offsets in the same transaction. It says on stdout what it does, a line each: `ready`,
`committed N`, and at last `failed CODE`. With `hold` it says `holding` before each commit, and waits for a line on stdin.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import confluent_kafka as ck

WAIT_S: Final = 60.0
# librdkafka may wait in vain for a group's coordinator that has left the cluster's metadata (its issue 5511): whoever starts
# anew finds the new one.
OFFSETS_S: Final = 10.0
FENCED: Final = 3
FAILED: Final = 4
FENCED_CODES: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def say(text: str) -> None:
    print(text, flush=True)


def main(bootstrap: str, transactional_id: str, group: str, hold: str = "") -> int:
    common = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000, "enable.metrics.push": False, "log_level": 0}
    consumer: Any = ck.Consumer(
        {
            **common,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )
    producer: Any = ck.Producer({**common, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000})
    try:
        producer.init_transactions(WAIT_S)
        consumer.subscribe(["in"])
        say("ready")
        while True:
            _once(consumer, producer, holds=bool(hold))
    except ck.KafkaException as error:
        code = error.args[0].name()
        say(f"failed {code} {error.args[0].str()}")
        return FENCED if code in FENCED_CODES else FAILED


def _once(consumer: Any, producer: Any, *, holds: bool) -> None:
    records = [one for one in consumer.consume(20, 0.5) if one.error() is None]
    if not records:
        producer.poll(0)
        return
    producer.begin_transaction()
    try:
        for record in records:
            producer.produce("out", record.value(), partition=record.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), OFFSETS_S)
        if holds:
            producer.flush(WAIT_S)
            say("holding")
            sys.stdin.readline()
        _again_while_retriable(producer.commit_transaction)
    except ck.KafkaException as error:
        if error.args[0].txn_requires_abort():
            _again_while_retriable(producer.abort_transaction)
        raise  # whoever comes next begins with what is committed
    say(f"committed {len(records)}")


def _again_while_retriable(step: Any) -> None:
    while True:
        try:
            step(WAIT_S)
            return
        except ck.KafkaException as error:
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    # At once, as in a crash: a client that waits in vain would not let itself be closed.
    os._exit(main(*sys.argv[1:]))
