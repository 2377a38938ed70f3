"""The records of `__cluster_metadata`, by their type id (`key`). The controller writes them, every node replays them."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    broker_id:              int                  = col("int32")
    is_migrating_zk_broker: bool                 = col("bool", "2+", default=False)
    incarnation_id:         Uuid                 = col("uuid")
    broker_epoch:           int                  = col("int64")
    end_points:             list[BrokerEndpoint] = col("[]BrokerEndpoint")
    features:               list[BrokerFeature]  = col("[]BrokerFeature")
    rack:                   str | None           = col("string", nullable="0+")
    fenced:                 bool                 = col("bool", default=True)
    in_controlled_shutdown: bool                 = col("bool", "1+", default=False)
    log_dirs:               list[Uuid]           = col("[]uuid", "3+", default=[], tag=0)
    cordoned_log_dirs:      list[Uuid] | None    = col("[]uuid", "4+", nullable="4+", default=None, tag=1)


class BrokerEndpoint(Struct):
    name:              str = col("string")
    host:              str = col("string")
    port:              int = col("uint16")
    security_protocol: int = col("int16")


class BrokerFeature(Struct):
    name:                  str = col("string")
    min_supported_version: int = col("int16")
    max_supported_version: int = col("int16")


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    broker_id:    int = col("int32")
    broker_epoch: int = col("int64")


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    name:     str  = col("string")
    topic_id: Uuid = col("uuid")


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    partition_id:             int              = col("int32", default=-1)
    topic_id:                 Uuid             = col("uuid")
    replicas:                 list[int]        = col("[]int32")
    isr:                      list[int]        = col("[]int32")
    removing_replicas:        list[int]        = col("[]int32")
    adding_replicas:          list[int]        = col("[]int32")
    leader:                   int              = col("int32", default=-1)
    leader_recovery_state:    int              = col("int8", default=0, tag=0)
    leader_epoch:             int              = col("int32", default=-1)
    partition_epoch:          int              = col("int32", default=-1)
    directories:              list[Uuid]       = col("[]uuid", "1+", default=[])
    eligible_leader_replicas: list[int] | None = col("[]int32", "2+", nullable="2+", default=None, tag=1)
    last_known_elr:           list[int] | None = col("[]int32", "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    resource_type: int        = col("int8")
    resource_name: str        = col("string")
    name:          str        = col("string")
    value:         str | None = col("string", nullable="0+")


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    partition_id:             int               = col("int32", default=-1)
    topic_id:                 Uuid              = col("uuid")
    isr:                      list[int] | None  = col("[]int32", nullable="0+", default=None, tag=0)
    leader:                   int               = col("int32", default=-2, tag=1)
    replicas:                 list[int] | None  = col("[]int32", nullable="0+", default=None, tag=2)
    removing_replicas:        list[int] | None  = col("[]int32", nullable="0+", default=None, tag=3)
    adding_replicas:          list[int] | None  = col("[]int32", nullable="0+", default=None, tag=4)
    leader_recovery_state:    int               = col("int8", default=-1, tag=5)
    directories:              list[Uuid] | None = col("[]uuid", "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None  = col("[]int32", "2+", nullable="2+", default=None, tag=6)
    last_known_elr:           list[int] | None  = col("[]int32", "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    id:    int = col("int32")
    epoch: int = col("int64")


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    id:    int = col("int32")
    epoch: int = col("int64")


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    topic_id: Uuid = col("uuid")


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    owner:                str       = col("string")
    requester:            str       = col("string")
    renewers:             list[str] = col("[]string")
    issue_timestamp:      int       = col("int64")
    max_timestamp:        int       = col("int64")
    expiration_timestamp: int       = col("int64")
    token_id:             str       = col("string")


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    name:       str   = col("string")
    mechanism:  int   = col("int8")
    salt:       bytes = col("bytes")
    stored_key: bytes = col("bytes")
    server_key: bytes = col("bytes")
    iterations: int   = col("int32")


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    name:          str = col("string")
    feature_level: int = col("int16")


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = col("[]EntityData")
    key:    str              = col("string")
    value:  float            = col("float64")
    remove: bool             = col("bool")


class EntityData(Struct):
    entity_type: str        = col("string")
    entity_name: str | None = col("string", nullable="0+")


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    broker_id:        int = col("int32")
    broker_epoch:     int = col("int64", default=-1)
    next_producer_id: int = col("int64")


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    broker_id:              int               = col("int32")
    broker_epoch:           int               = col("int64")
    fenced:                 int               = col("int8", default=0, tag=0)
    in_controlled_shutdown: int               = col("int8", "1+", default=0, tag=1)
    log_dirs:               list[Uuid]        = col("[]uuid", "2+", default=[], tag=2)
    cordoned_log_dirs:      list[Uuid] | None = col("[]uuid", "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    id:              Uuid = col("uuid")
    resource_type:   int  = col("int8")
    resource_name:   str  = col("string")
    pattern_type:    int  = col("int8")
    principal:       str  = col("string")
    host:            str  = col("string")
    operation:       int  = col("int8")
    permission_type: int  = col("int8")


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    id: Uuid = col("uuid")


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    zk_migration_state: int = col("int8")


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    name:      str = col("string")
    mechanism: int = col("int8")


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    name: str | None = col("string", nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    reason: str | None = col("string", nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    token_id: str = col("string")


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    controller_id:      int                      = col("int32")
    incarnation_id:     Uuid                     = col("uuid")
    zk_migration_ready: bool                     = col("bool")
    end_points:         list[ControllerEndpoint] = col("[]ControllerEndpoint")
    features:           list[ControllerFeature]  = col("[]ControllerFeature")


class ControllerEndpoint(Struct):
    name:              str = col("string")
    host:              str = col("string")
    port:              int = col("uint16")
    security_protocol: int = col("int16")


class ControllerFeature(Struct):
    name:                  str = col("string")
    min_supported_version: int = col("int16")
    max_supported_version: int = col("int16")


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    topic_name: str = col("string")
