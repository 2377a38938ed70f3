"""One of the two brokers as a case sees it: its connections, the topics of the case, and what earlier answers said.

A case names topics by a short symbol; on both sides that is the same name, `<case>.<symbol>`, and a topic id of each side's
own. Whatever each side chooses by itself (ids, ports, sessions) is told apart by the order in which it was first seen.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from interop.broker_process import BrokerProcess
from support.waiting import wait_until

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.api_table import APIS, Api
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker.protocol.messages.transactions import InitProducerIdRequest

ANSWER_S = 5.0
CLIENT_ID = "same-answer"
UNKNOWN_TOPIC_ID = Uuid(b"nobody's topic..")
APIS_BY_KEY = {api.key: api for api in APIS}
_BARRIER_TOPIC = "barrier"
_BARRIER_KEY = "retention.ms"
_TOPIC = 2
_SETTLE_S = 30
_barriers = itertools.count(1_000_000_000)


class Closed:
    """What stands for an answer when the broker closes the connection instead."""

    def __repr__(self) -> str:
        return "the connection is closed"


class Silence:
    def __repr__(self) -> str:
        return f"no answer within {ANSWER_S:.0f} s"


class Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # a broker that hung up is found out by reading
            self._socket.sendall(data)

    def receive(self) -> bytes | Closed | Silence:
        try:
            size = self._reader.read(4)
            return self._reader.read(struct.unpack(">i", size)[0]) if len(size) == 4 else Closed()
        except TimeoutError:
            return Silence()
        except OSError:
            return Closed()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class Side:
    def __init__(self, broker: BrokerProcess, log_dirs: Sequence[str], case: str) -> None:
        self.broker = broker
        self.log_dirs = tuple(log_dirs)
        self.port = int(broker.bootstrap.rpartition(":")[2])
        self.values: dict[str, Any] = {}  # what a step keeps for later ones
        self.version = 0  # of the sweep
        self._case = case
        self._topic_ids: dict[str, Uuid] = {}
        self._seen: dict[str, list[Any]] = {}
        self._latest: dict[str, Any] = {}
        self._connections: dict[str, Connection] = {}
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def name(self, symbol: str) -> str:
        """The topic that the case calls `symbol`: "%" in it is the version of the sweep, "=x" is x itself."""
        symbol = symbol.replace("%", str(self.version))
        return symbol[1:] if symbol.startswith("=") else f"{self._case}.{symbol}"

    def is_own(self, topic: str) -> bool:
        return topic.startswith(f"{self._case}.")

    def topic_id(self, symbol: str) -> Uuid:
        """Its id on this side; one that no topic has if the case has made none."""
        return ZERO_UUID if symbol == "=" else self._topic_ids.get(self.name(symbol), UNKNOWN_TOPIC_ID)

    def learn_topic_id(self, name: str, topic_id: Uuid) -> None:
        if topic_id not in (ZERO_UUID, UNKNOWN_TOPIC_ID):
            self._topic_ids[name] = Uuid(bytes(topic_id))

    def shown_topic_id(self, topic_id: Uuid) -> str:
        known = {ZERO_UUID: "zero", UNKNOWN_TOPIC_ID: "nobody's"} | {uuid: name for name, uuid in self._topic_ids.items()}
        return f"id of {known.get(Uuid(bytes(topic_id)), 'a topic')}"

    def shown_nth(self, kind: str, value: Any) -> str:
        """Values that each broker chooses: the n-th one seen on this side."""
        seen = self._seen.setdefault(kind, [])
        if value not in seen:
            seen.append(value)
        self._latest[kind] = value
        return f"{kind} #{seen.index(value) + 1}"

    def take_latest(self, kind: str) -> int:
        """The real value that was shown last, once; 0 for none since."""
        return self._latest.pop(kind, 0)

    def twin(self) -> Side:
        """The same side with connections of its own."""
        twin = copy(self)
        twin._connections = {}
        return twin

    def ask(self, request: Message, version: int, connection: str = "") -> Any:
        api = APIS_BY_KEY[request.KEY or 0]
        number = self.send(api, version, request.encode(version), connection)
        return self.answer(api, version, number, connection)

    def send(self, api: Api, version: int, body: bytes, connection: str = "") -> int:
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=next(self._correlation_ids),
            client_id=CLIENT_ID,
        )
        self.send_raw(header.encode(api.request_header_version(version)) + body, connection)
        return header.correlation_id

    def send_raw(self, frame: bytes, connection: str = "", size: int | None = None) -> None:
        if connection not in self._connections:
            self._connections[connection] = Connection(self.broker.bootstrap)
        self._connections[connection].send(struct.pack(">i", len(frame) if size is None else size) + frame)

    def answer(self, api: Api, version: int, correlation_id: int, connection: str = "") -> Any:
        answer = self.answer_raw(connection)
        if not isinstance(answer, bytes):
            return answer
        header, position = ResponseHeader.decode_from(api.response_header_version(version), answer, 0)
        assert header.correlation_id == correlation_id, f"{self.broker.NAME} answers {header}, expected {correlation_id}"
        return api.response.decode(version, answer[position:])

    def answer_raw(self, connection: str = "") -> bytes | Closed | Silence:
        answer = self._connections[connection].receive()
        if not isinstance(answer, bytes):
            self._connections.pop(connection).close()
        return answer

    def settle(self) -> None:
        """Wait until every change that the controller has answered is in force at the broker too.

        Changes become visible in order, but a change is visible a moment before all of its consequences are drawn: the second
        round is begun when the first is visible, so once it is visible nothing is left to do for the first."""
        for _ in range(2):
            value = str(next(_barriers))
            change = IncrementalAlterConfigsRequestAlterableConfig(name=_BARRIER_KEY, config_operation=0, value=value)
            resource = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=_TOPIC, resource_name=_BARRIER_TOPIC, configs=[change]
            )
            done = self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1, "settle")
            assert done.responses[0].error_code == ErrorCode.NONE, done
            deadline = time.monotonic() + _SETTLE_S
            while self._barrier() != value:  # it takes a few milliseconds, and there are thousands to wait for
                assert time.monotonic() < deadline, f"{self.broker.NAME} does not settle within {_SETTLE_S} s"
                time.sleep(0.001)

    def _barrier(self) -> str | None:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=_BARRIER_TOPIC, configuration_keys=[_BARRIER_KEY]
        )
        (result,) = self.ask(DescribeConfigsRequest(resources=[resource]), 4, "settle").results
        return result.configs[0].value if result.configs else None


def prepare(broker: BrokerProcess) -> None:
    """What `settle` needs, and the first producer id, which Apache Kafka has not at hand at once."""
    broker.create_topic(_BARRIER_TOPIC)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    wait_until(lambda: broker.ask(request).error_code == ErrorCode.NONE, 30, lambda: f"{broker.NAME} gives no producer id")
