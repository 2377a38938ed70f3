"""A client at the data level that asks leaders again and again how far their partitions are committed.

What it is told never goes back, whoever leads (KIP-207): a new leader that does not know the high watermark yet says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pybroker.metadata.image import NO_LEADER, PartitionState
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.data_node import TOPIC, TalkingNode
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.schedule import Schedule

READER_ID: Final = 101
LATEST: Final = -1
PAUSE_MS: Final = 30


class ReaderNode(TalkingNode):
    def __init__(
        self,
        schedule: Schedule,
        clock: SimClock,
        network: Network,
        partitions: int,
        state_of: Callable[[int], PartitionState | None],
        on_told: Callable[[], None],
    ) -> None:
        """`state_of` is what the controller knows of a partition; `on_told` hears of every answer."""
        super().__init__(schedule, READER_ID, clock, network)
        self._partitions = range(partitions)
        self._state_of = state_of
        self._told = dict.fromkeys(self._partitions, 0)
        self._on_told = on_told

    def boot(self) -> None:
        for partition in self._partitions:
            self._ask(partition)

    def _ask(self, partition: int) -> None:
        state = self._state_of(partition)
        if state is None or state.leader == NO_LEADER:
            self._later(partition)
            return
        row = ListOffsetsPartition(partition_index=partition, current_leader_epoch=state.leader_epoch, timestamp=LATEST)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[row])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic], timeout_ms=500)
        self.ask(state.leader, request, lambda response: self._answered(partition, response))

    def _answered(self, partition: int, response: Any) -> None:
        row = None if response is None else response.topics[0].partitions[0]
        if row is not None and row.error_code == ErrorCode.NONE:
            before = self._told[partition]
            if row.offset < before:
                raise InvariantError(
                    f"{partition}: a client was told that {before} are committed, and now that {row.offset} are"
                )
            self._told[partition] = row.offset
            self._on_told()
        self._later(partition)

    def _later(self, partition: int) -> None:
        self.later(PAUSE_MS, lambda: self._ask(partition))

    def handle_request(self, call: Call) -> None: ...

    def lose_memory(self) -> None: ...
