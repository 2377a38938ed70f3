"""Elections that somebody asks for or that are due: ElectLeaders, the balance of leaders, partitions that nobody leads."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.partition_change import Election, PartitionChange, PartitionRules
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import NO_LEADER, TopicImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.partitions import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

# So many at a time; the rest follows at once, when these are written.
MAX_ELECTIONS = 1000


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(view: View, request: ElectLeadersRequest) -> Result:
    if request.election_type not in list(ElectionType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}; expected 0 or 1.")
    kind = ElectionType(request.election_type)
    rules = PartitionRules(view.image, view.setting)
    records: list[Message] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in view.image.topics.values():
            rows = [_elect(rules, topic, index, kind, records) for index in topic.partitions]
            # Asked of all, only those are told of that an election was for.
            wanted = [row for row in rows if row.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=wanted))
    else:
        wanted_of: dict[str, dict[int, None]] = {}
        for asked in request.topic_partitions:
            wanted_of.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
        for name, indexes in wanted_of.items():
            found = view.image.topics.get(name)
            rows = [_elect(rules, found, index, kind, records) for index in indexes]
            results.append(ReplicaElectionResult(topic=name, partition_result=rows))
    return Result(records, ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results))


def _elect(
    rules: PartitionRules, topic: TopicImage | None, index: int, kind: ElectionType, records: list[Message]
) -> PartitionResult:
    code, message = ErrorCode.NONE, None
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition."
    elif partition.leader == partition.replicas[0] if kind is ElectionType.PREFERRED else partition.leader != NO_LEADER:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads it."
    else:
        change = PartitionChange(rules, topic, index)
        change.election = Election.PREFERRED if kind is ElectionType.PREFERRED else Election.UNCLEAN
        record = change.record()
        if record is not None:
            records.append(record)
        if kind is ElectionType.PREFERRED:
            # What was due may be something else, such as the end of a reassignment: that is no election.
            if record is None or record.leader != (record.replicas or partition.replicas)[0]:
                code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                message = f"Its preferred leader, broker {partition.replicas[0]}, is not in sync, or fenced, or shutting down."
        elif record is None:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            message = f"None of its replicas, {list(partition.replicas)}, lives."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def balance(view: View) -> list[Message]:
    """Preferred leaders back to their partitions."""
    rules = PartitionRules(view.image, view.setting)
    return _some(rules, view.index.not_preferred.within(view.image), Election.PREFERRED)


def lead_uncleanly(view: View) -> list[Message]:
    """Leaders for partitions without one, where their topic prefers any to none."""
    rules = PartitionRules(view.image, view.setting)
    leaderless = view.index.leaderless.within(view.image)
    allowed = (one for one in leaderless if rules.of_topic(one[0]).is_unclean_allowed)
    return _some(rules, allowed, Election.UNCLEAN)


def _some(rules: PartitionRules, partitions: Iterable[tuple[TopicImage, int]], election: Election) -> list[Message]:
    records: list[Message] = []
    for topic, index in partitions:
        if len(records) == MAX_ELECTIONS:
            break
        change = PartitionChange(rules, topic, index)
        change.election = election
        record = change.record()
        if record is not None:
            records.append(record)
    return records
