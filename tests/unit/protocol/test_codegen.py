"""What the generated functions do with right and with wrong values and bytes, on messages small enough to write by hand."""

from __future__ import annotations

import linecache
import random
import tracemalloc

import pytest
from support.random_messages import message_versions, random_message

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import Message, Records, Splices, Struct, col, decoder
from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Order(Message, key=1, versions="0-3", flexible="2+"):
    customer: str | None   = col("string", nullable="1+")
    quick:    bool         = col("bool")
    amount:   int          = col("int64")
    id:       Uuid         = col("uuid", "1+", default=ZERO_UUID, ignorable=True)
    lines:    list[Line]   = col("[]Line")
    codes:    list[int]    = col("[]int16")
    seal:     bytes        = col("bytes")
    gift:     Gift | None  = col("Gift", "3+", nullable="3+", default=None)
    note:     str          = col("string", "2+", tag=0, default="")
    wish:     Gift | None  = col("Gift", "3+", tag=1, default=None)


class Line(Struct):
    article: str = col("string")
    count:   int = col("int32", "1+", default=1)


class Gift(Struct):
    ribbon: str = col("string", default="")
    colour: int = col("int8", default=3)


class Parcel(Message, versions="0", flexible="0+"):
    gift: Gift | None = col("Gift", nullable="0+", tag=0)


def order(**changes: object) -> Order:
    fields: dict[str, object] = {
        "customer": "ada",
        "quick": True,
        "amount": -2,
        "lines": [Line(article="ink")],
        "codes": [1, -1],
        "seal": b"\x01\x02",
    }
    return Order(**{**fields, **changes})  # type: ignore[arg-type]


def test_an_inflexible_version_has_fixed_width_lengths() -> None:
    assert order().encode(0) == bytes.fromhex(
        "0003 616461  01  fffffffffffffffe  00000001 0003 696e6b  00000002 0001 ffff  00000002 0102"
    )


def test_a_flexible_version_has_varint_lengths_and_tag_sections() -> None:
    assert order().encode(2) == bytes.fromhex(
        "04 616461  01  fffffffffffffffe" + "00" * 16 + "02 04 696e6b 00000001 00  03 0001 ffff  03 0102  00"
    )


def test_nulls_are_a_length_of_minus_one_or_a_zero() -> None:
    assert order(customer=None).encode(1).startswith(b"\xff\xff\x01")
    assert order(customer=None).encode(2).startswith(b"\x00\x01")
    for version in (1, 2):
        assert Order.decode(version, order(customer=None).encode(version)).customer is None


def test_tagged_fields_are_written_only_when_they_differ_from_their_default() -> None:
    tail = order(note="hi").encode(2)[-6:]
    assert tail == bytes.fromhex("01 00 03 03 6869")
    assert order(wish=Gift()).encode(3) == order().encode(3)
    assert order(wish=Gift(colour=4)).encode(3)[-6:] == bytes.fromhex("01 01 03 01 04 00")


def test_a_nullable_struct_has_a_marker_before_it() -> None:
    assert order().encode(3)[-2:] == b"\xff\x00"
    assert order(gift=Gift()).encode(3)[-5:] == bytes.fromhex("01 01 03 00 00")
    assert Order.decode(3, order(gift=Gift(ribbon="x")).encode(3)).gift == Gift(ribbon="x")


def test_a_tagged_struct_that_may_be_null_has_a_marker_and_is_left_out_where_it_is_all_defaults() -> None:
    rows = ((Gift(), "00"), (None, "01 00 01 00"), (Gift(colour=4), "01 00 04 01 01 04 00"))
    for gift, encoded in rows:
        assert Parcel(gift=gift).encode(0) == bytes.fromhex(encoded)
        assert Parcel.decode(0, bytes.fromhex(encoded)).gift == gift


def test_fields_a_version_lacks_come_back_as_their_defaults() -> None:
    decoded = Order.decode(0, order(id=Uuid(b"i" * 16)).encode(0))
    assert decoded.id == ZERO_UUID
    assert decoded.lines[0].count == 1


