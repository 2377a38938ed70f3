"""Tells the controller in which log directory each replica of this broker lies, where it does not know: AssignReplicasToDirs.

Any thread; one request under way at a time, with everything that came up meanwhile in the next one. A request without an
answer, or refused as a whole, goes out again, unless the cluster's metadata.version knows no directories.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.base.timer import Deadlines
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from pybroker.replication.fetch_session_client import Key
from pybroker.replication.isr_updates import AskController

RETRY_MS: Final = 200
MAX_AT_ONCE: Final = 2250

logger = logging.getLogger(__name__)


Answered = Callable[[bool], None]


class Assignment(NamedTuple):
    directory_id: Uuid
    answered: Answered | None  # hears, once, whether the controller took it and no other one of that replica came since

    def answer(self, is_taken: bool) -> None:
        if self.answered is not None:
            self.answered(is_taken)


class DirectoryAssignments:
    def __init__(
        self,
        ask: AskController,
        broker_id: int,
        own_epoch: Callable[[], int],
        timer: Deadlines,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._ask = ask
        self._broker_id = broker_id
        self._own_epoch = own_epoch
        self._timer = timer
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._unsent: dict[Key, Assignment] = {}
        self._is_under_way = False

    def submit(self, key: Key, directory_id: Uuid, answered: Answered | None = None) -> None:
        """The replica is, or is to be, in this directory; what was said of it before counts no more."""
        with self._lock:
            overtaken = self._unsent.get(key)
            self._unsent[key] = Assignment(directory_id, answered)
        if overtaken is not None:
            overtaken.answer(False)
        self._send()

    def _send(self) -> None:
        with self._lock:
            if self._is_under_way or not self._unsent:
                return
            self._is_under_way = True
            sent = dict(list(self._unsent.items())[:MAX_AT_ONCE])
            for key in sent:
                del self._unsent[key]
        request = _request(self._broker_id, self._own_epoch(), sent)
        self._ask(request, lambda response: self._answered(sent, response))

    def _answered(self, sent: dict[Key, Assignment], response: Message | None) -> None:
        is_answer = isinstance(response, AssignReplicasToDirsResponse)
        code = response.error_code if is_answer else ErrorCode.NETWORK_EXCEPTION  # type: ignore[union-attr]
        goes_out_again = code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
        with self._lock:
            self._is_under_way = False
            overtaken = sent.keys() & self._unsent.keys()
            if goes_out_again:
                self._unsent = sent | self._unsent
        for key in overtaken:
            sent[key].answer(False)
        if goes_out_again:
            logger.info("AssignReplicasToDirs of %d replicas: %s; it goes out again", len(sent), error_name(code))
            self._timer.add(self._monotonic_ms() + RETRY_MS, self._send)
            return
        assert isinstance(response, AssignReplicasToDirsResponse)
        # A replica that the controller does not know of is gone, or not there yet: its metadata brings it up again.
        refused = {
            (topic.topic_id, row.partition_index): row.error_code
            for directory in response.directories
            for topic in directory.topics
            for row in topic.partitions
            if row.error_code
        }
        if refused:
            rows = ", ".join(f"{index}: {error_name(error)}" for (_, index), error in refused.items())
            logger.warning("the controller did not take the directory of the replicas %s", rows)
        for key in sent.keys() - overtaken:
            sent[key].answer(key not in refused)
        self._send()


def _request(broker_id: int, broker_epoch: int, assigned: dict[Key, Assignment]) -> AssignReplicasToDirsRequest:
    directories: dict[Uuid, dict[Uuid, list[int]]] = {}
    for (topic_id, index), (directory_id, _) in assigned.items():
        directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequestDirectoryData(
                id=directory_id,
                topics=[
                    AssignReplicasToDirsRequestTopicData(
                        topic_id=topic_id,
                        partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory_id, topics in directories.items()
        ],
    )
