"""Coordinators: shards replayed from the partitions of an internal topic. Pure: no log, no metadata, no network, no clock."""
