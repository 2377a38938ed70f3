"""A transactional producer by hand, request by request, for any broker that can be asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from support.batches import batch
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import groups, produce
from pybroker.protocol.messages import transactions as messages


class Broker(Protocol):
    def ask(self, request: Message, version: int | None = None) -> Any: ...


TIMEOUT_MS = 60_000
# The last versions that a client without transaction version 2 speaks, and the first of one with it.
OLD_ADD, OLD_PRODUCE, OLD_OFFSETS, OLD_END = 3, 11, 4, 4
NEW_PRODUCE, NEW_OFFSETS, NEW_END = 12, 5, 5


def wait_for_coordinator(broker: Broker, transactional_id: str = "a", *, has_group: bool = True) -> None:
    """And for that of a group."""

    def answers() -> bool:
        for kind, key in (*([(0, "g")] if has_group else ()), (1, transactional_id)):
            found = broker.ask(groups.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])).coordinators[0]
            if found.error_code != ErrorCode.NONE:
                return False
        row = broker.ask(messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])).transaction_states[0]
        return row.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    wait_until(answers, 30, lambda: "there is no coordinator")


@dataclass(slots=True)
class Producer:
    broker: Broker
    id: str
    is_new: bool = True  # speaks transaction version 2
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)  # the next, by partition
    timeout_ms: int = TIMEOUT_MS
    offset: int = -1  # of the last batch

    def init(self, *, expected: bool = False, patient: bool = True) -> ErrorCode:
        request = messages.InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=self.timeout_ms)
        if expected:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch

        def ask() -> Any:
            return self.broker.ask(request)

        answer = _patiently(ask) if patient else ask()
        if answer.error_code == ErrorCode.NONE:
            self._became(answer)
        return ErrorCode(answer.error_code)

    def add(self, topic: str = "t", *partitions: int) -> ErrorCode:
        rows = [messages.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=rows,
        )

        def ask() -> Any:
            return self.broker.ask(request, OLD_ADD).results_by_topic_v3_and_below[0].results_by_partition[0]

        return ErrorCode(_patiently(ask, "partition_error_code").partition_error_code)

    def send(self, *values: bytes, topic: str = "t", partition: int = 0) -> ErrorCode:
        now_ms = int(time.time() * 1000)
        sent = batch(
            list(values),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            sequence=self.sequences.get(partition, 0),
            transactional=True,
            timestamps=[now_ms] * len(values),
        )
        data = produce.PartitionProduceData(index=partition, records=sent)
        request = produce.ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
        )

        def ask() -> Any:
            version = NEW_PRODUCE if self.is_new else OLD_PRODUCE
            return self.broker.ask(request, version).responses[0].partition_responses[0]

        answer = _patiently(ask)
        if answer.error_code == ErrorCode.NONE:
            self.sequences[partition] = self.sequences.get(partition, 0) + len(values)
            self.offset = answer.base_offset
        return ErrorCode(answer.error_code)

    def commit_offset(self, group: str, offset: int, topic: str = "t", partition: int = 0) -> ErrorCode:
        code = ErrorCode.NONE if self.is_new else self.add_offsets(group)
        if code:
            return code
        row = messages.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        commit = messages.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[messages.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )

        def ask() -> Any:
            return self.broker.ask(commit, NEW_OFFSETS if self.is_new else OLD_OFFSETS).topics[0].partitions[0]

        return ErrorCode(_patiently(ask).error_code)

    def add_offsets(self, group: str) -> ErrorCode:
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return ErrorCode(_patiently(lambda: self.broker.ask(request)).error_code)

    def end(self, *, commit: bool) -> ErrorCode:
        request = messages.EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = _patiently(lambda: self.broker.ask(request, NEW_END if self.is_new else OLD_END))
        if self.is_new and answer.error_code == ErrorCode.NONE:
            self._became(answer)
        return ErrorCode(answer.error_code)

    def _became(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def described(self) -> Any:
        request = messages.DescribeTransactionsRequest(transactional_ids=[self.id])
        return self.broker.ask(request).transaction_states[0]

    def wait_until_ended(self) -> None:
        def is_ended() -> bool:
            return not self.described().transaction_state.startswith("Prepare")

        wait_until(is_ended, 30, lambda: f"{self.id} is not ended")


def _patiently(ask: Any, field: str = "error_code") -> Any:
    """As a client does: again, while the coordinator is still busy with the transaction before."""
    found: list[Any] = []

    def is_done() -> bool:
        found[:] = [ask()]
        return getattr(found[0], field) not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    wait_until(is_done, 30, lambda: f"it stays so: {found}")
    return found[0]


OK = ErrorCode.NONE


def must(code: ErrorCode, expected: ErrorCode = OK) -> None:
    assert code is expected, code
