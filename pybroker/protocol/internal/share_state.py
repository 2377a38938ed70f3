"""Records of `__share_group_state`: the delivery state of a share partition, as snapshots and updates to them."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class ShareSnapshotKey(Message, key=0, versions="0"):
    group_id:  str  = col("string", "0")
    topic_id:  Uuid = col("uuid", "0")
    partition: int  = col("int32", "0")


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    snapshot_epoch:          int              = col("int32")
    state_epoch:             int              = col("int32")
    leader_epoch:            int              = col("int32")
    start_offset:            int              = col("int64")
    delivery_complete_count: int              = col("int32", default=-1, tag=0)
    create_timestamp:        int              = col("int64")
    write_timestamp:         int              = col("int64")
    state_batches:           list[StateBatch] = col("[]StateBatch")


class StateBatch(Struct):
    first_offset:   int = col("int64")
    last_offset:    int = col("int64")
    delivery_state: int = col("int8")
    delivery_count: int = col("int16")


class ShareUpdateKey(Message, key=1, versions="0"):
    group_id:  str  = col("string", "0")
    topic_id:  Uuid = col("uuid", "0")
    partition: int  = col("int32", "0")


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    snapshot_epoch:          int              = col("int32")
    leader_epoch:            int              = col("int32")
    start_offset:            int              = col("int64")
    delivery_complete_count: int              = col("int32", default=-1, tag=0)
    state_batches:           list[StateBatch] = col("[]StateBatch")
