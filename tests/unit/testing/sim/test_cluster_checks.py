"""Each invariant of the cluster's metadata, broken once by hand."""

from __future__ import annotations

import pytest

from pybroker.base.ids import Uuid
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message
from pybroker.server.quorum.store import Entry
from pybroker.testing.sim.cluster_checks import UNCLEAN, ClusterChecks, QuorumChecks, StoredBatch
from pybroker.testing.sim.raft_checks import InvariantError

TOPIC = Uuid(b"t" * 16)
FENCE, UNFENCE = 1, -1


class Cluster:
    """Three unfenced brokers of epochs 1, 2 and 3, and a partition that all of them replicate, led by the first."""

    def __init__(self) -> None:
        self.checks = ClusterChecks()
        self.write(*(register(id_, id_) for id_ in (1, 2, 3)))
        self.write(*(change_broker(id_, UNFENCE) for id_ in (1, 2, 3)))
        partition = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[1, 2, 3],
            isr=[1, 2],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[Uuid(b"d" * 16)] * 3,
        )
        self.write(TopicRecord(name="topic", topic_id=TOPIC), partition)

    def write(self, *records: Message) -> None:
        start = self.checks.next_offset
        self.checks.committed([Entry(start + at, 1, record) for at, record in enumerate(records)])

    def publish(self, image: MetadataImage) -> None:
        self.checks.published(7, image, lambda start, end: ())


def register(broker_id: int, epoch: int, incarnation: bytes = b"i") -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(incarnation * 15 + bytes([broker_id])),
        broker_epoch=epoch,
        end_points=[],
        features=[],
        rack=None,
        log_dirs=[Uuid(b"d" * 16)],
    )


def change_broker(broker_id: int, fenced: int, epoch: int | None = None) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch or broker_id, fenced=fenced)


def change(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)


def image_at(offset: int, *records: Message) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.image(offset, 1)


def broken(text: str) -> pytest.RaisesExc[InvariantError]:
    return pytest.raises(InvariantError, match=text)


def test_a_cluster_that_keeps_the_rules() -> None:
    cluster = Cluster()
    cluster.write(change(isr=[2], leader=2), change_broker(1, FENCE))
    cluster.write(register(1, 20, b"j"), change_broker(1, UNFENCE, 20))
    cluster.write(change(isr=[2, 1]), change(leader=1))
    assert (cluster.checks.leader_changes, cluster.checks.unclean_elections, cluster.checks.fences) == (2, 0, 1)


def test_an_epoch_that_two_brokers_hold_or_that_goes_back() -> None:
    with broken("brokers 1 and 2 both hold epoch 1"):
        Cluster().write(register(2, 1, b"j"))
    with broken("broker 3 was registered with epoch 0 after 3"):
        Cluster().write(register(3, 0, b"j"))
    with broken("of epoch 3 was changed by a record for epoch 2"):
        Cluster().write(change_broker(3, FENCE, 2))


def test_a_leader_that_is_not_in_sync() -> None:
    with broken(r"leader 1 is not in its ISR \(2,\)"):
        Cluster().write(change(isr=[2]))
    with broken(r"ISR \(1, 9\) and ELR \(\) of replicas \(1, 2, 3\)"):
        Cluster().write(change(isr=[1, 9]))


def test_an_unclean_election() -> None:
    with broken("3 was made leader, but the ISR was .*, and unclean election is not allowed"):
        Cluster().write(change(isr=[3], leader=3))
    cluster = Cluster()
    cluster.write(ConfigRecord(resource_type=2, resource_name="topic", name=UNCLEAN, value="true"))
    cluster.write(change(isr=[3], leader=3))
    assert cluster.checks.unclean_elections == 1


def test_eligible_replicas_and_the_last_leader_may_lead() -> None:
    cluster = Cluster()
    cluster.write(change(isr=[], leader=-1, eligible_leader_replicas=[2], last_known_elr=[1]))
    cluster.write(change(isr=[2], leader=2, eligible_leader_replicas=[]))
    cluster.write(change(isr=[], leader=-1, last_known_elr=[2]))
    cluster.write(change(isr=[2], leader=2))
    assert cluster.checks.unclean_elections == 0


