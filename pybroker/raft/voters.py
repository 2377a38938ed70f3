"""Sets of voters, as values: who may vote, where it is reached, and which kraft.version it understands.

A voter without a directory id (kraft.version 0) is any replica of its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.internal.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from pybroker.raft.events import Address, ReplicaKey

Endpoints = tuple[tuple[str, Address], ...]  # (listener, address), by listener: in whatever order they came, they compare


def endpoints(pairs: Iterable[tuple[str, Address]]) -> Endpoints:
    return tuple(sorted(pairs))


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: Endpoints
    min_version: int = 0
    max_version: int = 0

    def is_replica(self, key: ReplicaKey) -> bool:
        own = self.key
        return own.id == key.id and (own.directory_id == ZERO_UUID or own.directory_id == key.directory_id)


class VoterSet:
    """Not changed after it is made."""

    __slots__ = ("by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.by_id: dict[int, Voter] = {voter.key.id: voter for voter in voters}

    @classmethod
    def of_addresses(cls, addresses: Mapping[int, Address], listener: str) -> VoterSet:
        return cls(Voter(ReplicaKey(id_), ((listener, address),)) for id_, address in sorted(addresses.items()))

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        return cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                endpoints((at.name, Address(at.host, at.port)) for at in voter.endpoints),
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )

    def record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[Endpoint(name=name, host=at.host, port=at.port) for name, at in voter.endpoints],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_version, max_supported_version=voter.max_version
                    ),
                )
                for voter in self
            ],
        )

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.by_id == other.by_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({list(self.by_id.values())})"

    @property
    def majority(self) -> int:
        return len(self.by_id) // 2 + 1

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.id)
        return voter is not None and voter.is_replica(key)

    def endpoints_of(self, id_: int) -> Endpoints:
        voter = self.by_id.get(id_)
        return () if voter is None else voter.endpoints

    def with_voter(self, voter: Voter) -> VoterSet:
        """With `voter`, in place of the one of the same node if there is one."""
        return VoterSet((self.by_id | {voter.key.id: voter}).values())

    def without(self, id_: int) -> VoterSet:
        return VoterSet(voter for voter in self if voter.key.id != id_)


def address_at(known: Endpoints, listener: str) -> Address | None:
    for name, address in known:
        if name == listener:
            return address
    return None
