from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from unit.metadata.clusters import uuid

from pybroker.metadata.controller.placement import place
from pybroker.metadata.image import BrokerState
from pybroker.protocol.errors import ErrorCode, KafkaError

SEEDS = range(40)


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False, leaving: bool = False) -> BrokerState:
    incarnation = uuid(str(broker_id))
    return BrokerState(broker_id, 1, incarnation, rack=rack, fenced=fenced, in_controlled_shutdown=leaving)


def spread(counts: Counter[int], brokers: list[BrokerState]) -> int:
    each = [counts[one.id] for one in brokers]
    return max(each) - min(each)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_worked_example(seed: int) -> None:
    """6 brokers in 3 racks, 10 partitions of 3 replicas: 5 replicas a broker, leaders spread, racks alternate."""
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    brokers = [broker(broker_id, rack) for broker_id, rack in racks.items()]
    placed = place(brokers, 10, 3, Random(seed).randrange)
    replicas = Counter(broker_id for one in placed for broker_id in one)
    assert replicas == dict.fromkeys(racks, 5)
    assert spread(Counter(one[0] for one in placed), brokers) == 1
    assert all({racks[broker_id] for broker_id in one} == {"a", "b", "c"} for one in placed)
    leading = [racks[one[0]] for one in placed]
    assert all(first != second for first, second in pairwise(leading))


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_and_leaders_are_even_without_racks(seed: int) -> None:
    random = Random(seed)
    brokers = [broker(broker_id) for broker_id in range(random.randint(1, 9))]
    factor = random.randint(1, len(brokers))
    placed = place(brokers, random.randint(1, 100), factor, random.randrange)
    assert all(len(set(one)) == factor for one in placed)
    # By two at most: the emptiest broker may lead the last partition, and cannot follow itself.
    assert spread(Counter(broker_id for one in placed for broker_id in one), brokers) <= 2
    assert spread(Counter(one[0] for one in placed), brokers) <= 1


def test_when_a_broker_is_lost_several_others_take_over_its_leaders() -> None:
    placed = place([broker(broker_id) for broker_id in range(6)], 120, 3, Random(1).randrange)
    heirs = Counter(one[1] for one in placed if one[0] == 0)
    assert set(heirs) == {1, 2, 3, 4, 5}
    assert max(heirs.values()) <= 8


def test_the_first_broker_is_drawn() -> None:
    brokers = [broker(broker_id) for broker_id in range(5)]
    assert {place(brokers, 1, 1, Random(seed).randrange)[0][0] for seed in SEEDS} == set(range(5))


def test_racks_come_before_even_brokers() -> None:
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "a"), broker(4, "b")]
    assert all(4 in one for one in place(brokers, 9, 2, Random(1).randrange))


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3), broker(4, fenced=True)]
    assert all(set(one) == {1, 3} for one in place(brokers, 20, 2, Random(1).randrange))
    wide = place(brokers, 20, 3, Random(1).randrange)
    assert {one[0] for one in wide} == {1, 3}
    assert {one[2] for one in wide} == {2, 4}


def test_a_broker_that_shuts_down_gets_nothing() -> None:
    brokers = [broker(1), broker(2, leaving=True)]
    assert place(brokers, 3, 1, Random(1).randrange) == [[1]] * 3


def test_a_broker_that_has_shut_down_will_be_back() -> None:
    brokers = [broker(1), broker(2, leaving=True, fenced=True)]
    assert place(brokers, 3, 2, Random(1).randrange) == [[1, 2]] * 3


def test_a_broker_with_all_directories_cordoned_off_gets_nothing() -> None:
    directories = uuid("a"), uuid("b")
    half = replace(broker(1), log_dirs=directories, cordoned_log_dirs=directories[:1])
    whole = replace(broker(2), log_dirs=directories, cordoned_log_dirs=directories)
    assert place([half, whole], 3, 1, Random(1).randrange) == [[1]] * 3


@pytest.mark.parametrize(
    ("brokers", "factor", "problem"),
    [
        ([], 1, "0 can hold one"),
        ([broker(1, fenced=True)], 1, "all of them are fenced"),
        ([broker(1)], 2, "2 replicas of a partition need as many brokers; found 1"),
    ],
)
def test_what_cannot_be_placed(brokers: list[BrokerState], factor: int, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        place(brokers, 1, factor, Random(1).randrange)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
