"""A node's replica of the metadata: the raft machine with its files, the image of what is committed, the active controller."""
