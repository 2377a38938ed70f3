from __future__ import annotations

import os
import subprocess
import sys

from perf.bench.process import NoiseMeter, cpu_s, memory, process_tree, stat_fields
from perf.bench.whole_clients import JavaRun, java_summary
from support.waiting import wait_until

BURN = "import time\nwhile time.process_time() < {}: pass\n"


def test_a_name_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    assert stat_fields("12 (a) (b c) R 1 2") == ["R", "1", "2"]


def test_cpu_of_a_child_counts_while_it_lives_and_after_it_ended() -> None:
    code = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {BURN.format(0.2)!r}])\n"
        f"child = subprocess.Popen([sys.executable, '-c', {BURN.format(0.2) + 'input()'!r}], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\ninput()\nchild.communicate(b'x')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert process_tree(parent.pid) == [parent.pid, child]
        # 0.2 s each; /proc counts whole ticks, rounded down. One of them alone stays below.
        wait_until(lambda: cpu_s(parent.pid) >= 0.35, 60, lambda: f"{cpu_s(parent.pid)} s")
        assert memory(parent.pid).rss_mb > memory(child).rss_mb > 1
        parent.communicate(b"x\n")


def test_a_process_that_is_gone_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert cpu_s(process.pid) == 0
    assert memory(process.pid).rss_mb == 0


def test_the_peak_is_not_below_what_is_resident() -> None:
    found = memory(os.getpid())
    assert found.peak_mb >= found.rss_mb > 1


def test_busy_time_passes_while_something_runs() -> None:
    meter = NoiseMeter()
    subprocess.run([sys.executable, "-c", BURN.format(0.1)], check=True)
    assert meter.read().busy_s > 0.05


def test_the_summary_of_producer_performance_is_read() -> None:
    lines = (
        "100 records sent, 19.9 records/sec (0.02 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n"
        "500000 records sent, 123456.7 records/sec (120.56 MB/sec), 12.34 ms avg latency, 250.00 ms max latency, "
        "10 ms 50th, 40 ms 95th, 55 ms 99th, 80 ms 99.9th.\n"
    )
    assert java_summary(lines) == JavaRun(123456.7, 10.0, 55.0)


def test_without_a_summary_there_is_none() -> None:
    assert java_summary("100 records sent, 19.9 records/sec (0.02 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n") is None
