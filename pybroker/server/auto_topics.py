"""Topics that nobody creates by hand: those a client asks for, with auto.create.topics.enable, and the cluster's own.

Any thread; nothing here waits. The client is told that there is no such topic, and asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pybroker.config import Config
from pybroker.metadata.controller.topic_names import problem_with_name
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from pybroker.server.controller_channel import ControllerChannel
from pybroker.server.dynamic_config import NodeConfig

logger = logging.getLogger(__name__)


class AutoTopics:
    def __init__(self, controller: ControllerChannel, config: NodeConfig, now_ms: Callable[[], int]) -> None:
        """`now_ms` is a clock that does not jump."""
        self._controller = controller
        self._config = config
        self._now_ms = now_ms
        # Topics that the controller was asked for, and until when that counts: it may have been lost.
        self._asked: dict[str, int] = {}

    def ask_for(self, names: Iterable[str]) -> None:
        """Have the controller create the topics of these names, as far as the names are legal and it was not asked yet."""
        config = self._config.current
        now_ms, timeout_ms = self._now_ms(), config.int("request.timeout.ms")
        wanted = [name for name in names if self._asked.get(name, 0) <= now_ms and problem_with_name(name) is None]
        if not wanted:
            return
        for name in wanted:
            self._asked[name] = now_ms + timeout_ms
        logger.info("topics that a client asked for are being created: %s", ", ".join(wanted))
        request = CreateTopicsRequest(topics=[creatable(name, config) for name in wanted], timeout_ms=timeout_ms)
        self._controller.submit(request, CreateTopicsRequest.VERSIONS[1], lambda response: self._created(wanted, response))

    def _created(self, names: list[str], response: Message) -> None:
        for name in names:
            self._asked.pop(name, None)
        assert isinstance(response, CreateTopicsResponse), response
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                code = error_name(result.error_code)
                logger.warning("topic %s was not created: %s %s", result.name, code, result.error_message or "")


def creatable(name: str, config: Config) -> CreatableTopic:
    """A topic with the defaults of the brokers, or one of the cluster's own as it has to be."""
    if name == OFFSETS_TOPIC:
        return _internal(name, config, "offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"})
    if name == TRANSACTIONS_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        }
        return _internal(name, config, "transaction.state.log", configs)
    if name == SHARE_STATE_TOPIC:
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": "-1",
            "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
        }
        return _internal(name, config, "share.coordinator.state.topic", configs)
    partitions, replicas = config.int("num.partitions"), config.int("default.replication.factor")
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[])


def _internal(name: str, config: Config, prefix: str, configs: dict[str, str]) -> CreatableTopic:
    configs["segment.bytes"] = str(config[f"{prefix}.segment.bytes"])
    return CreatableTopic(
        name=name,
        num_partitions=config.int(f"{prefix}.num.partitions"),
        replication_factor=config.int(f"{prefix}.replication.factor"),
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
