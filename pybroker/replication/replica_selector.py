"""Which replica a consumer is to read from (KIP-392): the leader, or with replica.selector.class one in the consumer's rack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pybroker.metadata.image import BrokerState
from pybroker.replication.isr import Leadership

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def replica_in_rack(
    rack: str,
    fetch_offset: int,
    leader: BrokerState | None,
    leadership: Leadership,
    broker_of: Callable[[int], BrokerState | None],
) -> int | None:
    """The follower in `rack` that has most of the partition, if it has `fetch_offset`; None: stay with the leader."""
    if not rack or leader is None or leader.rack == rack:
        return None
    best: tuple[int, int] | None = None
    for follower in leadership.followers.values():
        broker = broker_of(follower.broker_id)
        if broker is None or broker.fenced or broker.rack != rack or follower.broker_id not in leadership.isr:
            continue
        if follower.log_start_offset <= fetch_offset <= follower.end_offset:
            best = max(best or (-1, -1), (follower.end_offset, follower.broker_id))
    return None if best is None else best[1]
