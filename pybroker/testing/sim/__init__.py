"""The deterministic simulator: whole clusters of the pure machines in virtual time, on a faulty network and crashing disks.

Everything is drawn from one `random.Random(seed)` and runs from one heap of due events, on one thread: a seed is a run.
"""
