"""Our placement beside Apache Kafka's StripedReplicaPlacer: other replicas, but nowhere worse by any measure it cares for."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from interop.apache_kafka import java_command

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.controller.placement import place
from pybroker.metadata.image import BrokerState
from pybroker.protocol.errors import KafkaError

CASES = 2000


class Case(NamedTuple):
    seed: int
    partitions: int
    replicas: int
    brokers: list[tuple[int, str | None, bool]]

    def ours(self) -> Any:
        brokers = [BrokerState(one, 1, ZERO_UUID, rack=rack, fenced=fenced) for one, rack, fenced in self.brokers]
        try:
            return place(brokers, self.partitions, self.replicas, Random(self.seed).randrange)
        except KafkaError as error:
            return error.code.name


class Measured(NamedTuple):
    """The less the better."""

    leaders_apart: int  # most and fewest leaderships of a broker that may lead
    fenced_leaders: int
    crowded: int  # replicas that share a rack though another is free
    fenced_replicas: int


def measured(case: Case, placed: list[list[int]]) -> Measured:
    racks = {one: rack for one, rack, _fenced in case.brokers}
    fenced = {one for one, _rack, is_fenced in case.brokers if is_fenced}
    leaders = Counter(one[0] for one in placed)
    each = [leaders[one] for one in racks if one not in fenced]
    possible = min(case.replicas, len(set(racks.values())))
    return Measured(
        max(each) - min(each),
        sum(leaders[one] for one in fenced),
        sum(possible - len({racks[one] for one in replicas}) for replicas in placed),
        sum(one in fenced for replicas in placed for one in replicas),
    )


def cases() -> Iterator[Case]:
    random = Random(4)
    for seed in range(CASES):
        racks = random.choice([[None], ["a", "b"], ["a", "b", "c"]])
        count = random.randint(0, 9)
        # Racks as large as each other, or Apache Kafka's leaders are not even.
        count -= count % len(racks)
        fenced_odds = random.choice([0, 0, 0.3])
        brokers = [(one, racks[one % len(racks)], random.random() < fenced_odds) for one in range(count)]
        yield Case(seed, random.randint(1, 40), random.randint(1, 4), brokers)


def test_nowhere_worse_than_apache_kafka() -> None:
    asked = [*cases()]
    lines = "".join(json.dumps(case._asdict()) + "\n" for case in asked)
    done = subprocess.run(java_command("Placements"), input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    refused = placed = 0
    for case, line in zip(asked, done.stdout.splitlines(), strict=True):
        ours, theirs = case.ours(), json.loads(line)
        if isinstance(theirs, str):
            refused += 1
            assert ours == theirs, case
            continue
        placed += 1
        assert not isinstance(ours, str), (case, ours)
        assert all(len(set(replicas)) == case.replicas for replicas in ours), case
        for name, mine, other in zip(Measured._fields, measured(case, ours), measured(case, theirs), strict=True):
            assert mine <= other, (name, mine, other, case)
    assert min(refused, placed) > CASES // 10, (refused, placed)
