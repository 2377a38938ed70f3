"""Tells the controller of the in-sync replicas of the partitions led here: AlterPartition, one request under way at a time.

Any thread. Proposals that come meanwhile go out together with the next request. A request without an answer, or refused as a
whole, goes out again: the new controller may have to be found first, or this broker to register anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.base.timer import Deadlines
from pybroker.protocol.errors import ErrorCode, error_name, error_of
from pybroker.protocol.message import Message
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from pybroker.replication.isr import IsrProposal, IsrUpdated
from pybroker.replication.partition import Partition

RETRY_MS: Final = 50

logger = logging.getLogger(__name__)

# Sends a request to the active controller; the answer, or None if there is none, comes on some thread, maybe this one.
AskController = Callable[[Message, Callable[[Message | None], None]], None]
OnAnswer = Callable[[Partition, IsrProposal, IsrUpdated | ErrorCode], None]


class Proposed(NamedTuple):
    partition: Partition
    proposal: IsrProposal


class IsrUpdates:
    def __init__(
        self,
        ask: AskController,
        broker_id: int,
        own_epoch: Callable[[], int],
        timer: Deadlines,
        monotonic_ms: Callable[[], int],
        on_answer: OnAnswer,
    ) -> None:
        """`on_answer` is called without a lock, once for each proposal that the controller decided on."""
        self._ask = ask
        self._broker_id = broker_id
        self._own_epoch = own_epoch
        self._timer = timer
        self._monotonic_ms = monotonic_ms
        self._on_answer = on_answer
        self._lock = threading.Lock()
        self._unsent: dict[tuple[Uuid, int], Proposed] = {}
        self._is_under_way = False

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """A partition has at most one proposal that counts; a later one takes the place of one that was not sent yet."""
        with self._lock:
            self._unsent[partition.topic_id, partition.topic_partition.partition] = Proposed(partition, proposal)
        self._send()

    def _send(self) -> None:
        with self._lock:
            if self._is_under_way or not self._unsent:
                return
            self._is_under_way = True
            sent, self._unsent = self._unsent, {}
        request = _request(self._broker_id, self._own_epoch(), sent)
        self._ask(request, lambda response: self._answered(sent, response))

    def _answered(self, sent: dict[tuple[Uuid, int], Proposed], response: Message | None) -> None:
        code = response.error_code if isinstance(response, AlterPartitionResponse) else ErrorCode.NETWORK_EXCEPTION
        if code:
            logger.info("AlterPartition of %d partitions: %s; it goes out again", len(sent), error_name(code))
            with self._lock:
                self._unsent = sent | self._unsent
                self._is_under_way = False
            self._timer.add(self._monotonic_ms() + RETRY_MS, self._send)
            return
        assert isinstance(response, AlterPartitionResponse)
        with self._lock:
            self._is_under_way = False
        for topic in response.topics:
            for row in topic.partitions:
                proposed = sent.pop((topic.topic_id, row.partition_index), None)
                if proposed is not None:
                    self._on_answer(
                        *proposed,
                        error_of(row.error_code)
                        or IsrUpdated(tuple(row.isr), row.leader_epoch, row.partition_epoch, row.leader_recovery_state),
                    )
        for proposed in sent.values():
            self._on_answer(*proposed, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._send()


def _request(broker_id: int, broker_epoch: int, proposed: dict[tuple[Uuid, int], Proposed]) -> AlterPartitionRequest:
    topics: dict[Uuid, list[AlterPartitionRequestPartitionData]] = {}
    for (topic_id, index), (_, proposal) in proposed.items():
        topics.setdefault(topic_id, []).append(
            AlterPartitionRequestPartitionData(
                partition_index=index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=id, broker_epoch=epoch) for id, epoch in proposal.isr],
                leader_recovery_state=proposal.leader_recovery_state,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=id, partitions=rows) for id, rows in topics.items()],
    )
