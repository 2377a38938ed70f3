"""The logs of a node: its log directories, which partition lies where, the jobs around them, start and stop."""
