"""Members of a group, seen from a test: which partitions each has, what each has read. See group_member.py."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, Protocol, Self

from interop.broker_process import BrokerProcess
from interop.clients import programs
from support.batches import batch
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SCRIPT = Path(__file__).with_name("group_member.py")
SETTLE_S = 60.0
# In place of an assignor: the consumer protocol of KIP-848.
SERVER_SIDE = "server-side"


class Brokers(Protocol):
    @property
    def bootstrap(self) -> str: ...


class GroupMember:
    """Entering it starts it; leaving it closes it in the proper way, unless it was killed."""

    def __init__(
        self,
        client: str,
        brokers: Brokers,
        topic: str,
        *,
        group: str = "",
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 6000,
        max_poll_ms: int | None = None,
    ) -> None:
        """`max_poll_ms` is also how long a rebalance waits for it; not less than the session."""
        options = {
            "bootstrap": brokers.bootstrap,
            "topic": topic,
            "group": group or topic,
            "assignor": assignor,
            "instance": instance,
            "session_ms": session_ms,
            "max_poll_ms": max_poll_ms or max(10_000, 60_000 if assignor == SERVER_SIDE else session_ms),
        }
        self._orders: list[str] = []  # the first ones
        if client in programs.MEMBERS:
            assert instance is None, "the programs have no static members"
            self._command = [*programs.MEMBERS[client](), brokers.bootstrap]
            self._orders = [json.dumps({"op": "member", **options})]
        else:
            self._command = [sys.executable, str(SCRIPT), client, json.dumps(options)]
        self._is_cooperative = assignor in ("cooperative-sticky", SERVER_SIDE)
        self.assignment: set[int] = set()
        self.records: list[tuple[int, int]] = []
        self.changes = 0  # how often it was given partitions, or lost some
        self.revoked: list[int] = []
        self.had: list[tuple[int, float, float]] = []  # partition, from when to when, as the client's callbacks tell
        self._has_since: dict[int, float] = {}
        self.refused: list[str] = []  # commits
        self.failure = ""  # what made it give up, if it says so
        self.generations: list[int] = []  # as far as the client tells

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        for order in self._orders:
            self.order(order)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = {"at": time.monotonic(), **json.loads(line)}
            if "record" in said:
                partition, offset = said["record"]
                self.records.append((partition, offset))
            elif "assigned" in said:
                given = set(said["assigned"])
                for partition in given:
                    self._has_since.setdefault(partition, said["at"])
                # An eager client states all it has, a cooperative one what is new.
                self.assignment = self.assignment | given if self._is_cooperative else given
                self.changes += 1
                if "generation" in said:
                    self.generations.append(said["generation"])
            elif "refused" in said:
                self.refused.append(said["refused"])
            elif "error" in said:
                self.failure = said["message"]
            elif said.get("revoked"):
                self.assignment = self.assignment - set(said["revoked"])
                self.revoked += said["revoked"]
                self.had += [(one, self._has_since.pop(one), said["at"]) for one in said["revoked"] if one in self._has_since]
                self.changes += 1

    @property
    def ownerships(self) -> list[tuple[int, float, float]]:
        """(partition, from, to) of all that it has had, and has."""
        return self.had + [(partition, since, inf) for partition, since in list(self._has_since.items())]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def order(self, word: str) -> None:
        """See group_member.py."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """SIGSTOP: no heartbeats, nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(5)

    def __str__(self) -> str:
        """For a test that fails: what it has, and how it ended if it has."""
        if self._process.poll() is None and not self.failure:
            return str(sorted(self.assignment))
        self._errors.seek(0)
        words = f"{self.failure} {self._errors.read()[-2000:]}".strip()
        return f"{sorted(self.assignment)} (ended with {self._process.returncode}: {words})"


def shares_of(members: Iterable[GroupMember]) -> str:
    return f"the shares are {', '.join(map(str, members))}"


def wait_for_shares(partitions: int, *members: GroupMember) -> None:
    """Until every partition has one owner among them and each of them has one."""

    def are_shared() -> bool:
        owned = [partition for member in members for partition in member.assignment]
        return sorted(owned) == list(range(partitions)) and all(member.assignment for member in members)

    wait_until(are_shared, SETTLE_S, lambda: shares_of(members))


def wait_for_even_shares(partitions: int, *members: GroupMember) -> None:
    """Until everybody has as much as the others, or one more. Before, a cooperative group passes through shares in which every
    partition has its owner, too, and some of them are still to move."""

    def are_even() -> bool:
        owned = [partition for member in members for partition in member.assignment]
        sizes = [len(member.assignment) for member in members]
        return sorted(owned) == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    wait_until(are_even, SETTLE_S, lambda: shares_of(members))


def shared_ownerships(*members: GroupMember) -> list[str]:
    """Partitions that two of them had at one time; there must never be one."""
    found = []
    rows = sorted(
        (partition, since, until, number) for number, one in enumerate(members) for partition, since, until in one.ownerships
    )
    for (partition, _, until, owner), (next_partition, since, _, next_owner) in pairwise(rows):
        if partition == next_partition and owner != next_owner and since < until:
            found.append(
                f"partition {partition} went to member {next_owner} {until - since} s before member {owner} gave it up"
            )
    return found


def wait_for_records(expected: set[tuple[int, int]], *members: GroupMember) -> None:
    def have_all() -> bool:
        return expected <= {record for member in members for record in member.records}

    def missing() -> str:
        lost = sorted(expected - {record for member in members for record in member.records})
        return f"not read: {lost[:20]}; {shares_of(members)}"

    wait_until(have_all, SETTLE_S, missing)


def produce_request(topic: str, partition: int, count: int) -> ProduceRequest:
    """Of the time being: a broker deletes what is older than log.retention.hours as soon as it has run for half a minute."""
    records = bytes(batch([b"value"] * count, timestamp=int(time.time() * 1000)))
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def produce(broker: BrokerProcess, topic: str, partitions: int, count: int = 10) -> set[tuple[int, int]]:
    """`count` records to each partition; their places."""
    places = set()
    for partition in range(partitions):
        done = broker.ask(produce_request(topic, partition, count), 12).responses[0].partition_responses[0]
        assert done.error_code == ErrorCode.NONE, done
        places |= {(partition, done.base_offset + number) for number in range(count)}
    return places
