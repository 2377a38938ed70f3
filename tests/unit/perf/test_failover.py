"""What the failover measurement makes of moments: pauses, medians, verdicts."""

from __future__ import annotations

from perf.failover.report import markdown, table
from perf.failover.trials import Outcome
from support.stream import longest_gap

LABELS = {"apache": "Apache Kafka", "pybroker": "pybroker"}


def test_a_pause_that_ends_after_the_kill_counts_from_the_acknowledgement_before_it() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 5.5], begin=2.5, end=6.0) == 3.0


def test_pauses_that_ended_before_or_end_later_do_not_count() -> None:
    assert longest_gap([0.0, 9.0, 9.5, 10.0, 30.0], begin=9.2, end=11.0) == 0.5


def test_no_acknowledgement_is_no_pause_here_since_the_trial_waits_for_one() -> None:
    assert longest_gap([1.0, 2.0], begin=3.0, end=4.0) == 0.0


def test_the_table_judges_the_median_and_what_was_lost() -> None:
    apache = Outcome("apache", "leader", [9.0, 10.0, 9.5], [0.1, 0.2, 0.3], 1000)
    ours = Outcome("pybroker", "leader", [0.4, 2.0, 0.5], [0.1, 0.4, 0.2], 1000)
    slow = Outcome("pybroker", "controller", [3.0], [0.1], 10)
    lossy = Outcome(
        "pybroker", "sigterm", [0.1], [0.1], 10, ["partition 0: 10 sent, (found, distinct, acknowledged) (9, 9, 10)"]
    )
    rows = table([apache, ours, slow, lossy], LABELS).splitlines()[2:]
    assert "| Apache Kafka | 3 | 9.50 | 10.00 | 0.20 | 0.30 | 1,000 | none |  |" in rows[0]
    assert "| pybroker | 3 | 0.50 | 2.00 | 0.20 | 0.40 | 1,000 | none | median ≤ 1.5 s: met |" in rows[1]
    assert rows[2].endswith("median ≤ 2.5 s: **missed** |")
    assert rows[3].endswith("(9, 9, 10) | median ≤ 0.5 s: **missed** |")


def test_the_document_lists_every_pause() -> None:
    machine = {"when": "today", "processor": "2 x Chip", "memory": "8 GiB", "kernel": "Linux 6", "python": "3.11"}
    outcome = Outcome("pybroker", "sigterm", [0.1], [0.1], 10, loads=[0.5])
    outcome.add(Outcome("pybroker", "sigterm", [0.25], [0.1], 10, loads=[1.5]))
    found = markdown([outcome], LABELS, machine)
    assert "- SIGTERM, pybroker: 0.10, 0.25" in found
    assert "load average was 0.5 to 1.5" in found
