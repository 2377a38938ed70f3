"""A script of transactions that any broker plays, request by request, and what it leaves in `__transaction_state`."""

from __future__ import annotations

from interop.broker_process import BrokerProcess
from support.transactional import Producer, must, wait_for_coordinator

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import fetch as fetches


def play(broker: BrokerProcess) -> dict[str, Producer]:
    """Both ways to run transactions, everything that can become of them, offsets, fenced and recovered producers."""
    broker.create_topic("t", partitions=2)
    wait_for_coordinator(broker)
    old = Producer(broker, "old", is_new=False)
    must(old.init())
    must(old.add("t", 0, 1))
    must(old.send(b"old committed"))
    must(old.end(commit=True))
    old.wait_until_ended()
    must(old.add("t", 1))
    must(old.send(b"old aborted", partition=1))
    must(old.commit_offset("g", 3))
    must(old.end(commit=False))
    old.wait_until_ended()
    must(old.init(expected=True))
    new = Producer(broker, "new")
    must(new.init())
    must(new.send(b"new committed"))
    must(new.send(b"in another", partition=1))
    must(new.commit_offset("g", 5))
    must(new.end(commit=True))
    new.wait_until_ended()
    must(new.send(b"new aborted"))
    must(new.end(commit=False))
    new.wait_until_ended()
    must(new.end(commit=False))  # nothing was begun
    new.wait_until_ended()
    must(new.init(expected=True))
    zombie = Producer(broker, "fenced")
    must(zombie.init())
    must(zombie.send(b"of a zombie"))
    successor = Producer(broker, "fenced")
    must(successor.init())
    must(zombie.end(commit=True), ErrorCode.PRODUCER_FENCED)
    must(successor.send(b"of its successor"))
    must(successor.end(commit=True))
    successor.wait_until_ended()
    old_zombie = Producer(broker, "old fenced", is_new=False)
    must(old_zombie.init())
    must(old_zombie.add("t", 0))
    must(old_zombie.send(b"of an old zombie"))
    must(Producer(broker, "old fenced", is_new=False).init())
    left_open = Producer(broker, "open")
    must(left_open.init())
    must(left_open.send(b"undecided"))
    left_open_old = Producer(broker, "old open", is_new=False)
    must(left_open_old.init())
    must(left_open_old.add("t", 1))
    must(left_open_old.send(b"undecided too", partition=1))
    return {"old": old, "new": new, "successor": successor, "open": left_open, "old open": left_open_old}


def aborted_and_stable(broker: BrokerProcess, partition: int) -> tuple[list[tuple[int, int]], int, int]:
    """Of "t" as a reader of what is committed sees it: aborted transactions, last stable offset, high watermark."""
    wanted = fetches.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetches.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        topics=[fetches.FetchTopic(topic="t", partitions=[wanted])],
        forgotten_topics_data=[],
    )
    found = broker.ask(request, 12).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, found
    aborted = sorted((one.producer_id, one.first_offset) for one in found.aborted_transactions or ())
    return aborted, found.last_stable_offset, found.high_watermark
