"""Transactions over a cluster whose brokers are killed and hung, as a history for `append_checker`.

Writers append unique numbers to a few partitions, half of them by a stock client, half of them by hand with KIP-890, which that
does not speak. Some transactions are aborted, some abandoned in the midst of it by a client that lives on as a zombie, with
writes on their way; readers read what is committed, all the time. When the faults are over, everything has to come to rest.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import pytest
from cluster.append_checker import History, Outcome, Read, Reader, Send, Transaction
from cluster.routed import Routed, UnansweredError
from support.transactional import Producer
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode

ck: Any = pytest.importorskip("confluent_kafka")

TOPIC: Final = "appended"
PARTITIONS: Final = 3
STOCK_WRITERS: Final = 2
NEW_WRITERS: Final = 2
READERS: Final = 2
MOST_SENDS: Final = 4
WAIT_S: Final = 30.0
REST_S: Final = 120.0
# For the cluster: three replicas of everything, and what is abandoned does not stay open for long.
PROPERTIES: Final = {
    "default.replication.factor": "3",
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Brokers(Protocol):
    """Three of them, whoever made them."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def ids(self) -> Sequence[int]: ...
    def kill(self, node_id: int) -> None: ...
    def start(self, node_id: int) -> None: ...
    def pause(self, node_id: int) -> None: ...
    def resume(self, node_id: int) -> None: ...


def play(brokers: Brokers, seconds: float, seed: int, said: Callable[[str], None] = print) -> History:
    """`TOPIC` is there. Faults for `seconds`, then rest."""
    draw = random.Random(seed)
    numbers = itertools.count()
    stopped = threading.Event()
    kinds = [_StockWriter] * STOCK_WRITERS + [_NewWriter] * NEW_WRITERS
    writers: list[_Writer] = [
        kind(brokers.bootstrap, f"writer-{number}", numbers, random.Random(f"{seed}/{number}"))
        for number, kind in enumerate(kinds)
    ]
    readers = [_Follower(brokers.bootstrap, f"reader-{number}") for number in range(READERS)]
    threads = [threading.Thread(target=one.run, args=(stopped,), daemon=True) for one in (*writers, *readers)]
    for thread in threads:
        thread.start()
    try:
        _faults(brokers, seconds, draw, said)
        _wait_for_progress(writers)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(REST_S)
    assert not any(thread.is_alive() for thread in threads), "a client does not end"
    last = _Follower(brokers.bootstrap, "the last reader")
    for one in (last, *readers):
        one.finish()
    return History([made for one in writers for made in one.transactions], [one.reader for one in (last, *readers)])


