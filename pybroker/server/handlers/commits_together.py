"""OffsetCommits of one client that came together are decided in one round, and their records written by one append.

Consumers that commit without waiting, one by one, send them so. A network thread calls this with the frames of one receive;
whatever is not plainly a commit to a shard that is written to, and committed, at once goes the whole way, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from pybroker.coordinator.runtime import Requested
from pybroker.coordinator.shard import Request
from pybroker.metadata.image import MetadataImage
from pybroker.network.answers import Gather, encode_answer
from pybroker.network.connection import Connection
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.protocol.message import decoder
from pybroker.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from pybroker.server.coordinators.groups import GroupCoordinator
from pybroker.server.handlers.group_offsets import known_topics, uncommitted

MAX_TOGETHER: Final = 100
# API key and version, correlation id, length of the client id.
_unpack_header: Final = Struct(">iih").unpack_from
_HEADER_BYTES: Final = 10


class _Commit:
    """A request that the coordinator answers before the round is over. `done` and `refused` are those of Pending."""

    __slots__ = ("correlation_id", "message", "response")

    def __init__(self, correlation_id: int, message: OffsetCommitRequest) -> None:
        self.correlation_id = correlation_id
        self.message = message
        self.response: OffsetCommitResponse | None = None

    def done(self, response: OffsetCommitResponse) -> None:
        self.response = response

    def refused(self, code: ErrorCode) -> None:
        self.response = OffsetCommitResponse(topics=[uncommitted(topic, code) for topic in self.message.topics])


class CommitsTogether:
    def __init__(self, coordinator: GroupCoordinator, image_of: Callable[[], MetadataImage]) -> None:
        self._coordinator = coordinator
        self._image_of = image_of

    def answer(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:
        """Answer the commits from number `start` on, and tell how many; 0, and nothing is done, if there are not two, or if
        answers to others come first."""
        if start + 1 >= len(frames) or connection.owed or len(frames[start]) <= _HEADER_BYTES:
            return 0
        (first, _, _) = _unpack_header(frames[start])
        version = first & 0xFFFF
        read = decoder(OffsetCommitRequest, version)
        is_flexible = version in OffsetCommitRequest.FLEXIBLE
        coordinator, image = self._coordinator, self._image_of()
        commits: list[_Commit] = []
        events: list[Requested] = []
        group_id, partition = None, -1
        for number in range(start, min(len(frames), start + MAX_TOGETHER)):
            frame = frames[number]
            if len(frame) <= _HEADER_BYTES:
                break
            key_and_version, correlation_id, length = _unpack_header(frame)
            position = _HEADER_BYTES + max(0, length)
            if key_and_version != first or length < -1 or position >= len(frame) or (is_flexible and frame[position]):
                break
            try:
                message, _ = read(frame, position + is_flexible)
            except ProtocolError:
                break
            if not known_topics(image, message, version):
                break
            if message.group_id != group_id:
                group_id = message.group_id
                partition = coordinator.partition_of(group_id)
                if not coordinator.commits_at_once(partition):
                    break
            commit = _Commit(correlation_id, message)
            commits.append(commit)
            events.append(Requested(partition, Request(message, commit, version)))
        if len(commits) < 2 or not coordinator.submit_together(events):
            return 0
        for commit in commits:
            if commit.response is None:
                # A follower came into the in-sync replicas just now, and the answer would be a late one: it may try again.
                commit.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert commit.response is not None
            encode_answer(commit.response, version, commit.correlation_id, gather.out, gather.splices)
        return len(commits)