def test_a_value_that_the_version_cannot_carry_is_refused_unless_it_is_ignorable() -> None:
    order(id=Uuid(b"i" * 16)).encode(0)
    with pytest.raises(ProtocolError, match=r"Order v0, field lines\[\]\.count: 5 cannot be carried"):
        order(lines=[Line(article="ink", count=5)]).encode(0)
    with pytest.raises(ProtocolError, match=r"Order v2, field gift"):
        order(gift=Gift()).encode(2)


def test_unknown_tagged_fields_survive_a_round_trip_in_ascending_order() -> None:
    unknown = {9: b"nine", 300: b"", 4: b"four"}
    encoded = order(note="hi", unknown_tagged_fields=unknown).encode(3)
    decoded = Order.decode(3, encoded)
    assert decoded.unknown_tagged_fields == unknown
    assert decoded.note == "hi"
    assert decoded.encode(3) == encoded
    assert encoded.endswith(bytes.fromhex("04  00 03 03 6869  04 04") + b"four" + bytes.fromhex("09 04") + b"nine\xac\x02\x00")


def test_an_unknown_tagged_field_cannot_pose_as_a_known_one() -> None:
    with pytest.raises(ProtocolError, match="unknown tagged field 0 is a known one"):
        order(note="hi", unknown_tagged_fields={0: b""}).encode(3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"customer": None}, "customer"),
        ({"amount": 1 << 63}, "amount"),
        ({"amount": "many"}, "amount"),
        ({"lines": None}, "lines"),
        ({"lines": [Line(article=None)]}, r"lines\[\]\.article"),  # type: ignore[arg-type]
        ({"codes": [40000]}, "codes"),
        ({"seal": "text"}, "seal"),
        ({"customer": "\ud800"}, "customer"),
        ({"customer": "x" * 32768}, "customer"),
    ],
)
def test_what_cannot_be_encoded_names_its_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ProtocolError, match=rf"Order v0, field (\w+, )*{field}"):
        order(**changes).encode(0)


def frame(**changes: object) -> bytes:
    return order(**changes).encode(3)


@pytest.mark.parametrize(
    ("version", "hex_text", "complaint"),
    [
        (3, "", "field customer, at byte 0: the frame ends too early, after 0 bytes"),
        (3, "04 6164", "field customer, at byte 1: a length of 3 bytes, but 2 remain"),
        (3, "04 6164ff 01", "field customer, at byte 1: bytes that are not UTF-8"),
        (3, "ffffffffff01", "field customer, at byte 1: a varint of more than 5 bytes"),
        (3, "ffffffff1f", "field customer, at byte 1: a varint of more than 32 bits"),
        (3, "8280 02", "field customer, at byte 1: a string of 32769 bytes"),
        (3, "00 01 00000000", "field amount, at byte 1: the frame ends too early"),
        (0, "ffff 00 0000000000000000", "field customer, at byte 2: null, which this version does not allow"),
        (1, "fffe 00 0000000000000000", "field customer, at byte 2: a negative length, -2"),
        (0, "0000 00 0000000000000000 7fffffff", "field lines, at byte 15: 2147483647 elements, which 0 remaining bytes"),
        (0, "0000 00 0000000000000000 fffffff0", "field lines, at byte 15: a negative count, -16"),
        (3, "00 01 0000000000000000" + "00" * 16 + "00", "field lines, at byte 27: null, which this version does not allow"),
        (3, "00 01 0000000000000000" + "00" * 16 + "01 03 0001", "field codes, at byte 28: 2 elements, which 2 remaining"),
    ],
)
def test_bad_bytes_are_refused_with_message_version_field_and_offset(version: int, hex_text: str, complaint: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        Order.decode(version, bytes.fromhex(hex_text))
    assert f"Order v{version}, {complaint}" in str(caught.value)


def test_a_tagged_field_must_fill_the_size_it_claims() -> None:
    body = frame()[:-1]
    with pytest.raises(ProtocolError, match="tagged field 0 says 4 bytes and holds 3"):
        Order.decode(3, body + bytes.fromhex("01 00 04 03 6869 00"))
    with pytest.raises(ProtocolError, match=r"field tags, at byte .*: a length of 9 bytes, but 3 remain"):
        Order.decode(3, body + bytes.fromhex("01 00 09 03 6869"))


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(ProtocolError, match=r"Order v3, at byte .*: 2 bytes left over"):
        Order.decode(3, frame() + b"ab")


def test_a_version_out_of_range_is_refused_by_name() -> None:
    for call in (lambda: Order.decode(4, b""), lambda: order().encode(4)):
        with pytest.raises(ProtocolError, match="Order v4: no such version, there are 0-3"):
            call()


def test_a_refusal_keeps_no_frame_of_the_decoder_alive() -> None:
    with pytest.raises(ProtocolError) as caught:
        Order.decode(3, b"")
    assert caught.value.__context__ is None


def test_a_lying_count_allocates_nothing() -> None:
    lie = bytes.fromhex("0000 00 0000000000000000 00000000 7fffffff") + bytes(2000)
    with pytest.raises(ProtocolError):
        Order.decode(0, lie)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="codes"):
        Order.decode(0, lie)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_every_truncation_of_every_message_is_refused() -> None:
    rng = random.Random(5)
    for cls, version in message_versions():
        encoded = random_message(rng, cls, version).encode(version)
        for length in {*range(min(len(encoded), 12)), *(rng.randrange(len(encoded)) for _ in range(6) if encoded)}:
            with pytest.raises(ProtocolError):
                cls.decode(version, encoded[:length])