def _faults(brokers: Brokers, seconds: float, draw: random.Random, said: Callable[[str], None]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(draw.uniform(0.5, 2.0))
        victim = draw.choice(brokers.ids)
        if draw.random() < 0.6:
            said(f"broker {victim} is killed")
            brokers.kill(victim)
            time.sleep(draw.uniform(0.0, 3.0))
            brokers.start(victim)
        else:
            said(f"broker {victim} hangs")
            brokers.pause(victim)
            time.sleep(draw.uniform(0.5, 8.0))
            brokers.resume(victim)


def _wait_for_progress(writers: Sequence[_Writer]) -> None:
    """The faults are over: every writer has to get on."""
    before = [one.committed for one in writers]

    def problem() -> str:
        return f"{[one.committed for one in writers]} after {before}: {[one.failures[-3:] for one in writers]}"

    wait_until(lambda: all(one.committed > was for one, was in zip(writers, before, strict=True)), REST_S, problem)


class _Writer(ABC):
    def __init__(self, bootstrap: str, name: str, numbers: itertools.count[int], draw: random.Random) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._numbers = numbers
        self._draw = draw
        self.transactions: list[Transaction] = []
        self.committed = 0
        self.failures: list[str] = []

    @abstractmethod
    def run(self, stopped: threading.Event) -> None: ...

    def _new_transaction(self) -> Transaction:
        made = Transaction(self._name, time.monotonic())
        self.transactions.append(made)
        made.outcome = Outcome.ABORTED  # until its commit is asked for
        return made

    def _new_send(self, made: Transaction) -> Send:
        send = Send(self._draw.randrange(PARTITIONS), next(self._numbers))
        made.sends.append(send)
        return send


class _StockWriter(_Writer):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._zombies: list[Any] = []  # they live on, and send what they still have

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            producer = ck.Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": 5_000,
                    "socket.timeout.ms": 5_000,
                    "reconnect.backoff.max.ms": 500,
                    "linger.ms": 0,
                    "enable.metrics.push": False,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(WAIT_S)
                while not stopped.is_set() and self._one(producer):
                    pass
            except ck.KafkaException as error:
                self.failures.append(str(error))
            self._zombies.append(producer)

    def _one(self, producer: Any) -> bool:
        """False when another producer is to go on."""
        made = self._new_transaction()
        producer.begin_transaction()
        for _ in range(self._draw.randint(1, MOST_SENDS)):
            self._send(producer, made)
        fate = self._draw.random()
        if fate < 0.05:
            return False
        try:
            if fate < 0.15:
                producer.flush(self._draw.choice((0, WAIT_S)))
                producer.abort_transaction(WAIT_S)
            else:
                made.commit_asked = time.monotonic()
                made.outcome = Outcome.UNKNOWN
                _until_known(lambda: producer.commit_transaction(WAIT_S))
                made.outcome = Outcome.COMMITTED
                self.committed += 1
        except ck.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_known(lambda: producer.abort_transaction(WAIT_S))
            made.outcome = Outcome.ABORTED
        made.ended = time.monotonic()
        return True

    def _send(self, producer: Any, made: Transaction) -> None:
        number = len(made.sends)
        send = self._new_send(made)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                made.sends[number] = send._replace(offset=message.offset())

        producer.produce(TOPIC, b"%d" % send.value, partition=send.partition, on_delivery=delivered)


class _NewWriter(_Writer):
    """With KIP-890: a write adds its partition, and each end has a new epoch."""

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            routed = Routed(self._bootstrap, self._name, self._name, WAIT_S)
            producer = Producer(routed, self._name, timeout_ms=5_000)
            try:
                code = producer.init()
                while not stopped.is_set() and code is ErrorCode.NONE:
                    code = self._one(producer)
            except (UnansweredError, AssertionError) as error:
                self.failures.append(str(error))
            else:
                self.failures.append(code.name)

    def _one(self, producer: Producer) -> ErrorCode:
        """Anything but NONE: another producer is to go on."""
        made = self._new_transaction()
        code = ErrorCode.NONE
        for number in range(self._draw.randint(1, MOST_SENDS)):
            send = self._new_send(made)
            code = producer.send(b"%d" % send.value, topic=TOPIC, partition=send.partition)
            if code:
                break
            made.sends[number] = send._replace(offset=producer.offset)
        fate = self._draw.random()
        if fate < 0.15:
            self._send_late(producer, made)
        if fate < 0.05:
            return ErrorCode.PRODUCER_FENCED  # by its successor
        commits = not code and fate >= 0.15
        if commits:
            made.commit_asked = time.monotonic()
            made.outcome = Outcome.UNKNOWN
        code = producer.end(commit=commits)
        if code is ErrorCode.NONE:
            made.ended = time.monotonic()
            if commits:
                made.outcome = Outcome.COMMITTED
                self.committed += 1
        return code

    def _send_late(self, producer: Producer, made: Transaction) -> None:
        """A write that is on its way when the transaction ends, or its successor comes."""
        send = self._new_send(made)
        zombie = replace(producer, sequences=dict(producer.sequences))

        def run() -> None:
            # Whatever becomes of it, its transaction is not committed.
            with suppress(UnansweredError, AssertionError):
                zombie.send(b"%d" % send.value, topic=TOPIC, partition=send.partition)

        threading.Thread(target=run, daemon=True).start()


def _until_known(step: Callable[[], None]) -> None:
    deadline = time.monotonic() + REST_S
    while True:
        try:
            step()
            return
        except ck.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


class _Follower:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.reader = Reader(name)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 500,
            "enable.metrics.push": False,
            "log_level": 0,
        }
        self._consumer = ck.Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        self._consumer.assign([ck.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        # Tells where the log ends, whoever may read it.
        self._all_seeing = ck.Consumer({**settings, "isolation.level": "read_uncommitted"})
        self._ends = dict.fromkeys(range(PARTITIONS), -1)

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            self._poll()

    def _poll(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                read = Read(message.partition(), message.offset(), int(message.value()), time.monotonic())
                self.reader.reads.append(read)
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                self._ends[message.partition()] = message.offset()

    def finish(self) -> None:
        """To the end of what is in the log: transactions that nobody ends have to be ended, too."""
        deadline = time.monotonic() + REST_S
        while time.monotonic() < deadline and not self.reader.is_at_end:
            self._poll()
            with suppress(ck.KafkaException):
                ends = {
                    number: self._all_seeing.get_watermark_offsets(ck.TopicPartition(TOPIC, number), 5.0)[1]
                    for number in range(PARTITIONS)
                }
                self.reader.is_at_end = ends == self._ends
        self._consumer.close()
        self._all_seeing.close()
