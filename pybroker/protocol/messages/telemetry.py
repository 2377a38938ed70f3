"""Client metrics (KIP-714): which ones a broker wants, and the push of them."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Buffer, Message, col


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid = col("uuid")


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    throttle_time_ms:           int       = col("int32", default=0)
    error_code:                 int       = col("int16")
    client_instance_id:         Uuid      = col("uuid")
    subscription_id:            int       = col("int32")
    accepted_compression_types: list[int] = col("[]int8")
    push_interval_ms:           int       = col("int32")
    telemetry_max_bytes:        int       = col("int32")
    delta_temporality:          bool      = col("bool")
    requested_metrics:          list[str] = col("[]string")


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid   = col("uuid")
    subscription_id:    int    = col("int32")
    terminating:        bool   = col("bool")
    compression_type:   int    = col("int8")
    metrics:            Buffer = col("bytes", zero_copy=True)


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = col("int32", default=0)
    error_code:       int = col("int16")
