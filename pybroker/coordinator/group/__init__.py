"""The group coordinator's shards: groups of any type by type, committed offsets, one shard per partition of the topic."""
