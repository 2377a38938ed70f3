from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from support.requests import AskedRequest
from unit.server.clusters import Clock

from pybroker.base.address import Address
from pybroker.client.request_error import Failure, RequestError
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from pybroker.protocol.messages.metadata import MetadataRequest
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from pybroker.protocol.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse
from pybroker.protocol.messages.topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pybroker.protocol.schema import Versions
from pybroker.security.principals import Principal
from pybroker.server.controller_client import ControllerClient, refusal_of
from pybroker.server.envelopes import unwrap, wrapped_answer
from pybroker.server.forwarding import Forwarding

ONE, TWO = (1, Address("one", 9093)), (2, Address("two", 9093))
IDS = AllocateProducerIdsRequest(broker_id=4, broker_epoch=9)
BLOCK = AllocateProducerIdsResponse(error_code=0, producer_id_start=1000, producer_id_len=1000)
NOT_THERE = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER, producer_id_start=-1, producer_id_len=0)
TOPIC = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
CREATE = CreateTopicsRequest(topics=[TOPIC], timeout_ms=5000)
CREATED = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=0, error_message=None)])


class Sent(NamedTuple):
    address: Address
    request: Message
    timeout_ms: int
    done: Callable[[Message | RequestError], None]
    lane: str
    versions: Versions | None


