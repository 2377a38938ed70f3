"""A node's metadata quorum, put together from its configuration, its directories and its way to other nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from random import randrange
from typing import Final

from pybroker.base.address import Address
from pybroker.base.filesystem import FileSystem
from pybroker.base.ids import ZERO_UUID
from pybroker.client.node_client import NodeClient
from pybroker.client.request_error import Failure, RequestError
from pybroker.config.broker import Config
from pybroker.config.listeners import parse_listener
from pybroker.log.manager.directories import random_uuid
from pybroker.metadata.controller import elr
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.image_records import image_records
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchRequest
from pybroker.protocol.messages.raft import FetchSnapshotRequest, VoteRequest, VoteResponse
from pybroker.raft.events import Recovered, ReplicaKey
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import QuorumSetting
from pybroker.server.addresses import is_address
from pybroker.server.bootstrap import Storage
from pybroker.server.metadata_snapshot import BOOTSTRAP, SnapshotError, read_snapshot, write_snapshot
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.server.quorum.replica import MetadataReplica, ReplicaSettings, SnapshotJob
from pybroker.server.quorum.store import MetadataLogError, MetadataStore

# A fetch waits at the leader for news: it has a connection of its own, so that votes do not wait behind it.
FETCHES, OTHERS = "metadata-fetch", "quorum"

_LONG: Final = (FetchRequest, FetchSnapshotRequest)


class NetworkPeers:
    """Other replicas, over the network."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client

    def send(self, address: Address, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        def answered(answer: Message | RequestError) -> None:
            if not isinstance(answer, RequestError):
                done(answer)
            elif answer.failure is Failure.UNSUPPORTED_VERSION and isinstance(request, VoteRequest):
                # An older voter cannot be asked for a pre-vote; the machine knows what to do about that.
                done(VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, topics=[]))
            else:
                done(None)

        lane = FETCHES if isinstance(request, _LONG) else OTHERS
        self._client.send(address, request, timeout_ms, answered, lane=lane)


def open_quorum(
    filesystem: FileSystem,
    config: Config,
    storage: Storage,
    client: NodeClient,
    endpoints: Mapping[str, Address],
    *,
    now_ms: Callable[[], int],
) -> MetadataQuorum:
    """`endpoints` are those of this node's controller listeners, by name, and may be filled in until the start; `now_ms` never
    goes back. MetadataLogError if the files are not usable.
    """
    setting = quorum_setting(config, storage, endpoints)
    store = MetadataStore(filesystem, config, now_ms())

    def new_quorum(recovered: Recovered) -> Quorum:
        return Quorum(setting, recovered, draw_below=randrange)

    def new_replica(quorum: MetadataQuorum) -> MetadataReplica:
        def new_controller(image: MetadataImage) -> Controller:
            return Controller(
                config,
                storage.cluster_id,
                new_uuid=random_uuid,
                draw_below=randrange,
                image=image,
                is_address=is_address,
                kraft_version=lambda: replica.quorum.kraft_version,
                check_kraft_version=check_kraft_version,
            )

        def check_kraft_version(level: int) -> KafkaError | None:
            refusal = replica.quorum.refuses_upgrade(level)
            return None if refusal is None else KafkaError(refusal.error, refusal.message or "")

        replica = MetadataReplica(
            replica_settings(config),
            store,
            quorum,
            new_quorum=new_quorum,
            publish=quorum.publishing.publish,
            new_controller=new_controller if config.is_controller else None,
            first_records=lambda: first_records(filesystem, config, storage),
            on_leader=quorum.leader_changed,
        )
        return replica

    try:
        return MetadataQuorum(
            store,
            new_replica,
            peers=NetworkPeers(client),
            now_ms=now_ms,
            write_snapshot=lambda job: write_image(filesystem, job),
        )
    except BaseException:
        store.close()
        raise


def first_records(filesystem: FileSystem, config: Config, storage: Storage) -> Sequence[Message]:
    """With what a new cluster begins: what was formatted, and what follows from it. MetadataLogError if it is not there."""
    bootstrap = f"{storage.metadata_dir}/{BOOTSTRAP}"
    try:
        records = read_snapshot(filesystem, bootstrap).records
    except (SnapshotError, FileNotFoundError) as error:
        raise MetadataLogError(f"a new cluster begins with {bootstrap}: {error}. Format the directory anew.") from error
    return [*records, *elr.beginning(records, config)]


def quorum_setting(config: Config, storage: Storage, endpoints: Mapping[str, Address]) -> QuorumSetting:
    directory_id = storage.metadata_directory_id
    return QuorumSetting(
        cluster_id=storage.cluster_id,
        own=ReplicaKey(config.int("node.id"), ZERO_UUID if directory_id is None else directory_id),
        can_vote=config.is_controller,
        listener=config.controller_listener_names[0],
        endpoints=endpoints,
        static_voters=dict(map(_voter, config.items_of("controller.quorum.voters"))),
        bootstrap_servers=tuple(map(_address, config.items_of("controller.quorum.bootstrap.servers"))),
        election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
        death_grace_ms=config.int("pybroker.controller.quorum.death.grace.ms"),
        auto_join=bool(config["controller.quorum.auto.join.enable"]),
    )


def replica_settings(config: Config) -> ReplicaSettings:
    return ReplicaSettings(
        node_id=config.int("node.id"),
        max_batch_bytes=config.int("internal.metadata.max.batch.size.in.bytes"),
        max_idle_ms=config.int("metadata.max.idle.interval.ms"),
        snapshot_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
    )


def write_image(filesystem: FileSystem, job: SnapshotJob) -> None:
    filesystem.make_dirs(os.path.dirname(job.path))
    write_snapshot(
        filesystem,
        job.path,
        image_records(job.image),
        now_ms=job.timestamp_ms,
        voters=job.voters,
        epoch=job.snapshot.epoch,
        last_timestamp_ms=job.timestamp_ms,
    )


def _voter(text: str) -> tuple[int, Address]:
    number, _at, rest = text.partition("@")
    return int(number), _address(rest)


def _address(text: str) -> Address:
    listener = parse_listener(f"CONTROLLER://{text}")
    return Address(listener.host, listener.port)
