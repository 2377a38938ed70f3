"""Nodes and the active controller: registration, heartbeats, and requests forwarded on a client's behalf in an Envelope."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Buffer, Message, Struct, col


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    broker_id:              int            = col("int32")
    cluster_id:             str            = col("string")
    incarnation_id:         Uuid           = col("uuid")
    listeners:              list[Listener] = col("[]Listener")
    features:               list[Feature]  = col("[]Feature")
    rack:                   str | None     = col("string", nullable="0+")
    is_migrating_zk_broker: bool           = col("bool", "1+", default=False)
    log_dirs:               list[Uuid]     = col("[]uuid", "2+", default=[], ignorable=True)
    previous_broker_epoch:  int            = col("int64", "3+", default=-1, ignorable=True)


class Listener(Struct):
    name:              str = col("string")
    host:              str = col("string")
    port:              int = col("uint16")
    security_protocol: int = col("int16")


class Feature(Struct):
    name:                  str = col("string")
    min_supported_version: int = col("int16")
    max_supported_version: int = col("int16")


class BrokerRegistrationResponse(Message, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = col("int32", default=0)
    error_code:       int = col("int16")
    broker_epoch:     int = col("int64", default=-1)


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    broker_id:               int               = col("int32")
    broker_epoch:            int               = col("int64", default=-1)
    current_metadata_offset: int               = col("int64")
    want_fence:              bool              = col("bool")
    want_shut_down:          bool              = col("bool")
    offline_log_dirs:        list[Uuid]        = col("[]uuid", "1+", default=[], tag=0)
    cordoned_log_dirs:       list[Uuid] | None = col("[]uuid", "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int  = col("int32", default=0)
    error_code:       int  = col("int16")
    is_caught_up:     bool = col("bool", default=False)
    is_fenced:        bool = col("bool", default=True)
    should_shut_down: bool = col("bool")


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = col("int32")


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int        = col("int32", default=0)
    error_code:       int        = col("int16")
    error_message:    str | None = col("string", nullable="0+")


class ControllerRegistrationRequest(Message, key=70, versions="0", flexible="0+"):
    controller_id:      int            = col("int32")
    incarnation_id:     Uuid           = col("uuid")
    zk_migration_ready: bool           = col("bool")
    listeners:          list[Listener] = col("[]Listener")
    features:           list[Feature]  = col("[]Feature")


class ControllerRegistrationResponse(Message, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int        = col("int32", default=0)
    error_code:       int        = col("int16")
    error_message:    str | None = col("string", nullable="0+")


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data:        Buffer       = col("bytes", zero_copy=True)
    request_principal:   bytes | None = col("bytes", nullable="0+")
    client_host_address: bytes        = col("bytes")


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: Buffer | None = col("bytes", nullable="0+", default=None, zero_copy=True)
    error_code:    int           = col("int16")