def test_a_new_replica_may_lead_when_it_completes_a_reassignment() -> None:
    """But only one that the old leader said is in sync."""
    cluster = Cluster()
    cluster.write(change(adding_replicas=[3]))
    cluster.checks.isr_asked(TOPIC, 0, 1, [1, 2, 3])
    cluster.write(change(isr=[3], leader=3, replicas=[3], adding_replicas=[]))
    assert cluster.checks.unclean_elections == 0
    cluster = Cluster()
    cluster.write(change(adding_replicas=[3]))
    cluster.checks.isr_asked(TOPIC, 0, 2, [2, 3])
    with broken("3 was made leader, but the ISR was"):
        cluster.write(change(isr=[3], leader=3, replicas=[3], adding_replicas=[]))


def topic_image(offset: int, **fields: object) -> MetadataImage:
    given = {"replicas": [1, 2, 3], "isr": [1, 2], "removing_replicas": [], "adding_replicas": [], "leader": 1}
    given |= {"leader_epoch": 4, "partition_epoch": 9, "directories": [Uuid(b"d" * 16)] * 3}
    partition = PartitionRecord(partition_id=0, topic_id=TOPIC, **(given | fields))
    return image_at(offset, TopicRecord(name="topic", topic_id=TOPIC), partition)


def test_an_isr_that_was_answered_is_in_every_later_image() -> None:
    cluster = Cluster()
    cluster.checks.isr_altered(20, TOPIC, 0, (9, 4), 1, [1, 2])
    cluster.publish(topic_image(19, partition_epoch=8, isr=[1]))
    cluster.publish(topic_image(20))
    cluster.publish(topic_image(21, partition_epoch=10, isr=[1]))
    for fields in ({"partition_epoch": 8}, {"isr": [1]}, {"leader": 2}, {"leader_epoch": 5}):
        with broken("topic-0 was answered to be"):
            cluster.publish(topic_image(20, **fields))


def test_a_registration_that_was_answered_is_in_every_later_image() -> None:
    cluster = Cluster()
    one = register(1, 20)
    cluster.checks.broker_registered(20, 1, 20, one.incarnation_id)
    cluster.publish(image_at(19))
    cluster.publish(image_at(20, one))
    cluster.publish(image_at(22, register(1, 21, b"j")))
    for records in ([], [register(1, 20, b"j")], [register(1, 19)]):
        with broken("broker 1 was registered with epoch 20 by offset 20"):
            cluster.publish(image_at(20, *records))


def test_a_reassignment_that_was_answered_is_in_every_later_image() -> None:
    cluster = Cluster()
    cluster.checks.reassignment_asked("topic", [2, 3])
    cluster.checks.reassignment_begun(20, "topic", TOPIC)
    cluster.publish(topic_image(19))
    cluster.publish(topic_image(20, removing_replicas=[1]))
    cluster.publish(topic_image(22, replicas=[3, 2], isr=[2], leader=2, directories=[Uuid(b"d" * 16)] * 2))
    with broken(r"topic-0 goes to \[1, 2, 3\], which nobody asked for"):
        cluster.publish(topic_image(20))
    cluster.checks.reassignment_asked("topic", None)
    cluster.publish(topic_image(20))


def test_an_election_of_the_preferred_leader_that_was_answered_is_committed() -> None:
    cluster = Cluster()
    with broken("topic-0: an election of the preferred leader was answered with success, but none is committed"):
        cluster.checks.preferred_elected("topic", 0)
    cluster.write(change(leader=2), change(leader=1))
    cluster.checks.preferred_elected("topic", 0)


def test_a_fenced_leader() -> None:
    with broken("topic-0 is led by 1, which is fenced"):
        Cluster().write(change_broker(1, FENCE))


def test_records_of_a_transaction_count_together_at_its_end() -> None:
    cluster = Cluster()
    cluster.write(BeginTransactionRecord(), change_broker(1, FENCE))
    cluster.write(change(isr=[2], leader=2), EndTransactionRecord())
    assert cluster.checks.brokers[1].is_fenced
    cluster.write(BeginTransactionRecord(), change_broker(2, FENCE), AbortTransactionRecord(reason=None))
    assert not cluster.checks.brokers[2].is_fenced


def test_a_topic_that_nobody_wanted_removed() -> None:
    with broken("topic topic was removed, but nobody asked for it"):
        Cluster().write(RemoveTopicRecord(topic_id=TOPIC))
    cluster = Cluster()
    cluster.checks.deletion_asked("topic")
    cluster.write(RemoveTopicRecord(topic_id=TOPIC))
    assert not cluster.checks.partitions


