"""What control batches hold: transaction markers in data partitions, and the quorum's own records in its log and snapshots."""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = col("int16")


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = col("int32")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version:         int                            = col("int16")
    leader_id:       int                            = col("int32")
    voters:          list[LeaderChangeMessageVoter] = col("[]LeaderChangeMessageVoter")
    granting_voters: list[LeaderChangeMessageVoter] = col("[]LeaderChangeMessageVoter")


class LeaderChangeMessageVoter(Struct):
    voter_id:           int  = col("int32")
    voter_directory_id: Uuid = col("uuid", "1+", default=ZERO_UUID)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version:                      int = col("int16")
    last_contained_log_timestamp: int = col("int64")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = col("int16")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version:        int = col("int16")
    k_raft_version: int = col("int16")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int                     = col("int16")
    voters:  list[VotersRecordVoter] = col("[]VotersRecordVoter")


class VotersRecordVoter(Struct):
    voter_id:               int                 = col("int32")
    voter_directory_id:     Uuid                = col("uuid")
    endpoints:              list[Endpoint]      = col("[]Endpoint")
    k_raft_version_feature: KRaftVersionFeature = col("KRaftVersionFeature")


class Endpoint(Struct):
    name: str = col("string")
    host: str = col("string")
    port: int = col("uint16")


class KRaftVersionFeature(Struct):
    min_supported_version: int = col("int16")
    max_supported_version: int = col("int16")
