"""The storage engine: segments and indexes of a partition, and the partitions of a node, in Apache Kafka's formats."""
