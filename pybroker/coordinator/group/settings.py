"""What of a broker's configs the group shards go by. All shards of a node share one; what may change while the node runs is
replaced in it, and counts from the next decision on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pybroker.config import Config

# Apache Kafka's own assignors may be given by their classes, too.
_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


@dataclass(slots=True)
class GroupSettings:
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    metadata_max_length: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    retention_check_interval_ms: int = 600_000
    # Of consumer groups; the first three are what groups may set for themselves.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_assignment_interval_ms: int = 1000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    can_upgrade: bool = True
    can_downgrade: bool = True
    regex_refresh_interval_ms: int = 600_000

    def reconfigure(self, config: Config) -> None:
        self.consumer_assignment_interval_ms = config.int("group.consumer.assignment.interval.ms")

    @classmethod
    def of(cls, config: Config) -> GroupSettings:
        policy = str(config["group.consumer.migration.policy"]).lower()
        return cls(
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            max_size=config.int("group.max.size"),
            metadata_max_length=config.int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
            retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
            consumer_session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=config.int("group.consumer.assignment.interval.ms"),
            consumer_max_size=config.int("group.consumer.max.size"),
            consumer_assignors=_assignors(config["group.consumer.assignors"]),
            can_upgrade=policy in ("bidirectional", "upgrade"),
            can_downgrade=policy in ("bidirectional", "downgrade"),
            regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
        )


def _assignors(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(_CLASSES.get(name, name) for name in given)
