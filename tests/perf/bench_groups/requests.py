"""What the requests of members cost: heartbeats at their usual pace, offset commits as fast as they are answered."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perf.bench.frames import framed
from perf.bench.raw_client import WrongAnswerError
from perf.bench.results import percentile
from perf.bench.servers import Server
from perf.bench.workloads import Meter, Values, steady
from perf.bench_groups.lines import HEARTBEAT_VERSION, Line, RawMember, formed, wait_for_coordinator

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pybroker.protocol.messages.groups import HeartbeatRequest

GROUPS = 1000
MEMBERS = 2
INTERVAL_S = 3.0
CONNECTIONS = 10
IN_FLIGHT = 50
COMMIT_VERSION = 9
CONSUMER_HEARTBEAT_VERSION = 1
_RING = 4 * IN_FLIGHT
_TIMEOUT_S = 30.0


# Heartbeats.


def classic_heartbeats(server: Server, seconds: float) -> Values:
    """Two thousand members of classic groups, a connection each."""
    members = formed(server.address, [f"beat-{number}" for number in range(GROUPS)], MEMBERS)
    frames = [
        framed(HeartbeatRequest(group_id=one.group, generation_id=one.generation, member_id=one.member_id), HEARTBEAT_VERSION)
        for one in members
    ]
    return _beat(server, [one.line for one in members], frames, seconds)


def consumer_heartbeats(server: Server, seconds: float) -> Values:
    """The same of the consumer protocol (KIP-848), when every group has settled."""
    topic_id = server.create_topic("beaten", MEMBERS)
    groups = [
        [_Consumer(Line(server.address), f"consumers-{group}", f"{group}-{member}") for member in range(MEMBERS)]
        for group in range(GROUPS)
    ]
    wait_for_coordinator(server.address, groups[0][0].group)
    deadline = time.monotonic() + 4 * _TIMEOUT_S
    unsettled = groups
    while unsettled:
        assert time.monotonic() < deadline, f"{len(unsettled)} groups do not settle"
        for members in unsettled:
            for one in members:
                one.line.send(one.whole_heartbeat(topic_id), CONSUMER_HEARTBEAT_VERSION)
        for members in unsettled:
            for one in members:
                one.take(one.line.receive())
        unsettled = [members for members in unsettled if not _is_settled(members)]
        # As a member that was told to come again; a new assignment has its interval, too.
        time.sleep(0.25)
    everybody = [one for members in groups for one in members]
    frames = [framed(one.heartbeat(), CONSUMER_HEARTBEAT_VERSION) for one in everybody]
    return _beat(server, [one.line for one in everybody], frames, seconds)


@dataclass(slots=True)
class _Consumer:
    line: Line
    group: str
    member_id: str
    epoch: int = 0
    owned: list[int] = field(default_factory=list)

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)

    def whole_heartbeat(self, topic_id: Uuid) -> ConsumerGroupHeartbeatRequest:
        """As one that joins, or says what it has."""
        request = self.heartbeat()
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["beaten"]
        rows = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=self.owned)] if self.owned else []
        request.topic_partitions = rows
        return request

    def take(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [one for row in answer.assignment.topic_partitions for one in row.partitions]


def _is_settled(members: Sequence[_Consumer]) -> bool:
    return len({one.epoch for one in members}) == 1 and all(len(one.owned) == 1 for one in members)


def _beat(server: Server, lines: Sequence[Line], frames: Sequence[bytes], seconds: float) -> Values:
    """Everybody once in three seconds, evenly spread; every answer is one without an error."""
    beats = _Beats(lines, frames)
    try:
        beats.run(INTERVAL_S)
        beats.late_s.clear()
        with Meter(server) as meter:
            count = beats.run(seconds)
    finally:
        beats.close()
    late_s = sorted(beats.late_s)
    return {
        "core_percent": 100 * meter.broker_cpu_s / meter.seconds,
        "requests_per_s": count / meter.seconds,
        "cpu_us_per_request": meter.broker_cpu_s / count * 1e6,
        "p50_ms": percentile(late_s, 50) * 1e3,
        "p99_ms": percentile(late_s, 99) * 1e3,
    } | meter.cores()


class _Beats:
    def __init__(self, lines: Sequence[Line], frames: Sequence[bytes]) -> None:
        self._lines = lines
        self._frames = frames
        self._epoll = select.epoll()
        self._by_fd = {}
        self._sent_at: dict[Line, float] = {}
        self._next = 0
        self.late_s: list[float] = []
        for line in lines:
            self._by_fd[line.socket.fileno()] = line
            self._epoll.register(line.socket.fileno(), select.EPOLLIN)

    def run(self, seconds: float) -> int:
        """How many were answered."""
        pace_s = INTERVAL_S / len(self._lines)
        began = time.monotonic()
        sent = answered = 0
        total = int(seconds / pace_s)
        while answered < total:
            now = time.monotonic()
            assert now < began + seconds + _TIMEOUT_S, f"{total - answered} heartbeats have no answer"
            while sent < total and now >= began + sent * pace_s:
                line = self._lines[self._next]
                assert line not in self._sent_at, "a heartbeat is not answered within its interval"
                self._sent_at[line] = now
                line.socket.sendall(self._frames[self._next])
                self._next = (self._next + 1) % len(self._lines)
                sent += 1
            wait_s = max(0.0, began + sent * pace_s - now) if sent < total else _TIMEOUT_S
            for fd, _ in self._epoll.poll(wait_s):
                line = self._by_fd[fd]
                answer = line.receive_frame()
                self.late_s.append(time.monotonic() - self._sent_at.pop(line))
                # Correlation id, tags of the header, throttle time, error code: the same for both protocols.
                assert answer[9:11] == b"\0\0", f"a heartbeat is refused: {answer!r}"
                answered += 1
        return answered

    def close(self) -> None:
        self._epoll.close()
        for line in self._lines:
            line.close()


# Commits.


class Commits:
    """Commits of a partition each by ten members, each alone in its group, `IN_FLIGHT` on each of their connections."""

    def __init__(self, server: Server) -> None:
        self._server = server
        server.create_topic("committed", CONNECTIONS)
        members = formed(server.address, [f"commit-{number}" for number in range(CONNECTIONS)], 1)
        self._lines = [_CommitLine(one, number) for number, one in enumerate(members)]

    def run(self, seconds: float) -> int:
        lines = {one.fd: one for one in self._lines}
        epoll = select.epoll()
        for line in self._lines:
            epoll.register(line.fd, select.EPOLLIN)
            line.send(IN_FLIGHT)
        deadline = time.monotonic() + seconds
        count = 0
        in_flight = IN_FLIGHT * len(lines)
        while in_flight:
            ready = epoll.poll(_TIMEOUT_S)
            assert ready, f"{in_flight} commits have no answer"
            is_over = time.monotonic() > deadline
            for fd, _ in ready:
                answers = lines[fd].receive()
                count += answers
                if is_over:
                    in_flight -= answers
                else:
                    lines[fd].send(answers)
        epoll.close()
        return count

    def measure(self, seconds: float) -> Values:
        with Meter(self._server) as meter:
            count = self.run(seconds)
        return {
            "requests_per_s": count / meter.seconds,
            "cpu_us_per_request": meter.broker_cpu_s / count * 1e6,
        } | meter.cores()

    def close(self) -> None:
        for line in self._lines:
            line.close()


class _CommitLine:
    """Requests and the answers to them are the same few hundred over and over: both are prepared, and compared as bytes."""

    def __init__(self, member: RawMember, partition: int) -> None:
        self._line = member.line
        self.fd = member.line.socket.fileno()
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=0, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name="committed", partitions=[row])],
        )
        self._line.send(request, COMMIT_VERSION)
        first = self._line.receive_frame()
        answer: OffsetCommitResponse = self._line.decoded(first)
        assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0], answer
        frames, answers = [], []
        for number in range(_RING):
            row.committed_offset = number
            frames.append(framed(request, COMMIT_VERSION, number))
            answers.append(len(first).to_bytes(4) + number.to_bytes(4) + first[4:])
        self._frame_bytes, self._frames = len(frames[0]), memoryview(b"".join(frames * 2))
        self._answer_bytes, self._answers = len(answers[0]), b"".join(answers * 2)
        assert len(self._frames) == self._frame_bytes * _RING * 2
        self._sent = self._answered = 0
        self._rest = b""

    def send(self, count: int) -> None:
        start = self._sent * self._frame_bytes
        self._line.socket.sendall(self._frames[start : start + count * self._frame_bytes])
        self._sent = (self._sent + count) % _RING

    def receive(self) -> int:
        data = self._rest + self._line.socket.recv(1 << 16)
        count, rest = divmod(len(data), self._answer_bytes)
        start = self._answered * self._answer_bytes
        if not data or data != self._answers[start : start + len(data)]:
            raise WrongAnswerError(f"OffsetCommit: {data[:200]!r}")
        self._rest = data[len(data) - rest :] if rest else b""
        self._answered = (self._answered + count) % _RING
        return count

    def close(self) -> None:
        self._line.close()


def warm_up(commits: Commits, slice_s: float, most_s: float) -> list[float]:
    """Not measured: until the cost of a commit falls no more, or the time for it is over."""
    deadline = time.monotonic() + most_s
    costs: list[float] = []
    while time.monotonic() < deadline and not steady(costs):
        costs.append(commits.measure(slice_s)["cpu_us_per_request"])
    return costs
