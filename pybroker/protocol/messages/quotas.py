"""Client quotas by user, client id and ip."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = col("[]ComponentData")
    strict:     bool                = col("bool")


class ComponentData(Struct):
    entity_type: str        = col("string")
    match_type:  int        = col("int8")
    match:       str | None = col("string", nullable="0+")


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int                                                = col("int32", default=0)
    error_code:       int                                                = col("int16")
    error_message:    str | None                                         = col("string", nullable="0+")
    entries:          list[DescribeClientQuotasResponseEntryData] | None = col("[]DescribeClientQuotasResponseEntryData", nullable="0+")


class DescribeClientQuotasResponseEntryData(Struct):
    entity: list[EntityData] = col("[]EntityData")
    values: list[ValueData]  = col("[]ValueData")


class EntityData(Struct):
    entity_type: str        = col("string")
    entity_name: str | None = col("string", nullable="0+")


class ValueData(Struct):
    key:   str   = col("string")
    value: float = col("float64")


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    entries:       list[AlterClientQuotasRequestEntryData] = col("[]AlterClientQuotasRequestEntryData")
    validate_only: bool                                    = col("bool")


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[EntityData] = col("[]EntityData")
    ops:    list[OpData]     = col("[]OpData")


class OpData(Struct):
    key:    str   = col("string")
    value:  float = col("float64")
    remove: bool  = col("bool")


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int                                      = col("int32", default=0)
    entries:          list[AlterClientQuotasResponseEntryData] = col("[]AlterClientQuotasResponseEntryData")


class AlterClientQuotasResponseEntryData(Struct):
    error_code:    int              = col("int16")
    error_message: str | None       = col("string", nullable="0+")
    entity:        list[EntityData] = col("[]EntityData")
