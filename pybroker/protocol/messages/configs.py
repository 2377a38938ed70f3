"""Configs of topics, brokers, groups and client metrics: describe, set whole, change single keys, list who has any."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    resources:             list[DescribeConfigsResource] = col("[]DescribeConfigsResource")
    include_synonyms:      bool                          = col("bool", "1+", default=False)
    include_documentation: bool                          = col("bool", "3+", default=False)


class DescribeConfigsResource(Struct):
    resource_type:      int              = col("int8")
    resource_name:      str              = col("string")
    configuration_keys: list[str] | None = col("[]string", nullable="0+")


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int                         = col("int32", default=0)
    results:          list[DescribeConfigsResult] = col("[]DescribeConfigsResult")


class DescribeConfigsResult(Struct):
    error_code:    int                                 = col("int16")
    error_message: str | None                          = col("string", nullable="0+")
    resource_type: int                                 = col("int8")
    resource_name: str                                 = col("string")
    configs:       list[DescribeConfigsResourceResult] = col("[]DescribeConfigsResourceResult")


class DescribeConfigsResourceResult(Struct):
    name:          str                          = col("string")
    value:         str | None                   = col("string", nullable="0+")
    read_only:     bool                         = col("bool")
    config_source: int                          = col("int8", "1+", default=-1, ignorable=True)
    is_sensitive:  bool                         = col("bool")
    synonyms:      list[DescribeConfigsSynonym] = col("[]DescribeConfigsSynonym", "1+", ignorable=True)
    config_type:   int                          = col("int8", "3+", default=0, ignorable=True)
    documentation: str | None                   = col("string", "3+", nullable="0+", default="", ignorable=True)


class DescribeConfigsSynonym(Struct):
    name:   str        = col("string", "1+")
    value:  str | None = col("string", "1+", nullable="0+")
    source: int        = col("int8", "1+")


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    resources:     list[AlterConfigsRequestAlterConfigsResource] = col("[]AlterConfigsRequestAlterConfigsResource")
    validate_only: bool                                          = col("bool")


class AlterConfigsRequestAlterConfigsResource(Struct):
    resource_type: int                                      = col("int8")
    resource_name: str                                      = col("string")
    configs:       list[AlterConfigsRequestAlterableConfig] = col("[]AlterConfigsRequestAlterableConfig")


class AlterConfigsRequestAlterableConfig(Struct):
    name:  str        = col("string")
    value: str | None = col("string", nullable="0+")


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int                                = col("int32", default=0)
    responses:        list[AlterConfigsResourceResponse] = col("[]AlterConfigsResourceResponse")


class AlterConfigsResourceResponse(Struct):
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+")
    resource_type: int        = col("int8")
    resource_name: str        = col("string")


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    resources:     list[IncrementalAlterConfigsRequestAlterConfigsResource] = col("[]IncrementalAlterConfigsRequestAlterConfigsResource")
    validate_only: bool                                                     = col("bool")


class IncrementalAlterConfigsRequestAlterConfigsResource(Struct):
    resource_type: int                                                 = col("int8")
    resource_name: str                                                 = col("string")
    configs:       list[IncrementalAlterConfigsRequestAlterableConfig] = col("[]IncrementalAlterConfigsRequestAlterableConfig")


class IncrementalAlterConfigsRequestAlterableConfig(Struct):
    name:             str        = col("string")
    config_operation: int        = col("int8")
    value:            str | None = col("string", nullable="0+")


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int                                = col("int32", default=0)
    responses:        list[AlterConfigsResourceResponse] = col("[]AlterConfigsResourceResponse")


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = col("[]int8", "1+", default=[])


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int                  = col("int32", default=0)
    error_code:       int                  = col("int16")
    config_resources: list[ConfigResource] = col("[]ConfigResource")


class ConfigResource(Struct):
    resource_name: str = col("string")
    resource_type: int = col("int8", "1+", default=16, ignorable=True)
