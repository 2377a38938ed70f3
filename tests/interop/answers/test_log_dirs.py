"""DescribeLogDirs 1-5, AlterReplicaLogDirs 1-2: the same answer as Apache Kafka's, with two log directories.

Which of them a new partition comes to is a broker's choice; the cases look past that.
"""

from __future__ import annotations

from typing import Any

import pytest
from interop.answers.admin import deleted_records, describe_log_dirs, list_offsets, move
from interop.answers.case import Case, Pair, family
from interop.answers.steps import eventually, fetch, on, topic, written

describing, moving = family(35), family(34)

LOG = (topic("t", 2), written("t", 3, 0))


def moved(answer: Any) -> bool:
    """Nothing lies in the first directory any more, and nothing is on its way."""
    first, second = answer["results"]["log dir #1"]["topics"], answer["results"]["log dir #2"]["topics"]
    return not first and not any(part["is_future_key"] for row in second.values() for part in row["partitions"].values())


DESCRIBE = [
    describing("a partition", *LOG, describe_log_dirs(on("t", 0))),
    describing("an empty partition", *LOG, describe_log_dirs(on("t", 1))),
    describing("several", *LOG, describe_log_dirs(on("t", 0), on("t", 1))),
    describing("all", *LOG, describe_log_dirs(everything=True)),
    describing("nothing", *LOG, describe_log_dirs()),
    describing("a topic without partitions", *LOG, describe_log_dirs(on("t"), nothing=True)),
    describing("unknown ones", *LOG, describe_log_dirs(on("t", 7), on("t", -1), on("nobody"))),
    describing("a partition twice", *LOG, describe_log_dirs(on("t", 0), on("t", 0))),
    describing("a bad name", *LOG, describe_log_dirs(on("=no/such"), on("="))),
    describing("after a deletion", *LOG, deleted_records("t", 2), describe_log_dirs(on("t", 0))),
]

MOVE = [
    moving(
        "there and away",
        *LOG,
        move((0, on("t", 0))),
        move((1, on("t", 0))),
        eventually(describe_log_dirs(on("t", 0), where=True), moved),
        fetch(on("t", 0)),
        list_offsets(on("t", 0, at=-1)),
        versions="2",
    ),
    moving("to an unknown directory", *LOG, move(("/no/such/directory", on("t", 0)))),
    moving("to a relative path", *LOG, move(("data", on("t", 0)))),
    moving("to no path", *LOG, move(("", on("t", 0)))),
    moving("an unknown topic", *LOG, move((0, on("nobody")))),
    moving("an unknown partition", *LOG, move((0, on("t", 7)), (1, on("t", -1)))),
    moving("nothing", move()),
    moving("a bad name", move((0, on("=no/such")))),
    moving("the metadata", move((0, on("=__cluster_metadata")))),
]


@pytest.mark.parametrize("case", [*DESCRIBE, *MOVE], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
