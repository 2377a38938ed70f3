"""The commonest Produce, answered without decoding it: one batch to one partition, from a client that did the same before.

What such a request says before its records (client id, acks, timeout, topic, partition) is the same bytes each time. They are
learned from a request that went the whole way, and later lead straight to the partition; the answer is likewise a copy of the
one given then, with three numbers put in. Requests of the same beginning that came together are appended by one write. Those of
a transaction are among them, but for the first, which makes the partition part of it. With acks=all their answers are owed
until the replicas in sync have them, and further requests of the connection are appended meanwhile. Whatever is not of that
form, or not to be appended just like that, goes the whole way. Any thread. What is learned is forgotten when the partitions
here change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from pybroker.base.purgatory import DelayedOperation
from pybroker.network.answers import Gather, encode_answer
from pybroker.network.connection import Connection, Owed
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pybroker.protocol.records.batch import TRANSACTIONAL_BIT
from pybroker.replication.isr import Leadership
from pybroker.replication.partition import ALL_IN_SYNC, Partition
from pybroker.replication.replica_manager import ReplicaManager

MAX_LEARNED: Final = 10_000
MAX_LENGTHS: Final = 4
# One write takes at most so many requests, and no further one from so many bytes on: they are copied together for it. Measured
# per batch, five at once: of 1 KiB 1.0 µs instead of 1.8, of 16 KiB 5.6 instead of 9.4; from 64 KiB on it gains nothing.
MAX_TOGETHER: Final = 32
MAX_TOGETHER_BYTES: Final = 128 * 1024
FLEXIBLE_FROM: Final = ProduceRequest.FLEXIBLE.low
NO_TAGS_BYTES: Final = 3  # zeros, for the partition, the topic and the request
MAX_VARINT_BYTES: Final = 5
LOG_START_FROM: Final = 5

# Where the client id begins, behind API key, version and correlation id.
CLIENT_AT: Final = 8
HEADER_BYTES: Final = 10
ATTRIBUTES_AT: Final = 22  # in a batch: codec, kind of timestamp, transaction

_OFFSET_MARK: Final = 0x0123456789ABCDEF
_START_MARK: Final = 0x0EDCBA9876543210
_unpack_header = Struct(">hhih").unpack_from  # API key, version, correlation id, length of the client id
_unpack_size = Struct(">i").unpack_from
_unpack_last_delta = Struct(">23xi").unpack_from  # of a batch
_long = Struct(">q").pack


class Answer(NamedTuple):
    """A whole answer, in pieces around its three numbers: correlation id, offset and, if there is an `end`, log start."""

    size: bytes
    before_offset: bytes
    between: bytes
    end: bytes | None


class Learned(NamedTuple):
    """Where the bytes before the records lead, and the answer."""

    partition: Partition
    acks: int
    is_transactional: bool
    timeout_ms: int
    topic: TopicProduceData  # without its records
    version: int
    key_and_version: bytes
    client_to_records: bytes  # from the client id to the length of the records
    unpack: Callable[[memoryview], tuple[bytes, int, bytes]]  # both of them, and the correlation id between
    length: int  # of all that
    answer: Answer
    pack: Callable[..., bytes]  # size, correlation id, what comes before the offset, the offset, what comes behind it


class _Memory:
    """What was learned while the partitions here did not change."""

    __slots__ = ("generation", "learned", "lengths")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.learned: dict[tuple[int, bytes], Learned] = {}  # by version and the bytes from the client id to the records
        # By version and client how long that was, which differs with the name of the topic.
        self.lengths: dict[tuple[int, bytes], tuple[int, ...]] = {}


class PlainProduce:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._memory = _Memory(-1)

    def answer(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:
        """Answer the frames from number `start` on that go to the same partition, or see to it that they are, and tell how
        many; 0, and nothing is done, if the first has to go the whole way."""
        replicas = self._replicas
        memory = self._memory
        if memory.generation != replicas.generation:
            self._memory = _Memory(replicas.generation)
            return 0
        known = _find(memory, frames[start])
        if known is None:
            return 0
        partition = known.partition
        if not partition.is_alone or (known.acks == ALL_IN_SYNC and len(partition.state.replicas) > 1):
            return self._replicate(known, connection, frames, start, gather)
        correlation_ids, batches = _alike(known, frames, start)
        offsets = partition.log.append_plain_batches(
            batches, partition.leader_epoch, replicas.now_ms(), is_transactional=known.is_transactional
        )
        if not offsets:
            return 0
        _answer(connection, gather, _committed(known, correlation_ids, offsets))
        replicas.wake(partition)
        return len(offsets)

    def _replicate(
        self, known: Learned, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather
    ) -> int:
        """As `answer`, where other replicas have a say in what is committed."""
        replicas, partition = self._replicas, known.partition
        leadership = partition.leadership
        waits = known.acks == ALL_IN_SYNC
        log = partition.log
        if (
            leadership is None
            or gather.ident != connection.thread.ident
            or (waits and leadership.is_under_min_isr(log.config.min_insync_replicas))
        ):
            return 0
        correlation_ids, batches = _alike(known, frames, start)
        offsets = log.append_plain_batches(
            batches, leadership.leader_epoch, replicas.now_ms(), is_transactional=known.is_transactional, commits=False
        )
        if not offsets:
            return 0
        if waits:
            owed = connection.owe(gather)
            end_offset = offsets[-1] + _unpack_last_delta(batches[len(offsets) - 1])[0] + 1
            waiting = _Uncommitted(known, correlation_ids, offsets, leadership, end_offset, owed)
            deadline_ms = replicas.monotonic_ms() + max(0, known.timeout_ms)
            replicas.produces.watch(waiting, (partition.topic_partition,), deadline_ms)
        else:
            _answer(connection, gather, _committed(known, correlation_ids, offsets))
        # Not at once: what other connections bring in this turn goes to the followers with it.
        connection.thread.soon(replicas.wake, partition)
        return len(offsets)

    def learn(self, request: Request, message: ProduceRequest, partition: Partition) -> None:
        """`request`, of one batch to `partition` and with an answer to come, went the whole way and was appended."""
        version = request.version
        frame = request.frame
        client = _client(frame)
        if client is None or CLIENT_AT + len(client[1]) != request.position:
            return
        ((data,),) = [topic.partition_data for topic in message.topic_data]
        is_transactional = message.transactional_id is not None
        wanted_attributes = TRANSACTIONAL_BIT if is_transactional else 0
        if data.records[ATTRIBUTES_AT] != wanted_attributes or not partition.log.config.takes_batches_as_they_are:
            # It would be tried in vain each time.
            return
        length = request.position + prefix_length(len(frame) - request.position, len(data.records), version)
        client_to_records = frame[CLIENT_AT:length].tobytes()
        memory = self._memory
        if memory.generation != self._replicas.generation or len(memory.learned) >= MAX_LEARNED:
            self._memory = memory = _Memory(self._replicas.generation)
        if (version, client_to_records) in memory.learned or records_at(frame, length, version) is None:
            return
        answer = _answer_in_pieces(message.topic_data[0], version)
        behind_offset = len(answer.between) + (0 if answer.end is None else 8 + len(answer.end))
        memory.learned[version, client_to_records] = Learned(
            partition,
            message.acks,
            is_transactional,
            message.timeout_ms,
            _without_records(message.topic_data[0]),
            version,
            frame[:4].tobytes(),
            client_to_records,
            Struct(f">4si{len(client_to_records)}s").unpack_from,
            length,
            answer,
            Struct(f">4si{len(answer.before_offset)}sq{behind_offset}s").pack,
        )
        lengths = memory.lengths.get(client, ())
        if length not in lengths:
            if len(memory.lengths) >= MAX_LEARNED:
                memory.lengths.clear()
            memory.lengths[client] = (length, *lengths[: MAX_LENGTHS - 1])


class _Uncommitted(DelayedOperation):
    """Requests of one connection whose batches, appended together, wait until the replicas in sync have them all."""

    __slots__ = ("_correlation_ids", "_end_offset", "_known", "_leadership", "_offsets", "_owed")

    def __init__(
        self,
        known: Learned,
        correlation_ids: list[int],
        offsets: list[int],
        leadership: Leadership,
        end_offset: int,
        owed: Owed,
    ) -> None:
        self._known = known
        self._correlation_ids = correlation_ids
        self._offsets = offsets
        self._leadership = leadership
        self._end_offset = end_offset
        self._owed = owed

    def try_complete(self) -> bool:
        code = self._known.partition.committed(self._leadership, self._end_offset)
        if code is None:
            return False
        self._settle(code)
        return True

    def on_expire(self) -> None:
        code = self._known.partition.committed(self._leadership, self._end_offset)
        self._settle(ErrorCode.REQUEST_TIMED_OUT if code is None else code)

    def _settle(self, code: ErrorCode) -> None:
        answers = _uncommitted if code else _committed
        self._owed.settle(answers(self._known, self._correlation_ids, self._offsets, code))


def _answer(connection: Connection, gather: Gather, answers: bytes | bytearray) -> None:
    if connection.owed:
        connection.owe(gather).settle(answers)
    else:
        gather.out += answers


def _committed(
    known: Learned, correlation_ids: list[int], offsets: list[int], code: ErrorCode = ErrorCode.NONE
) -> bytes | bytearray:
    """The answers to requests of the `known` form, if all went well. If there are fewer offsets than requests, those from the
    first without one on go another way."""
    size, before_offset, behind_offset, end = known.answer
    if end is not None:
        behind_offset += _long(known.partition.log.log_start_offset) + end
    pack = known.pack
    if len(offsets) == 1:
        return pack(size, correlation_ids[0], before_offset, offsets[0], behind_offset)
    out = bytearray()
    for correlation_id, offset in zip(correlation_ids, offsets, strict=False):
        out += pack(size, correlation_id, before_offset, offset, behind_offset)
    return out


def _uncommitted(known: Learned, correlation_ids: list[int], offsets: list[int], code: ErrorCode) -> bytearray:
    """The answers to requests of the `known` form that were appended but not committed."""
    out = bytearray()
    start = known.partition.log.log_start_offset
    for correlation_id, offset in zip(correlation_ids, offsets, strict=False):
        response = ProduceResponse(responses=[_response(known.topic, code, offset, start)])
        encode_answer(response, known.version, correlation_id, out, [])
    return out


def _find(memory: _Memory, frame: memoryview) -> Learned | None:
    client = _client(frame)
    if client is not None:
        for length in memory.lengths.get(client, ()):
            known = memory.learned.get((client[0], frame[CLIENT_AT:length].tobytes()))
            if known is not None:
                return known
    return None


def _alike(known: Learned, frames: Sequence[memoryview], start: int) -> tuple[list[int], list[memoryview]]:
    """Correlation ids and records of the frames from number `start` on, up to the first that is not of the `known` form."""
    _, _, _, _, _, version, key_and_version, client_to_records, unpack, length, _, _ = known
    correlation_ids: list[int] = []
    batches: list[memoryview] = []
    total_bytes = 0
    for number in range(start, min(len(frames), start + MAX_TOGETHER)):
        frame = frames[number]
        if total_bytes >= MAX_TOGETHER_BYTES or len(frame) <= length:
            break
        its_key_and_version, correlation_id, its_client_to_records = unpack(frame)
        if its_client_to_records != client_to_records or its_key_and_version != key_and_version:
            break
        records = records_at(frame, length, version)
        if records is None:
            break
        total_bytes += len(frame)
        correlation_ids.append(correlation_id)
        batches.append(records)
    return correlation_ids, batches


def _client(frame: memoryview) -> tuple[int, bytes] | None:
    """Version, and what the header says from the client id on, if it says nothing else: its length, itself, and no tags."""
    if len(frame) < HEADER_BYTES:
        return None
    _, version, _, length = _unpack_header(frame)
    end = HEADER_BYTES + max(0, length) + (version >= FLEXIBLE_FROM)
    return version, frame[CLIENT_AT:end].tobytes()


def _answer_in_pieces(topic: TopicProduceData, version: int) -> Answer:
    """As the table encodes it."""
    response = _response(topic, ErrorCode.NONE, _OFFSET_MARK, _START_MARK)
    out = bytearray()
    encode_answer(ProduceResponse(responses=[response]), version, 0, out, [])
    size, rest = bytes(out[:4]), bytes(out[8:])
    before, _, after = rest.partition(_long(_OFFSET_MARK))
    if version < LOG_START_FROM:
        return Answer(size, before, after, None)
    between, _, end = after.partition(_long(_START_MARK))
    return Answer(size, before, between, end)


def _response(topic: TopicProduceData, code: ErrorCode, offset: int, log_start_offset: int) -> TopicProduceResponse:
    result = PartitionProduceResponse(
        index=topic.partition_data[0].index, error_code=code, base_offset=offset, log_start_offset=log_start_offset
    )
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])


def _without_records(topic: TopicProduceData) -> TopicProduceData:
    """Records are views of a frame that is not ours to keep."""
    rows = [PartitionProduceData(index=topic.partition_data[0].index, records=None)]
    return TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=rows)


def prefix_length(body: int, records: int, version: int) -> int:
    """How many bytes of a body come before the length of its only records."""
    if version < FLEXIBLE_FROM:
        return body - records - 4
    return body - records - NO_TAGS_BYTES - max(1, ((records + 1).bit_length() + 6) // 7)


def records_at(frame: memoryview, position: int, version: int) -> memoryview | None:
    """The records whose length stands at `position`, if they and nothing else fill the rest of the frame."""
    end = len(frame)
    if version < FLEXIBLE_FROM:
        if end - position < 4 or _unpack_size(frame, position)[0] != end - position - 4:
            return None
        return frame[position + 4 :]
    end -= NO_TAGS_BYTES
    if end <= position or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    size = shift = 0
    for place in range(position, min(end, position + MAX_VARINT_BYTES)):
        byte = frame[place]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return frame[place + 1 : end] if size == end - place else None
        shift += 7
    return None
