"""What a replica of the quorum is told at its start, and never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pybroker.raft.events import Address, ReplicaKey

METADATA_TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0


@dataclass(slots=True, frozen=True)
class QuorumSetting:
    """Timeouts are those of controller.quorum.*.ms, named as there."""

    cluster_id: str
    own: ReplicaKey
    can_vote: bool = True  # a controller; a broker only observes
    listener: str = "CONTROLLER"  # the first of controller.listener.names, over which the replicas talk
    endpoints: Mapping[str, Address] = field(default_factory=dict)  # of this replica, by listener; complete at the start
    static_voters: Mapping[int, Address] = field(default_factory=dict)
    bootstrap_servers: tuple[Address, ...] = ()
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1_048_576
    fetch_snapshot_max_bytes: int = 1_048_576
    max_wait_ms: int = 500  # of a fetch that finds nothing new
    death_grace_ms: int = 300  # pybroker.controller.quorum.death.grace.ms; 0 waits for the fetch timeout
    auto_join: bool = False
    min_kraft_version: int = 0
    max_kraft_version: int = 1
