"""ApiVersions: what a listener serves, asked first on every connection. UpdateFeatures: the cluster's feature levels.

A version of ApiVersions that a broker does not know is answered in v0 with UNSUPPORTED_VERSION and the range it does know.
"""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    client_software_name:    str = col("string", "3+", default="", ignorable=True)
    client_software_version: str = col("string", "3+", default="", ignorable=True)


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    error_code:               int                       = col("int16")
    api_keys:                 list[ApiVersion]          = col("[]ApiVersion")
    throttle_time_ms:         int                       = col("int32", "1+", default=0, ignorable=True)
    supported_features:       list[SupportedFeatureKey] = col("[]SupportedFeatureKey", "3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: int                       = col("int64", "3+", default=-1, tag=1, ignorable=True)
    finalized_features:       list[FinalizedFeatureKey] = col("[]FinalizedFeatureKey", "3+", default=[], tag=2, ignorable=True)
    zk_migration_ready:       bool                      = col("bool", "3+", default=False, tag=3, ignorable=True)


class ApiVersion(Struct):
    api_key:     int = col("int16")
    min_version: int = col("int16")
    max_version: int = col("int16")


class SupportedFeatureKey(Struct):
    name:        str = col("string", "3+")
    min_version: int = col("int16", "3+")
    max_version: int = col("int16", "3+")


class FinalizedFeatureKey(Struct):
    name:              str = col("string", "3+")
    max_version_level: int = col("int16", "3+")
    min_version_level: int = col("int16", "3+")


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    timeout_ms:      int                    = col("int32", default=60000)
    feature_updates: list[FeatureUpdateKey] = col("[]FeatureUpdateKey")
    validate_only:   bool                   = col("bool", "1+", default=False)


class FeatureUpdateKey(Struct):
    feature:           str  = col("string")
    max_version_level: int  = col("int16")
    allow_downgrade:   bool = col("bool", "0", default=False)
    upgrade_type:      int  = col("int8", "1+", default=1)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int                          = col("int32", default=0)
    error_code:       int                          = col("int16")
    error_message:    str | None                   = col("string", nullable="0+")
    results:          list[UpdatableFeatureResult] = col("[]UpdatableFeatureResult", "0-1", default=[], ignorable=True)


class UpdatableFeatureResult(Struct):
    feature:       str        = col("string")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+")
