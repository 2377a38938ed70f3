"""Our side of a conversation with Apache Kafka's controller: registration, heartbeats, controlled shutdown, envelopes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.broker_process import CLUSTER_ID, NODE_ID
from support.requests import AskedRequest
from support.waiting import wait_until

from pybroker.base.address import Address
from pybroker.base.ids import Uuid
from pybroker.client.node_client import NodeClient
from pybroker.client.request_error import Failure, RequestError
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import EnvelopeRequest, EnvelopeResponse, Feature, Listener
from pybroker.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pybroker.security.principals import Principal
from pybroker.server.broker_lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    ControlledShutdownRequested,
    DeadlinePassed,
    Event,
    LifecycleSettings,
    MetadataPublished,
    Recovered,
    RequestFailed,
    ResponseReceived,
    SendToController,
    Started,
    StopBroker,
)
from pybroker.server.controller_client import ControllerClient
from pybroker.server.envelopes import wrap
from pybroker.server.timer_thread import TimerThread

BROKER_ID = 7
TIMEOUT_S = 30.0
FEATURES = (
    ("metadata.version", 7, 99),
    ("kraft.version", 0, 1),
    ("group.version", 0, 9),
    ("transaction.version", 0, 9),
    ("share.version", 0, 9),
    ("streams.version", 0, 9),
    ("eligible.leader.replicas.version", 0, 9),
)


class Our:
    """A broker's conversation with the controller; time passes as the machine wants it, but answers are real."""

    def __init__(self, client: NodeClient, controller: Address) -> None:
        self._client = client
        self._controller = controller
        identity = BrokerIdentity(
            broker_id=BROKER_ID,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(b"incarnation of 7"),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high) for name, low, high in FEATURES
            ],
            rack="of ours",
            log_dirs=[Uuid(b"a log directory!")],
        )
        settings = LifecycleSettings(2000, 9000, 60_000, 30_000)
        self.machine = BrokerLifecycle(identity, settings, draw_below=lambda limit: 0)
        self.now_ms = 0

    def tell(self, event: Event) -> None:
        for effect in self.machine.step(self.now_ms, event):
            assert not isinstance(effect, StopBroker), effect
            if isinstance(effect, SendToController):
                answer = ask(self._client, self._controller, effect.message)
                if isinstance(answer, RequestError):
                    self.tell(RequestFailed(effect.request_id, str(answer)))
                else:
                    self.tell(ResponseReceived(effect.request_id, answer))

    def live_until(self, state: BrokerState) -> None:
        for _ in range(1000):
            if self.machine.state is state:
                return
            assert self.machine.deadline_ms is not None
            self.now_ms = self.machine.deadline_ms
            self.tell(DeadlinePassed())
        raise AssertionError(f"still {self.machine.state.name}, not {state.name}")


def ask(client: NodeClient, address: Address, request: Message) -> Any:
    outcomes: list[Message | RequestError] = []
    client.send(address, request, 30_000, outcomes.append)
    return wait_until(lambda: outcomes, TIMEOUT_S, lambda: f"no answer to {request}")[0]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBroker]:
    with ApacheBroker(tmp_path_factory.mktemp("apache-controller")) as broker:
        yield broker


@pytest.fixture
def client() -> Iterator[NodeClient]:
    client = NodeClient(client_id=str(BROKER_ID))
    client.start()
    yield client
    client.stop()


@pytest.fixture
def controller(apache: ApacheBroker) -> Address:
    rows = (apache.directory / "server.properties").read_text().splitlines()
    voters = dict(row.partition("=")[::2] for row in rows)["controller.quorum.voters"]
    host, _, port = voters.partition("@")[2].rpartition(":")
    return Address(host, int(port))


def described(**more: Any) -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1, **more)


def brokers_of(client: NodeClient, apache: ApacheBroker) -> dict[int, tuple[str | None, bool]]:
    """By id: the rack, and whether it is fenced."""
    host, _, port = apache.bootstrap.rpartition(":")
    response = ask(client, Address(host, int(port)), described(include_fenced_brokers=True))
    assert isinstance(response, DescribeClusterResponse), response
    return {one.broker_id: (one.rack, one.is_fenced) for one in response.brokers}


