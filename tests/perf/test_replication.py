"""What a fetch of a follower costs at both ends: the leader that serves it, the follower that takes it in. No network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from perf.measure import report
from support.batches import sized_batch
from unit.replication.brokers import Brokers, FakeRequest

from pybroker.network.answers import chunks_of, encode_answer
from pybroker.protocol.message import Message, Splices
from pybroker.protocol.messages.fetch import FetchRequest, FetchResponse

pytestmark = pytest.mark.perf

VERSION = FetchRequest.VERSIONS.high
HEADER_BYTES = 9  # of an answer: its size, the correlation id, and no tags
FETCHES = 2000


@pytest.mark.parametrize("size", [1024, 128 * 1024])
def test_a_fetch(tmp_path: Path, size: int) -> None:
    served, taken = [], []
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"first")
        brokers.fetch(2, times=4)
        leader, follower = brokers[1], brokers[2]
        for number in range(FETCHES):
            # The follower's next request is out already: it says that all before this batch has arrived.
            assert leader.log.append_plain_batches([memoryview(sized_batch(size))], 0, 1000, commits=False) == [1 + number]
            _, request, done = follower.asked.pop(0)
            frame = memoryview(request.encode(VERSION))
            began = time.perf_counter_ns()
            fake: Any = FakeRequest(VERSION, _never)
            answer: Any = leader.fetches.handle_fetch(fake, FetchRequest.decode(VERSION, frame))
            out = bytearray()
            splices: Splices = []
            encode_answer(answer, VERSION, 1, out, splices)
            chunks = chunks_of(out, splices)
            served.append(time.perf_counter_ns() - began)
            whole = bytearray(b"".join(chunk.read() if hasattr(chunk, "read") else chunk for chunk in chunks))
            began = time.perf_counter_ns()
            done(FetchResponse.decode(VERSION, memoryview(whole)[HEADER_BYTES:]))
            taken.append(time.perf_counter_ns() - began)
        assert follower.log.log_end_offset == leader.log.log_end_offset == 1 + FETCHES
    report(f"a follower's fetch of {size // 1024} KiB: at the leader", sorted(served)[FETCHES // 5] / 1000, "µs")
    report(f"a follower's fetch of {size // 1024} KiB: at the follower", sorted(taken)[FETCHES // 5] / 1000, "µs")


def _never(message: Message) -> None:
    raise AssertionError(f"answered late: {message}")
