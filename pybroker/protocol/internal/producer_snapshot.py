"""A `.snapshot` file: the producers of a partition as of an offset. The file is this message and a CRC over it."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class ProducerSnapshot(Message, versions="1"):
    crc:              int                 = col("uint32", "1")
    producer_entries: list[ProducerEntry] = col("[]ProducerEntry", "1")


class ProducerEntry(Struct):
    producer_id:              int = col("int64", "1")
    epoch:                    int = col("int16", "1")
    last_sequence:            int = col("int32", "1")
    last_offset:              int = col("int64", "1")
    offset_delta:             int = col("int32", "1")
    timestamp:                int = col("int64", "1")
    coordinator_epoch:        int = col("int32", "1")
    current_txn_first_offset: int = col("int64", "1")