class TestPromises:
    def test_a_topic_that_is_not_there(self) -> None:
        cluster = Cluster()
        cluster.checks.topic_created(4, "other", Uuid(b"o" * 16), 1)
        cluster.publish(image_at(3))
        with broken("node 7: topic other, there by offset 4, is not in the image at 5"):
            cluster.publish(image_at(5))

    def test_a_topic_whose_deletion_was_asked_for_before_its_creation_was_answered(self) -> None:
        cluster = Cluster()
        cluster.checks.deletion_asked("other")
        cluster.checks.topic_created(4, "other", Uuid(b"o" * 16), 1)
        cluster.publish(image_at(5))

    def test_partitions_that_are_missing(self) -> None:
        cluster = Cluster()
        cluster.checks.topic_created(4, "topic", TOPIC, 1)
        with broken("was given 1 partitions, but has 0"):
            cluster.publish(image_at(5, TopicRecord(name="topic", topic_id=TOPIC)))

    def test_a_config_that_is_another(self) -> None:
        cluster = Cluster()
        cluster.checks.topic_created(4, "topic", TOPIC, 0)
        for value in ("1", "2"):
            cluster.checks.config_asked("topic", "retention.ms", value)
        cluster.checks.config_set(4, "topic", "retention.ms", "2")
        topic = TopicRecord(name="topic", topic_id=TOPIC)

        def shown(value: str) -> MetadataImage:
            return image_at(5, topic, ConfigRecord(resource_type=2, resource_name="topic", name="retention.ms", value=value))

        cluster.publish(shown("2"))
        cluster.publish(shown("1"))  # nobody was told what became of it
        with broken("retention.ms of topic topic is 3; expected one of"):
            cluster.publish(shown("3"))

    def test_a_topic_that_comes_back(self) -> None:
        cluster = Cluster()
        cluster.checks.topic_deleted(4, TOPIC)
        with broken("was deleted by offset 4 is in the image at 5"):
            cluster.publish(image_at(5, TopicRecord(name="topic", topic_id=TOPIC)))

    def test_producer_ids_given_twice(self) -> None:
        cluster = Cluster()
        cluster.checks.producer_ids_given(0, 1000)
        with broken("producer ids from 500 on were given a second time"):
            cluster.checks.producer_ids_given(500, 1000)


def test_an_image_that_is_not_what_is_committed() -> None:
    cluster = Cluster()
    with broken("its image at offset 7 is not what is committed"):
        cluster.publish(image_at(7))


def test_an_epoch_has_one_leader() -> None:
    checks = QuorumChecks()
    checks.announced(1, 5, 2)
    checks.announced(3, 5, 2)
    with pytest.raises(InvariantError, match="epoch 5 has two leaders, nodes 2 and 3"):
        checks.announced(3, 5, 3)


def test_logs_that_have_the_same_batch_have_the_same_before_it() -> None:
    checks = QuorumChecks()
    checks.appended(1, None, [StoredBatch(0, 1, 10), StoredBatch(3, 4, 11)])
    checks.appended(2, 1, [StoredBatch(3, 4, 11)])
    checks.appended(3, None, [StoredBatch(3, 4, 11)])
    with pytest.raises(InvariantError, match="another batch at offset 3 in epoch 4"):
        checks.appended(2, 1, [StoredBatch(3, 4, 99)])
    with pytest.raises(InvariantError, match="follows epoch 2, elsewhere 1"):
        checks.appended(2, 2, [StoredBatch(3, 4, 11)])
    with pytest.raises(InvariantError, match="epoch 4 follows 5 at 9"):
        checks.appended(2, 5, [StoredBatch(9, 4, 12)])


def test_what_is_committed_is_the_same_everywhere_and_stays() -> None:
    checks = QuorumChecks()
    checks.committed(1, [StoredBatch(0, 1, 10), StoredBatch(3, 4, 11)])
    checks.committed(2, [StoredBatch(3, 4, 11)])
    checks.truncated(2, [StoredBatch(3, 2, 7), StoredBatch(5, 4, 12)])
    with pytest.raises(InvariantError, match="the committed batch at offset 3 was of epoch 4, here it is another one, of 2"):
        checks.committed(2, [StoredBatch(3, 2, 7)])
    with pytest.raises(InvariantError, match="offset 3 of epoch 4 was cut off"):
        checks.truncated(2, [StoredBatch(3, 4, 11)])


def test_a_high_watermark_does_not_go_back() -> None:
    checks = QuorumChecks()
    checks.advanced(1, 4, 4)
    with pytest.raises(InvariantError, match="went back from 4 to 3"):
        checks.advanced(1, 4, 3)
