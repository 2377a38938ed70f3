"""Mutated requests to a whole node, with its logs, its coordinators and its controller behind them: it refuses, and stands.

Requests of every API that a broker serves, as drawn from the tables, and those that take the shortcuts: produces of a form that
was learned before, offset commits that come together. Some are mutated behind a length that is right, so that they get as far
as they can. FRAMES says how many (20,000 unless told). Whatever comes costs its own connection one line of the log, never a
traceback; afterwards clients are served as before.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz.crowd import Visit, crowd
from fuzz.test_frames import mutate
from support.batches import batch
from support.nodes import RunningNode, running
from support.random_messages import random_message
from support.waiting import wait_until

from pybroker.protocol.api_table import APIS, Api
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.server.handlers.commits_together import CommitsTogether
from pybroker.server.handlers.plain_produce import PlainProduce

FRAMES = int(os.environ.get("FRAMES", "20000"))
SEED = os.environ.get("FUZZ_SEED", "1")
WAIT_S = 60.0
TOPIC = "fuzzed"
PARTITIONS = 2
GROUP = "fuzzed-group"
MAX_BYTES = 1_000_000
# One makes the topic, one looks whether all are served.
OWN_CLIENTS = 2
# Who asks well for this has it done: the node would rightly serve nobody any more.
ENDS_IT = "UnregisterBroker"

_APIS = {api.key: api for api in APIS}


class Frames:
    """What a client of the node may send, good or bad."""

    def __init__(self, rng: random.Random, served: list[Api]) -> None:
        self._rng = rng
        self._served = served

    def of_one_connection(self, count: int) -> bytes:
        """Several in a row are of one kind: only such take a shortcut. How many are mutated differs between connections."""
        rng = self._rng
        rate = rng.choice((0.02, 0.1, 0.5))
        frames: list[bytes] = []
        while len(frames) < count:
            make: Callable[[], bytes] = rng.choice((self._random, self._produce, self._commit, self._fetch))
            frames += [self._maybe_mutated(make(), rate) for _ in range(rng.choice((1, 2, 5)))]
        return b"".join(frames[:count])

    def _maybe_mutated(self, payload: bytes, rate: float) -> bytes:
        rng = self._rng
        if rng.random() >= rate:
            return _framed(payload)
        return mutate(rng, _framed(payload)) if rng.random() < 0.2 else _framed(mutate(rng, payload))

    def _random(self) -> bytes:
        api = self._rng.choice(self._served)
        version = self._rng.randrange(api.stable_versions.low, api.stable_versions.high + 1)
        return self._encoded(random_message(self._rng, api.request, version, unknown_tags=True), version)

    def _produce(self) -> bytes:
        rng = self._rng
        values = [rng.randbytes(rng.choice((0, 10, 1000))) for _ in range(rng.choice((1, 1, 3)))]
        rows = [PartitionProduceData(index=rng.randrange(PARTITIONS), records=bytes(batch(values)))]
        request = ProduceRequest(
            acks=rng.choice((1, -1, -1, 0)),
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=rows)],
        )
        return self._encoded(request, rng.choice((3, 8, 9, 12)))

    def _commit(self) -> bytes:
        rng = self._rng
        rows = [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=rng.randrange(100), committed_metadata="")
            for number in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
        )
        return self._encoded(request, rng.choice((2, 7, 8, 9)))

    def _fetch(self) -> bytes:
        rng = self._rng
        rows = [FetchPartition(partition=0, fetch_offset=rng.randrange(3), partition_max_bytes=10_000)]
        request = FetchRequest(
            max_wait_ms=rng.choice((0, 1)), min_bytes=1, max_bytes=10_000, topics=[FetchTopic(topic=TOPIC, partitions=rows)]
        )
        return self._encoded(request, rng.choice((4, 7, 11, 12)))

    def _encoded(self, message: Message, version: int) -> bytes:
        api = _APIS[message.KEY]
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self._rng.randrange(2**31),
            client_id="fuzz",
        )
        return header.encode(api.request_header_version(version)) + message.encode(version)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Visits:
    """Of all clients together: a port may come again, so each says which one it came from."""

    def __init__(self) -> None:
        self.answered = 0
        self.by_port: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, port: str, has_answer: bool) -> None:
        with self._lock:
            self.by_port[port] += 1
            self.answered += has_answer


def visit(rng: random.Random, port: int, data: bytes, visits: Visits) -> None:
    """One connection that sends all of it, in pieces of any size, and ends somehow."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as client:
        own_port = str(client.getsockname()[1])
        visits.count(own_port, has_answer=say(rng, client, data))


