"""What clients and brokers ask of the cluster while it is in trouble, and what may be expected after an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster, partitions, topics
from pybroker.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pybroker.testing.sim.cluster_checks import UNCLEAN, ClusterChecks
from pybroker.testing.sim.cluster_node import ClusterNode

CONFIG_KEY: Final = "retention.ms"
REQUEST_TIMEOUT_MS: Final = 2_000


class ClusterWorkload:
    def __init__(
        self,
        random: Random,
        checks: ClusterChecks,
        nodes: Mapping[int, ClusterNode],
        brokers: Sequence[int],
        ask: Callable[[Message, bool], None],
    ) -> None:
        """`ask` sends a request to a controller: to the active one for certain, or only most likely."""
        self.answers = 0
        self._random = random
        self._checks = checks
        self._nodes = nodes
        self._brokers = brokers
        self._ask = ask
        self._next_topic = 0
        self._next_value = 1_000

    @property
    def last_topic(self) -> str:
        return f"topic-{self._next_topic - 1}"

    def answered(self, node: ClusterNode, request: Message, response: Message) -> None:
        """The controller of the node answered: what it granted is true from the image on that it has now."""
        offset, checks = node.image.offset, self._checks
        match request, response:
            case topics.CreateTopicsRequest(), topics.CreateTopicsResponse():
                for created in response.topics:
                    if not created.error_code:
                        self.answers += 1
                        checks.topic_created(offset, created.name, created.topic_id, created.num_partitions)
            case topics.CreatePartitionsRequest(), topics.CreatePartitionsResponse():
                for asked, grown in zip(request.topics, response.results, strict=True):
                    if not grown.error_code:
                        self.answers += 1
                        checks.partitions_created(offset, asked.name, asked.count)
            case topics.DeleteTopicsRequest(), topics.DeleteTopicsResponse():
                for gone in response.responses:
                    if not gone.error_code:
                        self.answers += 1
                        checks.topic_deleted(offset, gone.topic_id)
            case partitions.AlterPartitionRequest(), partitions.AlterPartitionResponse() if not response.error_code:
                for topic in response.topics:
                    for state in topic.partitions:
                        if not state.error_code:
                            self.answers += 1
                            epochs = (state.partition_epoch, state.leader_epoch)
                            checks.isr_altered(
                                offset, topic.topic_id, state.partition_index, epochs, state.leader_id, state.isr
                            )
            case partitions.AlterPartitionReassignmentsRequest(), partitions.AlterPartitionReassignmentsResponse():
                self._reassigned(offset, node, request, response)
            case partitions.ElectLeadersRequest(), partitions.ElectLeadersResponse() if not response.error_code:
                for elected in response.replica_election_results:
                    for result in elected.partition_result:
                        if not result.error_code:
                            self.answers += 1
                            checks.preferred_elected(elected.topic, result.partition_id)
            case cluster.BrokerRegistrationRequest(), cluster.BrokerRegistrationResponse() if not response.error_code:
                checks.broker_registered(offset, request.broker_id, response.broker_epoch, request.incarnation_id)
            case AllocateProducerIdsRequest(), AllocateProducerIdsResponse() if not response.error_code:
                self.answers += 1
                checks.producer_ids_given(response.producer_id_start, response.producer_id_len)
            case IncrementalAlterConfigsRequest(), IncrementalAlterConfigsResponse():
                change = request.resources[0]
                row = change.configs[0]
                assert row.value is not None
                if not response.responses[0].error_code:
                    self.answers += 1
                    checks.config_set(offset, change.resource_name, row.name, row.value)
                elif response.responses[0].error_code != ErrorCode.NOT_CONTROLLER:
                    checks.config_failed(change.resource_name, row.name, row.value)

    def _reassigned(
        self,
        offset: int,
        node: ClusterNode,
        request: partitions.AlterPartitionReassignmentsRequest,
        response: partitions.AlterPartitionReassignmentsResponse,
    ) -> None:
        for asked, done in zip(request.topics, response.responses, strict=False):
            topic = node.image.topics.get(asked.name)
            if not done.partitions[0].error_code and asked.partitions[0].replicas is not None and topic is not None:
                self.answers += 1
                self._checks.reassignment_begun(offset, asked.name, topic.topic_id)

    def _some_topic(self) -> str | None:
        names = list(self._checks.names.values())
        return self._random.choice(names) if names else None

    def create_topic(self, *, is_careful: bool = False) -> None:
        random = self._random
        name = f"topic-{self._next_topic}"
        self._next_topic += 1
        factor = 1 if is_careful else random.randint(1, min(3, len(self._brokers)))
        configs = []
        if random.random() < 0.3:
            configs.append(topics.CreatableTopicConfig(name=UNCLEAN, value="true"))
        topic = topics.CreatableTopic(
            name=name, num_partitions=random.randint(1, 4), replication_factor=factor, assignments=[], configs=configs
        )
        self._ask(topics.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS), is_careful)

    def create_partitions(self) -> None:
        name = self._some_topic()
        if name is not None:
            count = 4 + self._random.randrange(4)
            topic = topics.CreatePartitionsTopic(name=name, count=count, assignments=None)
            self._ask(topics.CreatePartitionsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False), False)

    def delete_topic(self) -> None:
        name = self._some_topic()
        if name is not None:
            self._checks.deletion_asked(name)
            topic = topics.DeleteTopicState(name=name, topic_id=ZERO_UUID)
            self._ask(topics.DeleteTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS), False)

    def change_config(self) -> None:
        name = self._some_topic()
        if name is None:
            return
        self._next_value += 1
        value = str(self._next_value)
        row = IncrementalAlterConfigsRequestAlterableConfig(name=CONFIG_KEY, config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=name, configs=[row]
        )
        self._checks.config_asked(name, CONFIG_KEY, value)
        self._ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), False)

    def change_isr(self) -> None:
        """A leader says who is in sync with it, as its own metadata make it believe: some that are, some that come and go."""
        leaders = [node for node in self._nodes.values() if node.broker is not None and node.is_up and not node.is_paused]
        if not leaders:
            return
        leader = self._random.choice(leaders)
        led = [
            (topic, index, state)
            for topic in leader.image.topics.values()
            for index, state in topic.partitions.items()
            if state.leader == leader.node_id
        ]
        if not led or leader.broker is None:
            return
        topic, index, state = self._random.choice(led)
        others = [id_ for id_ in state.replicas if id_ != leader.node_id and self._random.random() < 0.7]
        epochs = {id_: known.epoch for id_, known in leader.image.brokers.items()}
        isr = [
            partitions.BrokerState(broker_id=id_, broker_epoch=epochs.get(id_, -1))
            for id_ in state.replicas
            if id_ == leader.node_id or id_ in others
        ]
        row = partitions.AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=isr,
            leader_recovery_state=0,
            partition_epoch=state.partition_epoch,
        )
        request = partitions.AlterPartitionRequest(
            broker_id=leader.node_id,
            broker_epoch=leader.broker.broker_epoch,
            topics=[partitions.AlterPartitionRequestTopicData(topic_id=topic.topic_id, partitions=[row])],
        )
        self._checks.isr_asked(topic.topic_id, index, leader.node_id, [one.broker_id for one in isr])
        leader.act(leader.ask_controller, request, REQUEST_TIMEOUT_MS, lambda answer: None)

    def elect_preferred(self) -> None:
        self._ask(partitions.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=REQUEST_TIMEOUT_MS), False)

    def reassign(self) -> None:
        name = self._some_topic()
        if name is None:
            return
        replicas = self._random.sample(self._brokers, self._random.randint(1, min(3, len(self._brokers))))
        wish = replicas if self._random.random() < 0.8 else None
        self._checks.reassignment_asked(name, wish)
        row = partitions.ReassignablePartition(partition_index=0, replicas=wish)
        topic = partitions.ReassignableTopic(name=name, partitions=[row])
        self._ask(partitions.AlterPartitionReassignmentsRequest(topics=[topic]), False)

    def allocate_producer_ids(self) -> None:
        node = self._nodes[self._random.choice(self._brokers)]
        if node.is_up and not node.is_paused and node.broker is not None:
            request = AllocateProducerIdsRequest(broker_id=node.node_id, broker_epoch=node.broker.broker_epoch)
            node.act(node.ask_controller, request, REQUEST_TIMEOUT_MS, lambda answer: None)
