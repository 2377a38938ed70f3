"""franz-go's own tests of its client (package kgo), from the Go module, against the node.

What is left out is in EXCLUDED, each with the reason; a name there that the suite no longer has fails the test, and so does a
test that is neither left out nor passes. INTEROP_BROKERS=apache shows that the rest is right.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.programs import franz_go_suite

SHARE_GROUPS = "needs share groups, which come with a later issue"
SECURITY = "needs SASL, which comes with a later issue"
EXCLUDED = {
    "TestConsumeRegexShareSkipsInternal": SHARE_GROUPS,
    "TestShareGroup": SHARE_GROUPS,
    "TestShareGroupETL": SHARE_GROUPS,
    "TestShareGroupAckOnClose": SHARE_GROUPS,
    "TestShareGroupOffsetsAdmin": SHARE_GROUPS,
    "TestSCRAMAuth": SECURITY,
    "TestSCRAMAuthBadCredentials": SECURITY,
    "TestIssueProduceBrokerTooOldFailsRecords": "is for brokers before 0.11",
}
RUN_S = 240


def test_franz_gos_own_tests(broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> None:
    program, source = franz_go_suite()
    listed = _run(program, source, "-test.list", ".*").stdout.split()
    unknown = EXCLUDED.keys() - set(listed)
    assert not unknown, f"the suite has no such test any more: {unknown}"
    skipped = "|".join(f"^{name}$" for name in EXCLUDED)
    with broker_class(tmp_path_factory.mktemp("suite"), {"auto.create.topics.enable": "true"}) as broker:
        run = _run(program, source, "-test.v", "-test.timeout", f"{RUN_S}s", "-test.skip", skipped, seeds=broker.bootstrap)
    outcomes = _outcomes(run.stdout)
    bad = {name: outcome for name, outcome in outcomes.items() if outcome != "PASS"}
    assert not bad, f"{bad}\n{run.stdout[-3000:]}"
    assert run.returncode == 0, f"{run.stdout[-3000:]}{run.stderr[-3000:]}"
    wanted = {name for name in listed if name.startswith(("Test", "Fuzz"))} - EXCLUDED.keys()
    assert {name for name in outcomes if "/" not in name} == wanted


def _outcomes(text: str) -> dict[str, str]:
    """PASS, FAIL or SKIP by the test's name."""
    return {name: outcome for outcome, name in re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)}


def _run(program: Path, source: Path, *options: str, seeds: str = "") -> subprocess.CompletedProcess[str]:
    # Some of the tests read their package's source.
    environment = os.environ | {"KGO_SEEDS": seeds, "KGO_TEST_RF": "1"}
    return subprocess.run([program, *options], cwd=source, env=environment, capture_output=True, text=True, timeout=RUN_S + 30)
