from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.log.cleaner.offset_map import MISSING, OffsetMap

KEYS = st.binary(max_size=3)


@given(st.lists(KEYS, max_size=300))
def test_it_knows_what_a_dict_knows(keys: list[bytes]) -> None:
    offsets = OffsetMap(24 * 400, 1.0)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
        model[key] = offset
    assert {key: offsets.get(key) for key in model} == model
    assert len(offsets) == len(model)
    assert offsets.latest_offset == len(keys) - 1
    assert offsets.get(b"not a key of three bytes") == MISSING


@given(st.integers(1, 500), st.floats(0.3, 1.0))
def test_it_takes_its_capacity_of_keys_and_not_one_more(slots: int, load_factor: float) -> None:
    try:
        offsets = OffsetMap(24 * slots, load_factor)
    except ValueError:
        assert slots < 8
        return
    assert offsets.size_bytes <= 24 * slots
    for number in range(offsets.capacity):
        offsets.put(b"%d" % number, number)
    assert [offsets.get(b"%d" % number) for number in range(offsets.capacity)] == list(range(offsets.capacity))
    assert offsets.get(b"another") == MISSING
    with pytest.raises(ValueError, match="full"):
        offsets.put(b"another", 1000)


@pytest.mark.parametrize("keys", [0, 1, 10, 1_000, 100_000])
def test_it_is_no_larger_than_a_bounded_number_of_keys_needs(keys: int) -> None:
    offsets = OffsetMap(2**30, 0.9, max_keys=keys)
    assert keys <= offsets.capacity <= keys + 10
    assert offsets.size_bytes <= (keys + 12) / 0.9 * 24 + 200


def test_offsets_with_zeros_in_their_bytes_do_not_look_like_a_free_slot() -> None:
    offsets = OffsetMap(24 * 8, 1.0)
    high = 2**62
    for number in range(7):
        offsets.put(b"%d" % number, high if number % 2 else 0)
    assert [offsets.get(b"%d" % number) for number in range(7)] == [0, high, 0, high, 0, high, 0]


def test_keys_before_the_first_offset_and_records_without_a_key_are_left_out() -> None:
    offsets = OffsetMap(10_000)
    assert offsets.put_all([(4, b"a"), (5, b"b"), (6, None), (7, b"c")], 5)
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [MISSING, 5, 7]
    assert offsets.latest_offset == 7


def test_a_full_map_says_how_far_it_came() -> None:
    offsets = OffsetMap(24 * 8, 0.5)
    assert not offsets.put_all([(offset, b"%d" % offset) for offset in range(10)], 0)
    assert len(offsets) == offsets.capacity == 4
    assert offsets.latest_offset == 3


def test_cleared_it_is_empty() -> None:
    offsets = OffsetMap(10_000)
    offsets.put(b"a", 7)
    offsets.clear()
    assert (len(offsets), offsets.get(b"a"), offsets.latest_offset) == (0, MISSING, MISSING)


def test_a_buffer_without_room_says_which_setting_to_raise() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(100)
