"""The `quorum-state` file: the election a replica has seen and its vote. On disk it is the JSON form, with `data_version`."""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id:         str                = col("string", "0", default="")
    leader_id:          int                = col("int32", default=-1)
    leader_epoch:       int                = col("int32", default=-1)
    voted_id:           int                = col("int32", default=-1)
    voted_directory_id: Uuid               = col("uuid", "1+", default=ZERO_UUID)
    applied_offset:     int                = col("int64", "0", default=0)
    current_voters:     list[Voter] | None = col("[]Voter", "0", nullable="0", default=[])


class Voter(Struct):
    voter_id: int = col("int32", "0")