def say(rng: random.Random, client: socket.socket, data: bytes) -> bool:
    """Whether an answer came."""
    has_answer = False
    try:
        while data:
            size = rng.choice((1, 100, 5000, 100_000))
            client.sendall(data[:size])
            data = data[size:]
        match rng.randrange(4):
            case 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case 1:
                return False
        client.shutdown(socket.SHUT_WR)
        # A request that was lengthened may ask for a long wait: its answer is not waited for.
        client.settimeout(1.0)
        while client.recv(65536):
            has_answer = True
    except TimeoutError:
        pass
    except OSError as error:
        # Closed by the node with our bytes unread.
        assert error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN), error
    return has_answer


class Counted:
    """How many requests were answered by a shortcut."""

    def __init__(self, cls: type[PlainProduce | CommitsTogether], monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered = 0
        original = cls.answer

        def answer(*arguments: Any) -> int:
            done = original(*arguments)
            self.answered += done
            return done

        monkeypatch.setattr(cls, "answer", answer)


def check_serves(node: RunningNode) -> None:
    with node.client() as client:
        offset = client.produce(TOPIC, [b"good"])
        assert client.fetch(TOPIC, offset).error_code == ErrorCode.NONE
        assert client.topic(TOPIC).error_code == ErrorCode.NONE
        client.create_topic("another")
        client.produce("another", [b"good"])
        assert client.consume("another") == [(0, b"good")]


@pytest.mark.fuzz
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_mutated_requests_to_a_node(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)
    caplog.set_level(logging.INFO)
    shortcuts = [Counted(cls, monkeypatch) for cls in (PlainProduce, CommitsTogether)]
    start = time.perf_counter()
    visits = Visits()
    with running(
        tmp_path, socket_request_max_bytes=MAX_BYTES, offsets_topic_num_partitions=1, offsets_topic_replication_factor=1
    ) as node:
        with node.client() as client:
            client.create_topic(TOPIC, PARTITIONS)
        served = [api for api in APIS if api.key in node.broker._apis and api.name != ENDS_IT]

        def visitor(rng: random.Random) -> Visit:
            frames = Frames(rng, served)

            def visit_it(count: int) -> None:
                visit(rng, node.port, frames.of_one_connection(count), visits)

            return visit_it

        crowd(FRAMES // 2, 20, f"{SEED}-{loop}", visitor)
        check_serves(node)
        sockets = node.node.sockets
        wait_until(lambda: sockets.request_queue.waiting == 0, WAIT_S, lambda: f"{sockets.request_queue.waiting} wait")
    failed = [record for record in caplog.records if record.exc_info]
    assert not failed, "\n".join(filter(None, (failed[0].getMessage(), failed[0].exc_text)))
    closed = [record.getMessage() for record in caplog.records if "closing the connection of" in record.getMessage()]
    lines = Counter(re.findall(r"closing the connection of 127\.0\.0\.1:(\d+)", "\n".join(closed)))
    by_shortcut = ", ".join(f"{shortcut.answered:,}" for shortcut in shortcuts)
    print(
        f"\n{loop}: {visits.answered:,} of {visits.by_port.total():,} connections answered, {len(closed):,} closed, "
        f"in {time.perf_counter() - start:.0f} s; by shortcuts {by_shortcut} requests"
    )
    assert min(visits.answered, len(closed), *(shortcut.answered for shortcut in shortcuts)) > 0
    assert lines.total() == len(closed)
    # A visitor costs one line at most, and so do the clients of the test itself, which come from ports of their own.
    assert sum((lines - visits.by_port).values()) <= OWN_CLIENTS
