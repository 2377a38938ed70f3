"""The storage engine: segments and indexes of a partition, and the partitions of a node, in Apache Kafka's formats.

`loader.open_log` opens a partition's directory as a `log.Log`; `manager` keeps all of a node's logs, `cleaner` compacts them.
"""
