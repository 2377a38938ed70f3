"""What becomes of partitions when brokers come and go.

The records are in an order in which any first part of them leaves the cluster well: a broker leaves its partitions before it
is fenced, and is unfenced before it leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.features import is_elr_enabled
from pybroker.metadata.controller.partition_change import Election, PartitionChange, PartitionRules
from pybroker.metadata.controller.view import View
from pybroker.metadata.delta import FENCE, UNFENCE
from pybroker.metadata.image import BrokerState, MetadataImage, TopicImage
from pybroker.protocol.internal.metadata_log import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from pybroker.protocol.message import Message

Located = Iterable[tuple[TopicImage, int]]


def fenced(view: View, broker_ids: Collection[int]) -> list[Message]:
    """All of them at once: what one led must not pass to another who is just as dead."""
    rules = PartitionRules(view.image, view.setting, leaving=broker_ids)
    records: list[Message] = [*changes(rules, _in_sync(view, broker_ids), leaving=broker_ids)]
    for broker_id in broker_ids:
        epoch = view.image.brokers[broker_id].epoch
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=FENCE))
    return records


def unfenced(
    view: View, image: MetadataImage, broker: BrokerState, settled: Collection[tuple[Uuid, int]] = ()
) -> list[Message]:
    """It may lead what nobody leads, but for the partitions that are settled otherwise. `image` has its directories."""
    records: list[Message] = [BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)]
    rules = PartitionRules(image, view.setting, coming=broker.id)
    leaderless = view.index.leaderless.within(image)
    records += changes(rules, (one for one in leaderless if (one[0].topic_id, one[1]) not in settled))
    return records


def shutting_down(view: View, broker: BrokerState) -> list[Message]:
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1))
    rules = PartitionRules(view.image, view.setting, leaving=(broker.id,))
    records += changes(rules, view.index.in_sync(broker.id).within(view.image), leaving=(broker.id,))
    return records


def unregistered(view: View, broker: BrokerState) -> list[Message]:
    rules = PartitionRules(view.image, view.setting, leaving=(broker.id,))
    records: list[Message] = [*changes(rules, _anywhere(view, broker.id), leaving=(broker.id,))]
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return records


def restarted(view: View, broker_id: int, *, is_clean: bool) -> list[PartitionChangeRecord]:
    """The last incarnation is gone. If it did not stop cleanly, what it had may be lost: it is not even eligible."""
    rules = PartitionRules(view.image, view.setting, leaving=(broker_id,))
    if is_clean or not is_elr_enabled(view.image):
        return changes(rules, view.index.in_sync(broker_id).within(view.image), leaving=(broker_id,))
    return changes(rules, _anywhere(view, broker_id), leaving=(broker_id,), unclean_shutdowns=(broker_id,))


def changes(
    rules: PartitionRules, partitions: Located, *, leaving: Collection[int] = (), unclean_shutdowns: Collection[int] = ()
) -> list[PartitionChangeRecord]:
    """What changes when `leaving` are in sync no more, and with every partition looked at anew."""
    records: list[PartitionChangeRecord] = []
    for topic, index in partitions:
        change = PartitionChange(rules, topic, index)
        change.isr = tuple(one for one in change.isr if one not in leaving)
        change.unclean_shutdowns = unclean_shutdowns
        if rules.of_topic(topic).is_unclean_allowed:
            change.election = Election.UNCLEAN
        record = change.record()
        if record is not None:
            records.append(record)
    return records


def _in_sync(view: View, broker_ids: Collection[int]) -> Iterator[tuple[TopicImage, int]]:
    """Every partition with one of them in sync, once."""
    seen: set[int] = set()
    for broker_id in broker_ids:
        for topic, index in view.index.in_sync(broker_id).within(view.image):
            if seen.isdisjoint(topic.partitions[index].isr):
                yield topic, index
        seen.add(broker_id)


def _anywhere(view: View, broker_id: int) -> Iterator[tuple[TopicImage, int]]:
    """In sync or eligible: no replica is both."""
    yield from view.index.in_sync(broker_id).within(view.image)
    yield from view.index.eligible(broker_id).within(view.image)
