from __future__ import annotations

import pytest

from pybroker.coordinator.hashing import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1_906_497_762),
        ("console-consumer-12345", 158_455_506),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("\U0001f40d", 1_772_400),  # two code units
    ],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_a_negative_hash_gives_a_partition_all_the_same() -> None:
    assert java_hash("my-group") < 0
    assert partition_of("my-group", 50) == 12


def test_the_smallest_hash_which_has_no_opposite_goes_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
