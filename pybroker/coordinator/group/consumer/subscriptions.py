"""What a group reads: topics by name and by expression, whether they are still what they were, and the next group epoch.

A group remembers a hash of its topics with their partitions and racks. When the metadata changes, the next heartbeat
compares: another hash is another epoch of the group. The hash is Apache Kafka's, so that a coordinator of either kind that
takes the group over sees no change where there is none.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.base.xxh3 import xxh3_64
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.member import ConsumerMember
from pybroker.coordinator.group.consumer.records import (
    ResolvedRegex,
    group_epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
)
from pybroker.coordinator.group.consumer.topic_pattern import compile_pattern
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Result
from pybroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

# Topics that come one by one are not matched one by one.
MIN_REFRESH_MS: Final = 10_000
_TOPIC_HASH_VERSION: Final = b"\0"


class Subscribed(NamedTuple):
    """A group after a member's subscription was taken in."""

    epoch: int
    regexes: dict[str, ResolvedRegex]
    has_changed: bool  # what the member reads


def subscribe(
    now_ms: int,
    group: ConsumerGroup,
    former: ConsumerMember,
    member: ConsumerMember,
    cluster: ClusterView,
    settings: GroupSettings,
    out: Result,
) -> Subscribed:
    """Take `member` in, as it is now; `former` is what it was. Records of it, of its expressions, of a new epoch."""
    group_id = group.group_id
    if member != former:
        out.records.append(member_record(group_id, member))
    has_changed = member.topic_names != former.topic_names or (member.topic_regex or "") != (former.topic_regex or "")
    regexes, is_resolved_anew = _resolve(now_ms, group, former, member, cluster, settings, out)
    epoch = group.epoch
    if has_changed or is_resolved_anew or group.needs_refresh:
        # A member that comes back in another's place has its former self counted still.
        readers = group.readers.copy()
        readers.subtract(former.topic_names)
        readers.update(member.topic_names)
        named = {name for name, count in readers.items() if count > 0}
        metadata_hash = hash_of_topics(named.union(*(one.topics for one in regexes.values())), cluster)
        if has_changed or is_resolved_anew or metadata_hash != group.metadata_hash:
            epoch += 1
            out.records.append(group_epoch_record(group_id, epoch, metadata_hash))
            logger.info("group %s: epoch %d", group_id, epoch)
        group.refreshed_epoch = epoch
        if group.has_partition_metadata:
            out.records.append(partition_metadata_tombstone(group_id))
    return Subscribed(epoch, regexes, has_changed)


def epoch_without(group: ConsumerGroup, gone: Collection[ConsumerMember], cluster: ClusterView) -> list[CoordinatorRecord]:
    """Records of the group's next epoch without those members: expressions that nobody else has, the epoch."""
    readers, regex_readers = group.readers.copy(), group.regex_readers.copy()
    for member in gone:
        readers.subtract(member.topic_names)
        if member.topic_regex:
            regex_readers[member.topic_regex] -= 1
    unread = [regex for regex, count in regex_readers.items() if count <= 0]
    topics = {name for name, count in readers.items() if count > 0}
    topics.update(*(one.topics for regex, one in group.regexes.items() if regex not in unread))
    logger.info("group %s: epoch %d", group.group_id, group.epoch + 1)
    return [
        *[regex_tombstone(group.group_id, regex) for regex in unread],
        group_epoch_record(group.group_id, group.epoch + 1, hash_of_topics(topics, cluster)),
    ]


# Expressions.


def _resolve(
    now_ms: int,
    group: ConsumerGroup,
    former: ConsumerMember,
    member: ConsumerMember,
    cluster: ClusterView,
    settings: GroupSettings,
    out: Result,
) -> tuple[dict[str, ResolvedRegex], bool]:
    """The expressions of the group with `member` in it, and whether any of them matches other topics than before."""
    old, new = former.topic_regex or "", member.topic_regex or ""
    if not group.regex_readers and not new:
        return {}, False
    wanted = group.regex_readers.copy()
    regexes = dict(group.regexes)
    if old != new:
        if old:
            wanted[old] -= 1
            if wanted[old] <= 0:
                del wanted[old]
                regexes.pop(old, None)
                out.records.append(regex_tombstone(group.group_id, old))
        if new:
            _check(new)
            wanted[new] += 1
    since_ms = now_ms - max((one.timestamp_ms for one in regexes.values()), default=0)
    has_new_topics = any(one.version < group.new_topics_version for one in regexes.values())
    # A clock that was set back is not waited for.
    is_due = since_ms < 0 or (since_ms > MIN_REFRESH_MS and (has_new_topics or since_ms > settings.regex_refresh_interval_ms))
    stale = [regex for regex in wanted if is_due or regex not in regexes]
    is_anew = False
    for regex in stale:
        known = regexes.get(regex)
        topics = _matching(regex, cluster.topic_names(), None if known is None else known.topics, is_new=regex == new != old)
        is_anew |= regex not in regexes or topics != regexes[regex].topics
        regexes[regex] = ResolvedRegex(topics, cluster.version, now_ms)
        out.records.append(regex_record(group.group_id, regex, regexes[regex]))
    return regexes, is_anew


_compiled = lru_cache(maxsize=64)(compile_pattern)


def _check(regex: str) -> None:
    try:
        _compiled(regex)
    except ValueError as error:
        raise _invalid(regex, error) from error


def _matching(regex: str, names: Iterable[str], known: frozenset[str] | None, *, is_new: bool) -> frozenset[str]:
    """`known` are those that matched before; an expression that is new in the request is refused if it cannot be used."""
    try:
        return frozenset(_compiled(regex).matching(names))
    except ValueError as error:
        if is_new:
            raise _invalid(regex, error) from error
        # Another release took it for one, or there are many more topics by now.
        logger.error("the expression %r of a consumer group cannot be used: %s", regex, error)
        return frozenset() if known is None else known


def _invalid(regex: str, error: ValueError) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
    )


# Topics.


def topics_read_by(member: ConsumerMember, regexes: dict[str, ResolvedRegex]) -> frozenset[str]:
    resolved = regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics


def topic_ids(names: Iterable[str], cluster: ClusterView) -> frozenset[Uuid]:
    """Of those that exist."""
    return frozenset([topic.topic_id for name in names if (topic := cluster.topic(name)) is not None])


def hash_of_topics(names: Iterable[str], cluster: ClusterView) -> int:
    """As an int64; 0 if none of them exists."""
    hashes = [_hash_of_topic(name, cluster) for name in sorted(names) if cluster.topic(name) is not None]
    if not hashes:
        return 0
    hashed = xxh3_64(b"".join([one.to_bytes(8, "little") for one in hashes]))
    return hashed - (1 << 64) if hashed >= 1 << 63 else hashed


def _hash_of_topic(name: str, cluster: ClusterView) -> int:
    topic = cluster.topic(name)
    assert topic is not None
    parts = [_TOPIC_HASH_VERSION, topic.topic_id[7::-1], topic.topic_id[:7:-1], _text(name), _int32(topic.partitions)]
    for partition, racks in enumerate(cluster.partition_racks(name)):
        parts.append(_int32(partition))
        parts += [_int32(_java_length(rack)) + _text(rack) for rack in racks]
    return xxh3_64(b"".join(parts))


_int32 = struct.Struct("<i").pack


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text(text: str) -> bytes:
    """Two bytes for each character, then how many they are."""
    return text.encode("utf-16-le", "surrogatepass") + _int32(_java_length(text))
