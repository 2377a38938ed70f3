from __future__ import annotations

import pytest

from pybroker.config.dynamic import check_dynamic
from pybroker.config.reading import Given, read_broker


@pytest.mark.parametrize(
    ("changes", "on_cluster", "on_broker"),
    [
        ({"log.retention.ms": "5"}, "", ""),
        ({"listeners": "PLAINTEXT://:1"}, "one broker only", ""),
        ({"node.id": "5"}, "cannot be changed while it runs", "cannot be changed while it runs"),
        ({"log.retention.ms": "soon"}, "is not allowed", "is not allowed"),
        ({"ssl.keystore.type": "PEM"}, "one broker only", "per listener only: listener.name.{listener}.ssl.keystore.type"),
        ({"listener.name.in.ssl.keystore.type": "PEM"}, "one broker only", ""),
        ({"listener.name.in.max.connections": "5"}, "", ""),
        ({"leader.replication.throttled.rate": "5000"}, "", ""),
        ({"replica.alter.log.dirs.io.max.bytes.per.second": "-1"}, "is not allowed", "is not allowed"),
        ({"log.retention.mss": "5"}, "did you mean log.retention.ms?", "did you mean log.retention.ms?"),
    ],
)
def test_who_takes_a_change(changes: dict[str, str], on_cluster: str, on_broker: str) -> None:
    for per_broker, part in ((False, on_cluster), (True, on_broker)):
        problems = check_dynamic(changes, per_broker=per_broker)
        assert len(problems) == bool(part), problems
        assert all(part in problem.message for problem in problems)


def test_a_throttle_in_a_file_has_no_effect_and_says_so() -> None:
    reading = read_broker({"follower.replication.throttled.rate": Given("5000", "server.properties:1")})
    assert [problem.message for problem in reading.problems] == [
        "follower.replication.throttled.rate has no effect here: it is set while the broker runs, by kafka-configs"
    ]
    assert reading.values == {}
