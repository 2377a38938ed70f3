"""The words that cases are written in, first part: steps of any kind, topics, records to produce and to fetch.

A topic is named by its symbol in the case ("t"), by itself with "=" in front ("=no/such"). A row of a request is
`on("t", 0, offset=5)`: topic, partition, fields of the request's own partition struct. Where a version knows topics by id,
the id of the symbol's topic is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from interop.answers.case import Step
from interop.answers.plain import plain
from interop.answers.side import APIS_BY_KEY, Side
from support.batches import batch

from pybroker.protocol.message import Message
from pybroker.protocol.messages import fetch as fetches
from pybroker.protocol.messages import produce as produces
from pybroker.protocol.messages import topics
from pybroker.protocol.messages.transactions import InitProducerIdRequest

# Records of an hour ago, so that they are told from whatever the broker's clock says, and no retention takes them away.
T0 = int(time.time() * 1000) - 3_600_000
MIB = 1 << 20
_PARKED_S = 0.1
# A request that could wait so long is answered before half of it is over: at once, on a machine however busy.
LONG_MS = 20_000
AT_MOST_MS = LONG_MS // 2

Build = Callable[[Side, int], Message]
See = Callable[[Side, Any], Any]
Bytes = bytes | bytearray


class On(NamedTuple):
    topic: str
    partition: int
    fields: dict[str, Any]


def on(topic: str = "t", partition: int = 0, **fields: Any) -> On:
    return On(topic, partition, fields)


def by_topic(rows: Sequence[On]) -> list[tuple[str, list[On]]]:
    """Neighbouring rows of a topic belong together; a topic that comes again later comes again in the request."""
    out: list[tuple[str, list[On]]] = []
    for row in rows:
        if not out or out[-1][0] != row.topic:
            out.append((row.topic, []))
        out[-1][1].append(row)
    return out


def asks(
    key: int, build: Build, text: str = "", *, version: int | None = None, see: See | None = None, changes: bool = False
) -> Step:
    """Send what `build` makes; `see` replaces the plain answer by what matters of it."""

    def do(side: Side, swept: int | None) -> Any:
        chosen = version_of(key, version, swept)
        answer = side.ask(build(side, chosen), chosen)
        shown = plain(side, answer, chosen)
        return see(side, shown) if see is not None and isinstance(shown, dict) else shown

    return Step(text or APIS_BY_KEY[key].name, do, None if version is not None else key, changes)


def version_of(key: int, version: int | None, swept: int | None) -> int:
    if version is not None:
        return version
    return APIS_BY_KEY[key].stable_versions.high if swept is None else swept


def timed(step: Step, at_least_ms: int, at_most_ms: int) -> Step:
    """Also compare how long the answer takes."""

    def do(side: Side, swept: int | None) -> Any:
        begin = time.monotonic()
        answer = step.do(side, swept)
        took_ms = int((time.monotonic() - begin) * 1000)
        return {"took": "as long as expected" if at_least_ms <= took_ms <= at_most_ms else f"{took_ms} ms", "answer": answer}

    return replace(step, text=f"{step.text} within {at_least_ms}-{at_most_ms} ms", do=do)


def eventually(step: Step, until: Callable[[Any], bool], timeout_s: float = 10) -> Step:
    """Ask again until the answer is as wanted; the last one is compared."""

    def do(side: Side, swept: int | None) -> Any:
        deadline = time.monotonic() + timeout_s
        while not until(answer := step.do(side, swept)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return answer

    return replace(step, do=do)


def keep(name: str, step: Step, find: Callable[[Any], Any]) -> Step:
    """The plain answer of `step` has something that later steps want: side.values[name]."""

    def do(side: Side, swept: int | None) -> Any:
        answer = step.do(side, swept)
        side.values[name] = find(answer)
        return answer

    return replace(step, do=do)


# Topics


def topic(symbol: str = "t", partitions: int = 1, **configs: Any) -> Step:
    """Make a topic; underscores stand for the dots of config keys."""

    def do(side: Side, _: int | None) -> None:
        row = topics.CreatableTopic(
            name=side.name(symbol),
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                topics.CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
            ],
        )
        (made,) = side.ask(topics.CreateTopicsRequest(topics=[row]), 7).topics
        assert made.error_code == 0, made
        side.learn_topic_id(side.name(symbol), made.topic_id)

    return Step(f"topic {symbol}", do, changes=True)


# Produce


def records(count: int = 1, **options: Any) -> bytearray:
    """A batch of `count` small records, a second apart; the options of support.batches.batch."""
    options.setdefault("timestamps", [T0 + 1000 * number for number in range(count)])
    return batch([b"value %d" % number for number in range(count)], **options)


def produce(
    *rows: On,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
    version: int | None = None,
    text: str = "produce",
    silent: bool = False,
) -> Step:
    """Rows are `on("t", 0, records=...)`; the bytes may be a function of the side. `silent`: no answer is waited for."""

    def build(side: Side, _: int) -> Message:
        data = [
            produces.TopicProduceData(
                name=side.name(symbol),
                topic_id=side.topic_id(symbol),
                partition_data=[
                    produces.PartitionProduceData(index=row.partition, records=_bytes(side, row.fields["records"]))
                    for row in group
                ],
            )
            for symbol, group in by_topic(rows)
        ]
        return produces.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=data)

    if not silent:
        return asks(0, build, text, version=version)

    def do(side: Side, swept: int | None) -> None:
        chosen = version_of(0, version, swept)
        side.send(APIS_BY_KEY[0], chosen, build(side, chosen).encode(chosen))

    return Step(f"{text}, no answer", do, None if version is not None else 0)


def written(symbol: str = "t", count: int = 1, partition: int = 0, **options: Any) -> Step:
    """Records that are there: in the newest version, as one batch."""
    return stored(on(symbol, partition, records=records(count, **options)), text=f"write {count} to {symbol}")


def stored(*rows: On, text: str = "write") -> Step:
    """Records that both sides take without a word."""
    step = produce(*rows, version=13, text=text)

    def do(side: Side, _: int | None) -> Any:
        answer = step.do(side, None)
        codes = [part["error_code"] for found in answer["responses"].values() for part in found["partition_responses"].values()]
        assert set(codes) == {"NONE"}, answer
        return answer

    return replace(step, do=do)


def _bytes(side: Side, value: Bytes | Callable[[Side], Bytes] | None) -> Bytes | None:
    return value(side) if callable(value) else value


def producer(name: str = "p") -> Step:
    """A producer id of the broker's, for `by`."""

    def do(side: Side, _: int | None) -> Any:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = side.ask(request, 5)
        assert answer.error_code == 0, answer
        side.values[name] = answer.producer_id
        return plain(side, answer, 5)

    return Step(f"producer {name}", do)


