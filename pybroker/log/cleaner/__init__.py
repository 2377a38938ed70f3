"""Compaction: keeps the last record of each key, in a process of its own so that appends go on undisturbed."""
