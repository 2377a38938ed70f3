"""Brokers and controllers register; brokers say that they live, are fenced and unfenced, shut down, and are unregistered.

A broker's epoch is the offset at which its registration was decided, so every incarnation has a higher one than the one
before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum, auto

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.metadata.controller import leadership
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.features import (
    CONTROLLER_REGISTRATION,
    CORDONED,
    DIRECTORIES,
    KRAFT_VERSION,
    METADATA_VERSION,
    metadata_version,
)
from pybroker.metadata.controller.partition_change import PartitionRules
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerState,
    MetadataImage,
)
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_NO_DIRECTORY = (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY)
# From this version on a registration names the epoch that the broker had when it stopped cleanly.
_NAMES_PREVIOUS_EPOCH = 3


# Registration.


def register_broker(view: View, request: BrokerRegistrationRequest, version: int) -> Result:
    image, broker_id = view.image, request.broker_id
    known = image.brokers.get(broker_id)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    _check_registration(view, request, None if is_same else known)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=view.next_offset,
        end_points=[
            BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ],
        features=[
            BrokerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
        rack=request.rack,
        log_dirs=list(request.log_dirs) if metadata_version(image) >= DIRECTORIES else [],
    )
    records: list[Message] = []
    if known is not None and is_same:
        record.broker_epoch, record.fenced = known.epoch, known.fenced
        record.in_controlled_shutdown = known.in_controlled_shutdown
    else:
        stopped_in_epoch = request.previous_broker_epoch if version >= _NAMES_PREVIOUS_EPOCH else -1
        is_clean = known is not None and known.epoch == stopped_in_epoch
        records += leadership.restarted(view, broker_id, is_clean=is_clean)
    records.append(record)
    view.heartbeats.register(view.now_ms, broker_id, record.broker_epoch)
    return Result(records, BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=record.broker_epoch))


def _check_registration(view: View, request: BrokerRegistrationRequest, replaced: BrokerState | None) -> None:
    if request.cluster_id != view.setting.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Broker {request.broker_id} is of cluster {request.cluster_id}; this is {view.setting.cluster_id}.",
        )
    if replaced is not None and view.heartbeats.has_session(view.now_ms, replaced):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another process is registered as broker {replaced.id}. If it has ended, try again when its session has passed.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "There is no ZooKeeper to migrate a broker from.")
    if metadata_version(view.image) >= DIRECTORIES:
        _check_directories(view.image, request)
    _check_features(view, request)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    problem = None
    if not directories:
        problem = "has no log directory; expected one or more"
    elif len(set(directories)) != len(directories):
        problem = "has a log directory twice"
    elif any(one in _NO_DIRECTORY for one in directories):
        problem = "has a log directory with a reserved id"
    for broker in image.brokers.values():
        shared = set(broker.log_dirs) & set(directories)
        if broker.id != request.broker_id and shared:
            problem = f"has log directory {uuid_to_text(min(shared))}, which broker {broker.id} is registered with"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Broker {request.broker_id} {problem}.")


def _check_features(view: View, request: BrokerRegistrationRequest) -> None:
    """A broker must be able to work at every level that is finalized; 0 is that of a feature that is not."""
    image = view.image
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    finalized = {**image.features, METADATA_VERSION: metadata_version(image), KRAFT_VERSION: view.setting.kraft_version()}
    for name in [*ranges, *(one for one in finalized if one not in ranges and one != METADATA_VERSION)]:
        low, high = ranges.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster has {name} at level {level}; broker {request.broker_id} supports {low} to {high}.",
            )
    if METADATA_VERSION not in ranges:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"Broker {request.broker_id} does not say which {METADATA_VERSION} it supports."
        )


def unregister_broker(view: View, request: UnregisterBrokerRequest) -> Result:
    broker = view.image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    view.heartbeats.forget(broker.id)
    response = UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
    return Result(leadership.unregistered(view, broker), response)


def register_controller(image: MetadataImage, request: ControllerRegistrationRequest) -> Result:
    records: list[Message] = []
    if metadata_version(image) >= CONTROLLER_REGISTRATION:
        records.append(
            RegisterControllerRecord(
                controller_id=request.controller_id,
                incarnation_id=request.incarnation_id,
                zk_migration_ready=False,
                end_points=[
                    ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                    for one in request.listeners
                ],
                features=[
                    ControllerFeature(
                        name=one.name,
                        min_supported_version=one.min_supported_version,
                        max_supported_version=one.max_supported_version,
                    )
                    for one in request.features
                ],
            )
        )
    return Result(records, ControllerRegistrationResponse(error_code=ErrorCode.NONE, error_message=None))


# Heartbeats.


class _Standing(Enum):
    FENCED = auto()
    UNFENCED = auto()
    SHUTTING_DOWN = auto()  # leads nothing more, but others may not know it yet
    SHUT_DOWN = auto()  # may go


def broker_heartbeat(view: View, request: BrokerHeartbeatRequest) -> Result:
    broker = checked_broker(view.image, request.broker_id, request.broker_epoch)
    heartbeats = view.heartbeats
    heartbeats.hear(view.now_ms, broker.id, broker.epoch, request.current_metadata_offset)
    is_caught_up = request.current_metadata_offset >= view.registered_at[broker.id]
    now = _standing(broker)
    then = _next_standing(view, broker, request, now, is_caught_up)
    records: list[Message] = []
    offline = [one for one in broker.log_dirs if one in request.offline_log_dirs]
    if then is now:
        records += _without_directories(view, broker, offline)
    elif then is _Standing.UNFENCED:
        lost = _without_directories(view, broker, offline)
        records += lost
        records += _unfenced(view, broker, offline, {(one.topic_id, one.partition_id) for one in lost})
    elif then is _Standing.SHUTTING_DOWN:
        records += leadership.shutting_down(view, broker)
    elif now is not _Standing.FENCED:
        records += leadership.fenced(view, (broker.id,))
    if then is _Standing.SHUTTING_DOWN:
        heartbeats.begin_shutdown(broker.id, view.next_offset + len(records) - 1)
    elif then is _Standing.SHUT_DOWN:
        heartbeats.release(broker.id)
    if offline:
        records.append(_changed(broker, log_dirs=_difference(broker.log_dirs, offline)))
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and metadata_version(view.image) >= CORDONED and set(cordoned) != set(broker.cordoned_log_dirs):
        records.append(_changed(broker, cordoned_log_dirs=list(cordoned)))
    return Result(
        records,
        BrokerHeartbeatResponse(
            error_code=ErrorCode.NONE,
            is_caught_up=is_caught_up,
            is_fenced=then in (_Standing.FENCED, _Standing.SHUT_DOWN),
            should_shut_down=then is _Standing.SHUT_DOWN,
        ),
    )


def _standing(broker: BrokerState) -> _Standing:
    if broker.fenced:
        return _Standing.FENCED
    return _Standing.SHUTTING_DOWN if broker.in_controlled_shutdown else _Standing.UNFENCED


def _next_standing(
    view: View, broker: BrokerState, request: BrokerHeartbeatRequest, now: _Standing, is_caught_up: bool
) -> _Standing:
    if now is _Standing.SHUTTING_DOWN:
        return _Standing.SHUT_DOWN if _may_go(view, broker) else now
    if request.want_shut_down and (now is _Standing.FENCED or request.want_fence or not view.index.leads(broker.id)):
        return _Standing.SHUT_DOWN
    if request.want_shut_down:
        return _Standing.SHUTTING_DOWN
    if request.want_fence:
        return _Standing.FENCED
    return _Standing.UNFENCED if now is _Standing.UNFENCED or is_caught_up else now


def _may_go(view: View, broker: BrokerState) -> bool:
    """When it leads nothing, and all who stay have seen that."""
    if view.index.leads(broker.id):
        return False
    offset = view.heartbeats.shutdown_offset(broker.id)
    if offset is None:
        # A controller before this one began it.
        offset = view.next_offset - 1
        view.heartbeats.begin_shutdown(broker.id, offset)
    lowest = view.heartbeats.lowest_offset(view.image.brokers.values())
    return lowest is None or offset <= lowest


def _without_directories(view: View, broker: BrokerState, offline: Sequence[Uuid]) -> list[PartitionChangeRecord]:
    """The broker leaves the partitions it has in these directories."""
    if not offline:
        return []
    rules = PartitionRules(view.image, view.setting, leaving=(broker.id,))
    located = view.index.in_sync(broker.id).within(view.image)
    lost = ((topic, index) for topic, index in located if topic.partitions[index].directory_of(broker.id) in offline)
    return leadership.changes(rules, lost, leaving=(broker.id,))


def _unfenced(view: View, broker: BrokerState, offline: Sequence[Uuid], settled: Collection[tuple[Uuid, int]]) -> list[Message]:
    image = view.image
    if offline:
        remaining = replace(broker, log_dirs=tuple(_difference(broker.log_dirs, offline)))
        image = replace(image, brokers={**image.brokers, broker.id: remaining})
    return leadership.unfenced(view, image, broker, settled)


def _difference(directories: Sequence[Uuid], gone: Sequence[Uuid]) -> list[Uuid]:
    return [one for one in directories if one not in gone]


def _changed(
    broker: BrokerState, *, log_dirs: Sequence[Uuid] = (), cordoned_log_dirs: list[Uuid] | None = None
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=list(log_dirs), cordoned_log_dirs=cordoned_log_dirs
    )


def checked_broker(image: MetadataImage, broker_id: int, epoch: int) -> BrokerState:
    """The broker, if a request in its name comes from the incarnation that is registered."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is registered with epoch {broker.epoch}; found {epoch}."
        )
    return broker
