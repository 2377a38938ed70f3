"""The words that cases are written in, fourth part: transactions.

A transactional id is named as a topic is: "x%" is another one in every version. A producer is known by a name of the case,
"x", which its transactional id is called by, too; it is what the coordinator said last. `epoch` is then relative to its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from interop.answers.case import Step
from interop.answers.plain import plain
from interop.answers.side import Side
from interop.answers.steps import Bytes, On, asks, by_topic, eventually, produce, records, version_of
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import groups
from pybroker.protocol.messages import transactions as messages

TRANSACTION = 1
BUSY = "CONCURRENT_TRANSACTIONS"


def answers_for_transactions(broker: Any) -> bool:
    """Whether the coordinator is there and loaded; the topic of its transactions is created by asking."""
    found = broker.ask(groups.FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["anybody"]))
    if found.coordinators[0].error_code != ErrorCode.NONE:
        return False
    described = broker.ask(messages.DescribeTransactionsRequest(transactional_ids=["anybody"]))
    return bool(described.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def _id(name: str) -> str:
    return name if name.startswith("=") else f"{name}%"


def _producer(side: Side, name: str, epoch: int = 0) -> tuple[int, int]:
    producer_id, own_epoch = side.values.get(f"{name} {side.version}", (12345, 0))
    return producer_id, own_epoch + epoch


def _keep(side: Side, name: str, answer: Any) -> None:
    if getattr(answer, "error_code", None) == ErrorCode.NONE and answer.producer_id >= 0:
        side.values[f"{name} {side.version}"] = (answer.producer_id, answer.producer_epoch)


def init(
    name: str = "x",
    *,
    recovers: bool = False,
    epoch: int = 0,
    timeout_ms: int = 60_000,
    version: int | None = None,
    patient: bool = True,
) -> Step:
    """`recovers`: with what the producer is, or its epoch and `epoch`. `patient`: while what was open is aborted."""

    def do(side: Side, swept: int | None) -> Any:
        chosen = version_of(22, version, swept)
        request = messages.InitProducerIdRequest(transactional_id=side.name(_id(name)), transaction_timeout_ms=timeout_ms)
        if recovers:
            request.producer_id, request.producer_epoch = _producer(side, name, epoch)
        answer = side.ask(request, chosen)
        _keep(side, name, answer)
        return plain(side, answer, chosen)

    step = Step(f"init {name}", do, None if version is not None else 22)
    return eventually(step, lambda answer: answer["error_code"] != BUSY) if patient else step


def ready(name: str = "x") -> Step:
    return init(name, version=5)


def add(*rows: On, name: str = "x", epoch: int = 0, verify: bool = False, version: int | None = None) -> Step:
    def build(side: Side, chosen: int) -> Message:
        topics = [
            messages.AddPartitionsToTxnTopic(name=side.name(symbol), partitions=[row.partition for row in group])
            for symbol, group in by_topic(rows)
        ]
        producer_id, producer_epoch = _producer(side, name, epoch)
        if chosen >= 4:
            one = messages.AddPartitionsToTxnTransaction(
                transactional_id=side.name(_id(name)),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=verify,
                topics=topics,
            )
            return messages.AddPartitionsToTxnRequest(transactions=[one])
        return messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=side.name(_id(name)),
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=topics,
        )

    return eventually(asks(24, build, "add", version=version), lambda answer: BUSY not in repr(answer))


def sent(*rows: On, name: str = "x", epoch: int = 0, version: int | None = None) -> Step:
    """Rows are `on("t", 0, sequence=0)`."""

    def made(sequence: int) -> Any:
        def make(side: Side) -> Bytes:
            producer_id, producer_epoch = _producer(side, name, epoch)
            return records(1, producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence, transactional=True)

        return make

    filled = [row._replace(fields={"records": made(row.fields.get("sequence", 0))}) for row in rows]
    # The id has the version in it, which is known only when the step is done.
    step = produce(*filled, transactional_id="", version=version, text="send")

    def do(side: Side, swept: int | None) -> Any:
        real = produce(*filled, transactional_id=side.name(_id(name)), version=version, text="send")
        return real.do(side, swept)

    return eventually(replace(step, do=do), lambda answer: BUSY not in repr(answer))


def add_offsets(group: str = "g", *, name: str = "x", epoch: int = 0, version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        producer_id, producer_epoch = _producer(side, name, epoch)
        return messages.AddOffsetsToTxnRequest(
            transactional_id=side.name(_id(name)),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=side.name(group),
        )

    return eventually(asks(25, build, "add offsets", version=version), lambda answer: BUSY not in repr(answer))


def commit_offsets(
    *rows: On, group: str = "g", name: str = "x", epoch: int = 0, generation: int = -1, version: int | None = None
) -> Step:
    """Rows are `on("t", 0, offset=5)`."""

    def build(side: Side, chosen: int) -> Message:
        producer_id, producer_epoch = _producer(side, name, epoch)
        return messages.TxnOffsetCommitRequest(
            transactional_id=side.name(_id(name)),
            group_id=side.name(group),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation if chosen >= 3 else -1,
            topics=[
                messages.TxnOffsetCommitRequestTopic(
                    name=side.name(symbol),
                    partitions=[
                        messages.TxnOffsetCommitRequestPartition(
                            partition_index=row.partition,
                            committed_offset=row.fields.get("offset", 5),
                            committed_metadata=row.fields.get("metadata", ""),
                        )
                        for row in grouped
                    ],
                )
                for symbol, grouped in by_topic(rows)
            ],
        )

    return eventually(asks(28, build, "commit offsets", version=version), lambda answer: BUSY not in repr(answer))


def end(*, commit: bool, name: str = "x", epoch: int = 0, version: int | None = None) -> Step:
    """And wait until it is over."""

    def do(side: Side, swept: int | None) -> Any:
        chosen = version_of(26, version, swept)
        producer_id, producer_epoch = _producer(side, name, epoch)
        request = messages.EndTxnRequest(
            transactional_id=side.name(_id(name)), producer_id=producer_id, producer_epoch=producer_epoch, committed=commit
        )
        answer = side.ask(request, chosen)
        _keep(side, name, answer)
        wait_until(lambda: not _state(side, name).startswith("Prepare"), 20, lambda: f"{name} is not ended")
        return plain(side, answer, chosen)

    step = Step("commit" if commit else "abort", do, None if version is not None else 26)
    return eventually(step, lambda answer: answer["error_code"] != BUSY)


def _state(side: Side, name: str) -> str:
    request = messages.DescribeTransactionsRequest(transactional_ids=[side.name(_id(name))])
    return str(side.ask(request, 0).transaction_states[0].transaction_state)


def markers(
    *rows: On,
    commit: bool,
    name: str = "x",
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    version: int | None = None,
) -> Step:
    def build(side: Side, chosen: int) -> Message:
        producer_id, producer_epoch = _producer(side, name, epoch)
        marker = messages.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=commit,
            topics=[
                messages.WritableTxnMarkerTopic(name=side.name(symbol), partition_indexes=[row.partition for row in group])
                for symbol, group in by_topic(rows)
            ],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version if chosen >= 2 else 0,
        )
        return messages.WriteTxnMarkersRequest(markers=[marker])

    return asks(27, build, "write markers", version=version)


def describe(*names: str) -> Step:
    def build(side: Side, _: int) -> Message:
        return messages.DescribeTransactionsRequest(transactional_ids=[side.name(_id(name)) for name in names])

    return asks(65, build, "describe transactions", see=_shown)


def _shown(_: Side, answer: Any) -> Any:
    rows = answer["transaction_states"]
    for row in rows.values() if isinstance(rows, dict) else rows:
        if row.get("transaction_start_time_ms", 0) > 0:
            row["transaction_start_time_ms"] = "some time"
        if isinstance(row.get("topics"), dict):
            for topic in row["topics"].values():
                topic["partitions"].sort()
    return answer


def list_transactions(
    *names: str, states: Sequence[str] = (), pattern: str | None = None, duration_ms: int = -1, version: int | None = None
) -> Step:
    """Those of the case with these names; others may be there."""

    def build(side: Side, chosen: int) -> Message:
        request = messages.ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])
        if chosen >= 1:
            request.duration_filter = duration_ms
        if chosen >= 2:
            request.transactional_id_pattern = pattern
        return request

    def see(side: Side, answer: Any) -> Any:
        own = {side.name(_id(name)) for name in names}
        rows = answer.pop("transaction_states")
        rows = list(rows.values()) if isinstance(rows, dict) else rows
        answer["own"] = sorted(
            (row["transactional_id"], row["transaction_state"]) for row in rows if row["transactional_id"] in own
        )
        return answer

    return asks(66, build, "list transactions", version=version, see=see)
