"""A client for command-line tools: asks one node at a time, waits for the answer, and finds leaders and coordinators.

One thread. What cannot be answered is a ClientError with a text for the person at the keyboard.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final, Self

from pybroker.base.address import Address
from pybroker.client.node_client import NodeClient
from pybroker.client.request_error import RequestError
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.groups import FindCoordinatorRequest
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

TIMEOUT_MS: Final = 30_000


class ClientError(Exception):
    """The text says what went wrong, and with whom."""


class BlockingClient:
    def __init__(self, bootstrap: str, client_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        """`bootstrap` is host:port, or several with commas between, of which one has to answer."""
        self._timeout_ms = timeout_ms
        self._client = NodeClient(client_id=client_id)
        self._bootstrap = [parse_address(text) for text in bootstrap.split(",")]
        self.brokers: dict[int, Address] = {}

    def __enter__(self) -> Self:
        self._client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()

    def ask(self, address: Address, request: Message) -> Any:
        answer: Future[Message | RequestError] = Future()
        self._client.send(address, request, self._timeout_ms, answer.set_result)
        found = answer.result()
        if isinstance(found, RequestError):
            raise ClientError(str(found))
        return found

    def ask_broker(self, broker_id: int, request: Message) -> Any:
        if broker_id not in self.brokers:
            raise ClientError(f"broker {broker_id} is not in the cluster; there are {sorted(self.brokers) or 'none'}")
        return self.ask(self.brokers[broker_id], request)

    def topics(self, *names: str) -> list[MetadataResponseTopic]:
        """With their leaders: those of these names, or all. Learns the brokers, too."""
        wanted = [MetadataRequestTopic(name=name) for name in names] or None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        problem: ClientError | None = None
        for address in [*self._bootstrap, *self.brokers.values()]:
            try:
                found = self.ask(address, request)
            except ClientError as error:
                problem = error
                continue
            self.brokers = {one.node_id: Address(one.host, one.port) for one in found.brokers}
            topics: list[MetadataResponseTopic] = found.topics
            return topics
        assert problem is not None
        raise problem

    def coordinator(self, key_type: int, key: str) -> int:
        """The broker that coordinates a group (0) or a transactional id (1)."""
        if not self.brokers:
            self.topics()
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (found,) = self.ask_broker(min(self.brokers), request).coordinators
        check(found.error_code, f"the coordinator of {key}")
        return int(found.node_id)


def check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise ClientError(f"{what}: {error_name(code)}")


def parse_address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdigit():
        raise ClientError(f"{text!r} is no address; expected host:port")
    return Address(host.strip("[]"), int(port))