def test_every_message_survives_a_round_trip_with_its_unknown_tags() -> None:
    rng = random.Random(6)
    for cls, version in message_versions():
        message = random_message(rng, cls, version, unknown_tags=True)
        encoded = message.encode(version)
        for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
            assert cls.decode(version, buffer).encode(version) == encoded


def test_records_are_a_view_of_the_frame() -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=2,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"batch")])],
    )
    buffer = bytearray(request.encode(9))
    records: Records = ProduceRequest.decode(9, buffer).topic_data[0].partition_data[0].records
    assert bytes(records) == b"batch"
    buffer[buffer.index(b"batch")] = ord("m")
    assert bytes(records) == b"match"


class FileSlice:
    """Stands for bytes in a file, which only sendfile will ever read."""

    def __len__(self) -> int:
        return 1000


def test_records_in_a_file_are_left_out_of_the_bytes_and_noted_where_they_belong() -> None:
    slices = [FileSlice(), FileSlice()]
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=9, aborted_transactions=None, records=records)
        for index, records in enumerate([*slices, b"in memory"])
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    out = bytearray(b"head")
    splices: Splices = []
    response.encode_into(12, out, splices)
    assert [records for _, records in splices] == slices

    whole, start = bytearray(), 0
    for position, records in splices:
        whole += out[start:position] + bytes(len(records))
        start = position
    whole += out[start:]
    decoded = FetchResponse.decode(12, whole[4:])
    assert [bytes(part.records) for part in decoded.responses[0].partitions] == [bytes(1000), bytes(1000), b"in memory"]
    with pytest.raises(ProtocolError, match=r"responses\[\]\.partitions\[\]\.records"):
        response.encode(12)


def test_a_message_in_the_middle_of_a_buffer_is_decoded_from_there() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="c")
    buffer = b"...." + header.encode(2) + b"body"
    decoded, position = RequestHeader.decode_from(2, buffer, 4)
    assert decoded == header
    assert buffer[position:] == b"body"


def test_the_client_id_of_a_flexible_header_keeps_its_two_byte_length() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="c")
    assert header.encode(2) == bytes.fromhex("0012 0003 00000007 0001 63 00")


def test_generated_code_can_be_read_in_a_traceback() -> None:
    decoder(Order, 3)
    assert any("read_unknown_tags" in line for line in linecache.getlines("<pybroker decode Order v3>"))