def by(name: str, sequence: int, count: int = 1, epoch: int = 0, **options: Any) -> Callable[[Side], Bytes]:
    """A batch of the producer that `producer` has made; a number is a producer id that nobody has handed out."""

    def make(side: Side) -> Bytes:
        producer_id = int(name) if name.isdigit() else side.values[name]
        return records(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, **options)

    return make


# Fetch


def fetch(
    *rows: On,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 * MIB,
    isolation: int = 0,
    session: str | int = 0,
    epoch: int = -1,
    forget: Sequence[On] = (),
    rack: str = "",
    version: int | None = None,
    text: str = "fetch",
    replica_id: int = -1,
) -> Step:
    """Rows are `on("t", 0, offset=3, max_bytes=…, epoch=…)`. A session may be named by what `keep` has kept."""

    def build(side: Side, chosen: int) -> Message:
        wanted = [
            fetches.FetchTopic(
                topic=side.name(symbol), topic_id=side.topic_id(symbol), partitions=[_wanted(row) for row in group]
            )
            for symbol, group in by_topic(rows)
        ]
        forgotten = [
            fetches.ForgottenTopic(
                topic=side.name(symbol), topic_id=side.topic_id(symbol), partitions=[row.partition for row in group]
            )
            for symbol, group in by_topic(forget)
        ]
        fields: dict[str, Any] = {"replica_id": replica_id} if chosen < 15 else {}
        if chosen >= 15 and replica_id != -1:
            fields = {"replica_state": fetches.ReplicaState(replica_id=replica_id, replica_epoch=-1)}
        return fetches.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=side.values[session] if isinstance(session, str) else session,
            session_epoch=epoch,
            topics=wanted,
            forgotten_topics_data=forgotten,
            rack_id=rack,
            **fields,
        )

    return asks(1, build, text, version=version)


def opened(name: str, *rows: On, **options: Any) -> Step:
    """A full fetch that opens a session, which later steps call `name`."""
    step = fetch(*rows, session=0, epoch=0, text=f"open session {name}", **options)

    def do(side: Side, swept: int | None) -> Any:
        side.take_latest("session")
        answer = step.do(side, swept)
        side.values[name] = side.take_latest("session")
        assert side.values[name], f"{side.broker.NAME} has opened no session: {answer}"
        return answer

    return replace(step, do=do)


def _wanted(row: On) -> fetches.FetchPartition:
    fields = row.fields
    return fetches.FetchPartition(
        partition=row.partition,
        current_leader_epoch=fields.get("epoch", -1),
        fetch_offset=fields.get("offset", 0),
        last_fetched_epoch=fields.get("last_epoch", -1),
        log_start_offset=fields.get("log_start", -1),
        partition_max_bytes=fields.get("max_bytes", MIB),
    )


def while_waiting(waiting: Step, *others: Step, at_least_ms: int = 0, at_most_ms: int = 10_000) -> Step:
    """`waiting` is sent on a connection of its own and answered when `others` have been done, or before."""

    def do(side: Side, swept: int | None) -> Any:
        begin = time.monotonic()
        with side.twin() as twin, ThreadPoolExecutor(1) as apart:
            pending = apart.submit(waiting.do, twin, swept)
            time.sleep(_PARKED_S)  # nothing tells from outside that a request has arrived and is held back
            done = [step.do(side, None) for step in others]
            answer = pending.result()
        took_ms = int((time.monotonic() - begin) * 1000)
        took = "as long as expected" if at_least_ms <= took_ms <= at_most_ms else f"{took_ms} ms"
        return {"meanwhile": done, "answer": answer, "took": took}

    return replace(waiting, text=f"{waiting.text} while {', '.join(step.text for step in others)}", do=do)


def pause(seconds: float) -> Step:
    """For what only time brings about: a session that expires."""
    return Step(f"wait {seconds} s", lambda side, swept: time.sleep(seconds))