def test_a_broker_joins_is_unfenced_and_leaves(apache: ApacheBroker, client: NodeClient, controller: Address) -> None:
    our = Our(client, controller)
    our.tell(Started())
    assert our.machine.broker_epoch >= 0
    our.tell(MetadataPublished(1 << 40))
    our.live_until(BrokerState.RECOVERY)

    def seen() -> tuple[str | None, bool] | None:
        return brokers_of(client, apache).get(BROKER_ID)

    wait_until(lambda: seen() == ("of ours", True), TIMEOUT_S, lambda: str(seen()))
    our.tell(Recovered())
    our.live_until(BrokerState.RUNNING)
    wait_until(lambda: seen() == ("of ours", False), TIMEOUT_S, lambda: str(seen()))
    our.tell(ControlledShutdownRequested())
    our.live_until(BrokerState.SHUTTING_DOWN)
    # Nothing is heard of it any more: the controller fences it.
    wait_until(lambda: seen() == ("of ours", True), TIMEOUT_S, lambda: str(seen()))


@pytest.fixture
def channel(client: NodeClient, controller: Address) -> Iterator[ControllerClient]:
    timer = TimerThread()
    timer.start()
    yield ControllerClient(
        client,
        lambda: (NODE_ID, controller),
        timer,
        timer.now_ms,
        request_timeout_ms=30_000,
        principal_of=lambda request: Principal("User", "alice"),
    )
    timer.stop()


@pytest.mark.parametrize("version", range(2, 8))
def test_a_clients_request_is_decided_in_an_envelope(apache: ApacheBroker, channel: ControllerClient, version: int) -> None:
    name = f"forwarded-v{version}"
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
    answers: list[Message | None] = []
    for count in (1, 2):
        request: Any = AskedRequest(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
        request.correlation_id = 1234
        channel.forward(request, request.message, answers.append)
        wait_until(lambda: len(answers) == count, TIMEOUT_S, lambda: f"no answer {count}")  # noqa: B023
    codes = []
    for answer in answers:
        assert isinstance(answer, CreateTopicsResponse), answer
        codes += [(one.name, one.error_code) for one in answer.topics]
    assert codes == [(name, ErrorCode.NONE), (name, ErrorCode.TOPIC_ALREADY_EXISTS)]


def test_a_request_of_the_broker_itself_goes_directly(channel: ControllerClient) -> None:
    answers: list[Message] = []
    # Of a broker that is not registered: the controller understood who asks.
    channel.submit(AllocateProducerIdsRequest(broker_id=99, broker_epoch=5), 0, answers.append)
    (answer,) = wait_until(lambda: answers, TIMEOUT_S, lambda: "no answer")
    assert isinstance(answer, AllocateProducerIdsResponse)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def envelope(**changes: Any) -> EnvelopeRequest:
    topic = CreatableTopic(name="never", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = wrap(CreateTopicsRequest(topics=[topic], timeout_ms=1), 7, 1, "x", Principal("User", "alice"), "127.0.0.1")
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_principal": b"\0\7x"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"12345"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": bytes.fromhex("0013 0063 00000001 ffff 00")}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": bytes.fromhex("0003 000c 00000001 ffff 00")}, ErrorCode.INVALID_REQUEST),
    ],
    ids=["principal", "address", "version", "not to be forwarded"],
)
def test_what_is_wrong_with_an_envelope_has_the_codes_that_ours_has(
    client: NodeClient, controller: Address, changes: dict[str, Any], code: ErrorCode
) -> None:
    """The codes that tests/unit/server/test_envelopes.py expects of ours."""
    response = ask(client, controller, envelope(**changes))
    assert isinstance(response, EnvelopeResponse), response
    assert ErrorCode(response.error_code) is code


def test_a_broker_listener_takes_no_envelope(client: NodeClient, apache: ApacheBroker) -> None:
    host, _, port = apache.bootstrap.rpartition(":")
    outcome = ask(client, Address(host, int(port)), envelope())
    assert isinstance(outcome, RequestError)
    assert (outcome.failure, outcome.reason) == (Failure.UNSUPPORTED_VERSION, "Envelope is not served there")


def test_a_node_that_is_killed_is_known_to_be_lost_at_once(tmp_path: Path) -> None:
    lost: list[Address] = []
    told = threading.Event()

    def on_lost(address: Address) -> None:
        lost.append(address)
        told.set()

    with ApacheBroker(tmp_path) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        address = Address(host, int(port))
        client = NodeClient(client_id="watcher", on_lost=on_lost)
        client.start()
        try:
            assert isinstance(ask(client, address, described()), DescribeClusterResponse)
            assert not lost
            broker.stop(clean=False)
            assert told.wait(1.0), "a second after the kill nobody had noticed"
            assert lost == [address]
        finally:
            client.stop()
