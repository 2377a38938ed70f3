"""The assignors choose what Apache Kafka's choose: random groups, step by step, each from the assignment before."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

from interop.apache_kafka import java_command

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.coordinator.group.consumer.assignors import ASSIGNORS, Assignment, MemberSpec

GROUPS = 400


def shown(assignment: dict[str, Assignment]) -> dict[str, Any]:
    return {
        member: {uuid_to_text(topic): sorted(partitions) for topic, partitions in share.items() if partitions}
        for member, share in assignment.items()
    }


def random_groups() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is asked, and what is chosen here."""
    for seed in range(GROUPS):
        rng = random.Random(seed)
        counts = {Uuid(rng.randbytes(16)): rng.randint(1, 40) for _ in range(rng.randint(1, 6))}
        name = rng.choice(("uniform", "uniform", "range"))
        is_same = rng.random() < 0.5
        members: dict[str, MemberSpec] = {}
        assignment: dict[str, Assignment] = {}
        for _ in range(5):
            for _ in range(rng.randint(1, 4)):
                topics = frozenset(counts) if is_same else frozenset(rng.sample(sorted(counts), rng.randint(1, len(counts))))
                members[uuid_to_text(Uuid(rng.randbytes(16)))] = MemberSpec(None, topics)
            for member_id in rng.sample(sorted(members), rng.randrange(len(members))):
                if rng.random() < 0.4:
                    del members[member_id]
            members = {one: spec._replace(assigned=assignment.get(one, {})) for one, spec in members.items()}
            read = {topic: counts[topic] for spec in members.values() for topic in spec.topics}
            assignment = ASSIGNORS[name](members, read, is_same)
            asked = {
                "assignor": name,
                "is_homogeneous": is_same,
                "counts": {uuid_to_text(topic): count for topic, count in read.items()},
                "members": {
                    one: {
                        "topics": [uuid_to_text(topic) for topic in spec.topics],
                        "assigned": shown({one: spec.assigned})[one],
                    }
                    for one, spec in members.items()
                },
            }
            yield asked, shown(assignment)


def test_the_same_choices() -> None:
    groups = list(random_groups())
    lines = "".join(json.dumps(asked) + "\n" for asked, _ in groups)
    done = subprocess.run(
        java_command("Assignments"), input=lines, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(theirs) == len(groups), done.stderr
    leveled = other = 0
    for (asked, ours), chosen in zip(groups, theirs, strict=True):
        is_same = ours == {member: share for member, share in chosen.items() if member in ours}
        if asked["assignor"] == "uniform" and not asked["is_homogeneous"]:
            leveled += 1
            other += not is_same
        else:
            assert is_same, asked
    # Members that have nothing of a topic to give change the order in which Apache Kafka asks the others: a tie in some.
    assert other < leveled * 0.05, f"{other} of {leveled} groups whose members read different topics are assigned otherwise"
