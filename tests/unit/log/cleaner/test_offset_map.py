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
        assert slots < 32
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
    assert offsets.size_bytes <= keys * 1.01 * 24 + 10_000


def test_a_million_keys_take_24_megabytes() -> None:
    assert OffsetMap(128 * 1024 * 1024, 0.9, max_keys=1_000_000).size_bytes < 24.5e6


def test_the_load_factor_counts_where_the_buffer_is_the_limit() -> None:
    buffer_bytes = 24 * 10_000
    assert OffsetMap(buffer_bytes, 0.5, max_keys=4_800).capacity == 4_801
    for keys in (5_100, 20_000):
        offsets = OffsetMap(buffer_bytes, 0.5, max_keys=keys)
        assert 0.98 * buffer_bytes < offsets.size_bytes <= buffer_bytes
        assert 4_900 < offsets.capacity <= 5_000


@pytest.mark.parametrize("keys", [1, 30, 31, 32, 63, 64, 100, 5_000])
def test_it_finds_everything_while_nearly_full(keys: int) -> None:
    """A new key, one that is known and one that is missing all have to come past full buckets, and to an end."""
    offsets = OffsetMap(2**30, 0.9, max_keys=keys)
    rows = [(number, b"key-%d" % number) for number in range(keys)]
    assert offsets.put_all(rows, 0)
    assert offsets.put_all([(number + keys, key) for number, key in rows], 0)
    assert len(offsets) == keys
    assert [offsets.get(key) for _, key in rows] == [number + keys for number in range(keys)]
    assert {offsets.get(b"missing-%d" % number) for number in range(keys)} == {MISSING}


def test_offsets_with_zeros_in_their_bytes_do_not_look_like_a_free_slot() -> None:
    offsets = OffsetMap(24 * 32, 1.0)
    high = 2**62
    assert offsets.capacity == 31
    for number in range(31):
        offsets.put(b"%d" % number, high if number % 2 else 0)
    assert [offsets.get(b"%d" % number) for number in range(31)] == [0, high] * 15 + [0]


def test_keys_before_the_first_offset_and_records_without_a_key_are_left_out() -> None:
    offsets = OffsetMap(10_000)
    assert offsets.put_all([(4, b"a"), (5, b"b"), (6, None), (7, b"c")], 5)
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [MISSING, 5, 7]
    assert offsets.latest_offset == 7


def test_a_full_map_says_how_far_it_came() -> None:
    offsets = OffsetMap(24 * 32, 0.5)
    assert not offsets.put_all([(offset, b"%d" % offset) for offset in range(40)], 0)
    assert len(offsets) == offsets.capacity == 16
    assert offsets.latest_offset == 15


def test_cleared_it_is_empty() -> None:
    offsets = OffsetMap(10_000)
    offsets.put(b"a", 7)
    offsets.clear()
    assert (len(offsets), offsets.get(b"a"), offsets.latest_offset) == (0, MISSING, MISSING)


def test_a_buffer_without_room_says_which_setting_to_raise() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(100)
