"""`pybroker transactions list | describe | find-hanging | abort`: transactions of a running cluster, and those that hang.

A hanging transaction is open in a partition, and so holds back everybody who reads what is committed, while its coordinator
knows of no transaction there that could still end it. `abort` writes the marker that its coordinator never will.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pybroker.client.blocking_client import BlockingClient, ClientError, check
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TRANSACTION: Final = 1
DEFAULT_MINUTES: Final = 15  # transaction.max.timeout.ms


class Open(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    leader: int
    producer: ProducerState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="a broker to begin with")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="all transactional ids, with coordinator and state", allow_abbrev=False)
    describe = actions.add_parser("describe", help="one transactional id", allow_abbrev=False)
    describe.add_argument("--transactional-id", required=True)
    find = actions.add_parser("find-hanging", help="open transactions that nobody will end", allow_abbrev=False)
    find.add_argument("--topic", help="of this topic only")
    find.add_argument("--partition", type=int, help="of this partition only")
    find.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=DEFAULT_MINUTES,
        metavar="MINUTES",
        help=f"younger ones may still be ended ({DEFAULT_MINUTES})",
    )
    abort = actions.add_parser("abort", help="end a hanging transaction", allow_abbrev=False)
    abort.add_argument("--topic", required=True)
    abort.add_argument("--partition", type=int, required=True)
    abort.add_argument("--start-offset", type=int, required=True, help="where it begins, as find-hanging says")


def run(args: argparse.Namespace) -> int:
    try:
        with BlockingClient(args.bootstrap_server, "pybroker-transactions") as client:
            if args.action == "list":
                _list(client)
            elif args.action == "describe":
                _describe(client, args.transactional_id)
            elif args.action == "find-hanging":
                _find_hanging(client, args.topic, args.partition, args.max_transaction_timeout * 60_000)
            else:
                _abort(client, args.topic, args.partition, args.start_offset)
    except ClientError as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    return 0


def _list(client: BlockingClient) -> None:
    rows = []
    for broker_id, found in _listed(client):
        rows += [
            (one.transactional_id, str(broker_id), str(one.producer_id), one.transaction_state)
            for one in found.transaction_states
        ]
    _print(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), sorted(rows))


def _listed(client: BlockingClient, producer_ids: Sequence[int] = ()) -> Iterator[tuple[int, ListTransactionsResponse]]:
    if not client.brokers:
        client.topics()
    for broker_id in sorted(client.brokers):
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
        found = client.ask_broker(broker_id, request)
        check(found.error_code, f"the transactions of broker {broker_id}")
        yield broker_id, found


def _describe(client: BlockingClient, transactional_id: str) -> None:
    coordinator = client.coordinator(TRANSACTION, transactional_id)
    found = _described(client, coordinator, transactional_id)
    if found is None:
        raise ClientError(f"there is no transactional id {transactional_id!r} at its coordinator, broker {coordinator}")
    started_ms = found.transaction_start_time_ms
    places = ",".join(f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions)
    row = (
        *(transactional_id, str(coordinator), str(found.producer_id), str(found.producer_epoch), found.transaction_state),
        *(str(found.transaction_timeout_ms), str(started_ms) if started_ms >= 0 else "None", places or "None"),
    )
    names = ("TransactionalId", "Coordinator", "ProducerId", "ProducerEpoch", "TransactionState", "TimeoutMs", "StartTimeMs")
    _print((*names, "TopicPartitions"), [row])


def _described(
    client: BlockingClient, coordinator: int, transactional_id: str
) -> DescribeTransactionsResponseTransactionState | None:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    found: DescribeTransactionsResponseTransactionState
    (found,) = client.ask_broker(coordinator, request).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    check(found.error_code, f"transactional id {transactional_id!r}")
    return found


# Hanging ones.


def _find_hanging(client: BlockingClient, topic: str | None, partition: int | None, max_timeout_ms: int) -> None:
    latest_ms = time.time() * 1000 - max_timeout_ms
    found = [one for one in _open(client, topic, partition) if one.producer.last_timestamp < latest_ms]
    known = _known_to_coordinators(client, {one.producer.producer_id for one in found}) if found else set()
    rows = [
        (
            *(one.topic, str(one.partition), str(one.producer.producer_id), str(one.producer.producer_epoch)),
            *(str(one.producer.coordinator_epoch), str(one.producer.current_txn_start_offset)),
            str(one.producer.last_timestamp),
        )
        for one in found
        if (one.producer.producer_id, one.topic, one.partition) not in known
    ]
    _print(("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"), rows)


def _open(client: BlockingClient, name: str | None, partition: int | None) -> Iterator[Open]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in client.topics(*([] if name is None else [name])):
        if name is not None:
            check(topic.error_code, f"topic {topic.name}")
        for row in topic.partitions:
            if row.leader_id >= 0 and partition in (None, row.partition_index):
                assert topic.name is not None
                by_leader.setdefault(row.leader_id, {}).setdefault(topic.name, []).append(row.partition_index)
    for leader, topics in sorted(by_leader.items()):
        asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        for topic in client.ask_broker(leader, DescribeProducersRequest(topics=asked)).topics:
            for row in topic.partitions:
                check(row.error_code, f"the producers of {topic.name}-{row.partition_index}")
                for producer in row.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        yield Open(topic.name, row.partition_index, leader, producer)


def _known_to_coordinators(client: BlockingClient, producer_ids: set[int]) -> set[tuple[int, str, int]]:
    """Producer, topic and partition of what is part of a transaction that has not ended."""
    known = set()
    for broker_id, found in _listed(client, sorted(producer_ids)):
        for one in found.transaction_states:
            transaction = _described(client, broker_id, one.transactional_id)
            if transaction is not None:
                known |= {
                    (transaction.producer_id, topic.topic, index) for topic in transaction.topics for index in topic.partitions
                }
    return known


def _abort(client: BlockingClient, topic: str, partition: int, start_offset: int) -> None:
    starts = {one.producer.current_txn_start_offset: one for one in _open(client, topic, partition)}
    if start_offset not in starts:
        there = ", ".join(map(str, sorted(starts))) or "none"
        raise ClientError(f"no transaction of {topic}-{partition} begins at offset {start_offset}; open there are: {there}")
    one = starts[start_offset]
    marker = WritableTxnMarker(
        producer_id=one.producer.producer_id,
        producer_epoch=one.producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        # It never had a marker if there is no epoch.
        coordinator_epoch=max(0, one.producer.coordinator_epoch),
    )
    (result,) = client.ask_broker(one.leader, WriteTxnMarkersRequest(markers=[marker])).markers
    check(result.topics[0].partitions[0].error_code, f"the marker for {topic}-{partition}")
    print(f"aborted the transaction of producer {one.producer.producer_id} in {topic}-{partition}")


def _print(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """In columns, as wide as the longest value."""
    widths = [max(len(row[number]) for row in (names, *rows)) for number in range(len(names))]
    for row in (names, *rows):
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