class Nodes:
    """In place of a NodeClient: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def send(
        self,
        address: Address,
        request: Message,
        timeout_ms: int,
        done: Callable[[Message | RequestError], None],
        *,
        lane: str = "",
        versions: Versions | None = None,
    ) -> None:
        self.sent.append(Sent(address, request, timeout_ms, done, lane, versions))

    def take(self) -> Sent:
        (sent,) = self.sent
        self.sent.clear()
        return sent


class Broker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.nodes = Nodes()
        self.active: tuple[int, Address] | None = ONE
        self.answers: list[Any] = []
        self.channel = ControllerClient(
            self.nodes,
            lambda: self.active,
            self.clock.timer,
            self.clock.now_ms,
            request_timeout_ms=30_000,
            principal_of=lambda request: Principal("User", "alice"),
        )

    def submit(self, request: Message = IDS, version: int = 0) -> None:
        self.channel.submit(request, version, self.answers.append)

    def forward(self, message: Message = CREATE, version: int = 7) -> AskedRequest:
        request = AskedRequest(message, version)
        request.correlation_id = 77  # type: ignore[attr-defined]
        self.channel.forward(cast(Request, request), request.message, self.answers.append)
        return request

    def fail(self, failure: Failure) -> None:
        sent = self.nodes.take()
        sent.done(RequestError(failure, sent.address, "as the test wants it"))


@pytest.fixture
def broker() -> Broker:
    return Broker()


class TestSubmit:
    def test_the_active_controller_is_asked_and_its_answer_given(self, broker: Broker) -> None:
        broker.submit()
        sent = broker.nodes.take()
        assert (sent.address, sent.request, sent.timeout_ms) == (ONE[1], IDS, 30_000)
        sent.done(BLOCK)
        assert broker.answers == [BLOCK]

    def test_an_older_controller_is_asked_in_an_older_version(self, broker: Broker) -> None:
        broker.submit(CREATE, 7)
        assert broker.nodes.take().versions == Versions(2, 7)

    def test_requests_of_different_kinds_go_different_ways(self, broker: Broker) -> None:
        broker.submit()
        broker.submit(AlterPartitionRequest(broker_id=4, broker_epoch=9, topics=[]), 3)
        broker.forward()
        assert [sent.lane for sent in broker.nodes.sent] == ["controller", "alter-partition", "forwarding"]

    def test_one_that_is_not_active_any_more_is_followed_by_the_one_that_is(self, broker: Broker) -> None:
        broker.submit()
        broker.active = TWO
        broker.nodes.take().done(NOT_THERE)
        assert not broker.nodes.sent
        broker.clock.advance(25)
        sent = broker.nodes.take()
        assert sent.address == TWO[1]
        sent.done(BLOCK)
        assert broker.answers == [BLOCK]

    @pytest.mark.parametrize("failure", [Failure.DISCONNECTED, Failure.NOT_CONNECTED, Failure.TIMED_OUT, Failure.REFUSED])
    def test_without_an_answer_it_is_asked_again_after_growing_pauses(self, broker: Broker, failure: Failure) -> None:
        broker.submit()
        for pause_ms in (25, 50, 100, 200, 200):
            broker.fail(failure)
            broker.clock.advance(pause_ms - 1)
            assert not broker.nodes.sent
            broker.clock.advance(1)
        broker.nodes.take().done(BLOCK)
        assert broker.answers == [BLOCK]

    def test_while_there_is_no_controller_it_waits_for_one(self, broker: Broker) -> None:
        broker.active = None
        broker.submit()
        broker.clock.advance(1000)
        assert not broker.nodes.sent
        broker.active = TWO
        broker.channel.controller_changed()
        assert broker.nodes.take().address == TWO[1]
        broker.clock.advance(1000)
        assert not broker.nodes.sent, "what was waited for has come"

    def test_when_the_time_is_up_it_is_refused(self, broker: Broker) -> None:
        broker.active = None
        broker.submit()
        broker.submit(CREATE, 7)
        for _ in range(600):
            broker.clock.advance(100)
        ids, topics = broker.answers
        assert ids.error_code == ErrorCode.REQUEST_TIMED_OUT
        (topic,) = topics.topics
        assert (topic.name, topic.error_code) == ("t", ErrorCode.REQUEST_TIMED_OUT)
        assert topic.error_message == "The controller has not answered in time: no controller is active."

    def test_an_attempt_takes_no_longer_than_there_is_time(self, broker: Broker) -> None:
        broker.submit()
        broker.clock.advance(45_000)
        broker.fail(Failure.TIMED_OUT)
        broker.clock.advance(25)
        assert broker.nodes.take().timeout_ms == 14_975

    def test_a_controller_that_does_not_understand_it_is_not_asked_again(self, broker: Broker) -> None:
        broker.submit()
        broker.fail(Failure.UNSUPPORTED_VERSION)
        assert broker.answers[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        broker.clock.advance(1000)
        assert not broker.nodes.sent

    def test_what_has_no_refusal_of_its_own_is_refused_as_a_whole(self, broker: Broker) -> None:
        broker.submit(AlterPartitionRequest(broker_id=4, broker_epoch=9, topics=[]), 3)
        broker.fail(Failure.UNSUPPORTED_VERSION)
        (answer,) = broker.answers
        assert isinstance(answer, AlterPartitionResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_a_node_that_stops_refuses_what_waits_and_what_comes(self, broker: Broker) -> None:
        broker.submit()
        sent = broker.nodes.take()
        broker.active = None
        broker.submit()
        broker.channel.stop()
        assert len(broker.answers) == 1
        sent.done(RequestError(Failure.DISCONNECTED, ONE[1], "this node stops"))
        broker.submit()
        assert [one.error_code for one in broker.answers] == [ErrorCode.NOT_CONTROLLER] * 3


class TestAsk:
    HEARTBEAT = BrokerHeartbeatRequest(broker_id=4, current_metadata_offset=0, want_fence=False, want_shut_down=False)

    def test_it_is_asked_once(self, broker: Broker) -> None:
        answer = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER, should_shut_down=False)
        broker.channel.ask(self.HEARTBEAT, 9000, broker.answers.append)
        sent = broker.nodes.take()
        assert (sent.lane, sent.timeout_ms) == ("heartbeat", 9000)
        sent.done(answer)
        broker.channel.ask(self.HEARTBEAT, 9000, broker.answers.append)
        broker.fail(Failure.DISCONNECTED)
        assert broker.answers == [answer, None]
        broker.clock.advance(10_000)
        assert not broker.nodes.sent

    def test_without_a_controller_there_is_no_answer(self, broker: Broker) -> None:
        broker.active = None
        broker.channel.ask(self.HEARTBEAT, 9000, broker.answers.append)
        assert broker.answers == [None]


class TestForward:
    def take(self, broker: Broker) -> tuple[Sent, EnvelopeRequest]:
        sent = broker.nodes.take()
        assert isinstance(sent.request, EnvelopeRequest)
        return sent, sent.request

    def test_a_clients_request_goes_in_an_envelope_with_who_it_is(self, broker: Broker) -> None:
        broker.forward()
        sent, envelope = self.take(broker)
        forwarded = unwrap(envelope)
        assert (forwarded.client_id, forwarded.correlation_id, forwarded.version) == ("test", 77, 7)
        assert (str(forwarded.principal), forwarded.host) == ("User:alice", "127.0.0.1")
        sent.done(wrapped_answer(forwarded, CREATED))
        assert broker.answers == [CREATED]

    def test_an_envelope_to_the_wrong_controller_is_sent_to_another(self, broker: Broker) -> None:
        broker.forward()
        sent, _ = self.take(broker)
        sent.done(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        broker.active = TWO
        broker.channel.controller_changed()
        assert self.take(broker)[0].address == TWO[1]

    def test_a_controller_that_does_not_understand_what_is_inside_makes_the_client_connect_anew(self, broker: Broker) -> None:
        broker.forward()
        self.take(broker)[0].done(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        assert broker.answers == [None]

    @pytest.mark.parametrize(
        "response",
        [
            EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            EnvelopeResponse(error_code=0, response_data=None),
            EnvelopeResponse(error_code=0, response_data=struct.pack(">i", 77)),
            EnvelopeResponse(error_code=0, response_data=struct.pack(">iB", 78, 0) + CREATED.encode(7)),
        ],
    )
    def test_any_other_trouble_between_the_nodes_is_a_server_error_to_the_client(
        self, broker: Broker, response: EnvelopeResponse
    ) -> None:
        broker.forward()
        self.take(broker)[0].done(response)
        (topic,) = broker.answers[0].topics
        assert topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_a_controller_without_envelopes_is_a_server_error_to_the_client(self, broker: Broker) -> None:
        broker.forward()
        broker.fail(Failure.UNSUPPORTED_VERSION)
        (topic,) = broker.answers[0].topics
        assert topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_forwarding_closes_the_connection_of_a_client_that_has_to_connect_anew(self, broker: Broker) -> None:
        request = AskedRequest(CREATE, 7)
        request.correlation_id = 77  # type: ignore[attr-defined]
        forwarding = Forwarding(broker.channel, broker.clock.timer, broker.clock.now_ms, on_behalf=broker.channel.forward)
        forwarding.forward(cast(Request, request), CREATE, 5000, lambda: CREATED)
        self.take(broker)[0].done(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        assert request.close_reason is not None
        broker.clock.advance(10_000)
        assert not request.answers


class TestRefusals:
    """Of requests that are not the controller's own, but the quorum's."""

    def test_they_say_why_where_the_version_has_a_place_for_it(self) -> None:
        request = DescribeQuorumRequest(topics=[])
        texts = []
        for version in (1, 2):
            refusal = refusal_of(request, version, ErrorCode.REQUEST_TIMED_OUT, "why")
            assert isinstance(refusal, DescribeQuorumResponse)
            assert DescribeQuorumResponse.decode(version, refusal.encode(version)).error_code == ErrorCode.REQUEST_TIMED_OUT
            texts.append(refusal.error_message)
        assert texts == ["", "why"]

    def test_where_there_is_no_place_at_all_there_is_none(self) -> None:
        assert refusal_of(MetadataRequest(topics=None), 9, ErrorCode.REQUEST_TIMED_OUT, "why") is None

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_an_election_is_refused_in_its_rows_where_there_is_no_place_for_all(self, version: int) -> None:
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=0)
        refusal = refusal_of(request, version, ErrorCode.REQUEST_TIMED_OUT, "why")
        assert isinstance(refusal, ElectLeadersResponse)
        found = ElectLeadersResponse.decode(version, refusal.encode(version))
        assert found.replica_election_results[0].partition_result[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert found.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else ErrorCode.NONE)
