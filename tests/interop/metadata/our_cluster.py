"""Our controller as a cluster of one node, without a log: its records are replayed as they are decided."""

from __future__ import annotations

from itertools import count
from random import Random

from interop.broker_process import CLUSTER_ID, NODE_ID

from pybroker.base.ids import Uuid
from pybroker.config import Config, load
from pybroker.config.reading import Given
from pybroker.metadata.controller import elr
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import ELR_VERSION, METADATA_VERSION, RELEASES
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.api_table import API_BY_KEY
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, BrokerRegistrationRequest, Feature, Listener

LOG_DIR = Uuid(b"the one log dir.")


def config_of(properties: dict[str, str]) -> Config:
    loaded = load({name: Given(value, "test") for name, value in properties.items()})
    assert loaded.config is not None, loaded.problems
    return loaded.config


class OurCluster:
    def __init__(self, *, has_authorizer: bool = False) -> None:
        random = Random(1)
        uuids = count(1)
        config = config_of(
            {
                "process.roles": "broker,controller",
                "node.id": str(NODE_ID),
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:9093",
            }
        )
        self._controller = Controller(
            config,
            CLUSTER_ID,
            new_uuid=lambda: Uuid(next(uuids).to_bytes(16, "big")),
            draw_below=random.randrange,
            has_authorizer=has_authorizer,
        )
        levels = {METADATA_VERSION: RELEASES["4.3-IV0"], ELR_VERSION: 1}
        begun = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
        for record in (*begun, *elr.beginning(begun, config)):
            self._replay(record)
        self._controller.start(0)
        listener = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)
        registered = self._decide(
            BrokerRegistrationRequest(
                broker_id=NODE_ID,
                cluster_id=CLUSTER_ID,
                incarnation_id=Uuid(b"one incarnation."),
                listeners=[listener],
                features=[
                    Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30),
                    Feature(name=ELR_VERSION, min_supported_version=0, max_supported_version=1),
                ],
                rack=None,
                log_dirs=[LOG_DIR],
            ),
            4,
        )
        self._decide(
            BrokerHeartbeatRequest(
                broker_id=NODE_ID,
                broker_epoch=registered.broker_epoch,
                current_metadata_offset=registered.broker_epoch,
                want_fence=False,
                want_shut_down=False,
            ),
            2,
        )

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def ask(self, request: Message, version: int) -> Message:
        """As over the wire: what a version does not carry is not there."""
        assert request.KEY is not None
        api = API_BY_KEY[request.KEY]
        asked = api.request.decode(version, request.encode(version))
        return api.response.decode(version, self._decide(asked, version).encode(version))

    def _decide(self, request: Message, version: int) -> Message:
        result = self._controller.handle(0, request, version)
        for record in result.records:
            self._replay(record)
        return result.response

    def _replay(self, record: Message) -> None:
        self._controller.replay(self._controller.next_offset, 1, record)
