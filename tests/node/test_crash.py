"""kill -9 while clients write: whatever was acknowledged is there after the next start, once, in order, where it was put."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from node.process import ANY_PORT, NodeProcess
from support.node_client import NodeClient
from support.waiting import wait_until

from pybroker.log.checkpoints import CLEAN_SHUTDOWN
from pybroker.protocol.errors import ErrorCode

Start = Callable[..., NodeProcess]

WAIT_S = 30.0
PARTITIONS = 2
SEGMENT = {"segment.bytes": 1_048_576}  # the least there can be, so that segments roll while the node is killed


@dataclass
class Writer:
    """One connection that writes record after record to its partition until the node is gone."""

    number: int
    acks: int
    producer: tuple[int, int] | None  # id and epoch of an idempotent one
    next: int = 0
    acknowledged: dict[int, bytes] = field(default_factory=dict)  # by offset
    problem: str | None = None

    @property
    def partition(self) -> int:
        return self.number % PARTITIONS

    def value(self, number: int) -> bytes:
        return b"%d %d " % (self.number, number) + bytes(2000)

    def write_until_closed(self, client: NodeClient, limit: int | None = None) -> None:
        with client:
            try:
                while limit is None or self.next < limit:
                    self._write(client)
            except OSError:
                if self.producer is None:
                    # Whether the node took what was under way is not known; who cannot say it again safely goes on.
                    self.next += 1

    def _write(self, client: NodeClient) -> None:
        options = {}
        if self.producer is not None:
            options = {"producer_id": self.producer[0], "producer_epoch": self.producer[1], "sequence": self.next}
        value = self.value(self.next)
        done = client.send("t", [value], self.partition, acks=self.acks, **options)
        if done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise OSError("the broker gives up its leaderships: it stops")
        if done.error_code != ErrorCode.NONE:
            self.problem = f"{done} for {value[:20]!r}"
            raise OSError(self.problem)
        if done.base_offset in self.acknowledged:
            self.problem = f"offset {done.base_offset} was given twice"
        self.acknowledged[done.base_offset] = value
        self.next += 1


def write_until(node: NodeProcess, writers: list[Writer], records: int, end: Callable[[], object]) -> None:
    """All write at once; the node is brought to its `end` when so many more records are acknowledged."""
    before = sum(len(writer.acknowledged) for writer in writers)
    threads = [threading.Thread(target=writer.write_until_closed, args=(node.client(),)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: sum(len(writer.acknowledged) for writer in writers) >= before + records,
            WAIT_S,
            lambda: f"{[len(writer.acknowledged) for writer in writers]} of {records} records:\n{node.said}",
        )
    finally:
        end()
        for thread in threads:
            thread.join(WAIT_S)
    assert [writer.problem for writer in writers] == [None] * len(writers)


def check(node: NodeProcess, writers: list[Writer]) -> None:
    """What was acknowledged is where it was put; nothing of a writer is out of order, nor there twice."""
    with node.client() as client:
        for partition in range(PARTITIONS):
            found = client.consume("t", partition)
            assert [offset for offset, _ in found] == list(range(len(found)))
            by_offset = dict(found)
            for writer in writers:
                if writer.partition != partition:
                    continue
                lost = [offset for offset, value in writer.acknowledged.items() if by_offset.get(offset) != value]
                assert not lost, f"writer {writer.number}: {lost}"
                prefix = b"%d " % writer.number
                own = [value for _, value in found if value is not None and value.startswith(prefix)]
                expected = range(writer.next)
                if writer.producer is not None:
                    assert own == [writer.value(number) for number in expected]
                else:
                    numbers = [int(value.split()[1]) for value in own]
                    assert numbers == sorted(set(numbers))


def test_acknowledged_records_survive_kill_9_in_order_and_just_once(start: Start, tmp_path: Path) -> None:
    node = start(*ANY_PORT).wait_ready()
    with node.client() as client:
        client.create_topic("t", PARTITIONS, SEGMENT)
        writers = [
            Writer(0, -1, client.producer_id()),
            Writer(1, -1, client.producer_id()),
            Writer(2, 1, client.producer_id()),
            Writer(3, 1, None),
        ]
    for _ in range(3):
        write_until(node, writers, 1500, node.kill)
        assert "Traceback" not in node.said, node.said
        node = start(*ANY_PORT).wait_ready()
        assert f", {PARTITIONS} with recovery" in node.said
    for writer in writers:
        # Idempotent ones begin with what was under way when the node was killed, in the same words.
        writer.write_until_closed(node.client(), limit=writer.next + 20)
        assert writer.problem is None
    check(node, writers)
    assert len(list((tmp_path / "pybroker-data" / "t-0").glob("*.log"))) > 2
    assert node.stop() == 0
    assert "Traceback" not in node.said


def test_topics_and_configs_that_were_acknowledged_survive_kill_9(start: Start) -> None:
    node = start(*ANY_PORT).wait_ready()
    ids = {}
    for round_ in range(2):
        with node.client() as client:
            for number in range(5):
                name = f"t{round_}{number}"
                ids[name] = client.create_topic(name, configs={"retention.ms": 1000 + number})
            client.delete_topic(f"t{round_}4")
            del ids[f"t{round_}4"]
        node.kill()
        node = start(*ANY_PORT).wait_ready()
        with node.client() as client:
            for name, topic_id in ids.items():
                assert client.topic(name).topic_id == topic_id
            assert client.topic(f"t{round_}4").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "Traceback" not in node.said


def test_acknowledged_records_survive_a_clean_stop_in_the_middle_of_writing(start: Start, tmp_path: Path) -> None:
    node = start(*ANY_PORT).wait_ready()
    with node.client() as client:
        client.create_topic("t", PARTITIONS, SEGMENT)
        writers = [Writer(number, (-1, 1)[number % 2], client.producer_id()) for number in range(4)]
    codes: list[int] = []
    write_until(node, writers, 1500, lambda stopping=node: codes.append(stopping.stop()))
    assert codes == [0], node.said
    assert "Traceback" not in node.said, node.said
    assert (tmp_path / "pybroker-data" / CLEAN_SHUTDOWN).exists()
    node = start(*ANY_PORT).wait_ready()
    assert "cleanly closed" in node.said
    for writer in writers:
        writer.write_until_closed(node.client(), limit=writer.next + 20)
        assert writer.problem is None
    check(node, writers)


def test_the_process_that_compacts_does_not_outlive_a_killed_node(start: Start) -> None:
    eager = ("--override", "log.cleaner.backoff.ms=20", "--override", "log.initial.task.delay.ms=0")
    node = start(*ANY_PORT, *eager).wait_ready()
    with node.client() as client:
        client.create_topic("t", configs=SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        for _ in range(15):
            client.produce("t", [bytes(200_000)], keys=[b"one"])
    children = wait_until(node.children, WAIT_S, lambda: f"nothing compacts:\n{node.said}")
    node.kill()
    wait_until(
        lambda: not any(Path(f"/proc/{child}").exists() for child in children), WAIT_S, lambda: f"still there: {children}"
    )
