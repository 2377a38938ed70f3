"""kafka-python's own integration tests, from its source distribution, against the node.

What is left out is in EXCLUDED, each with the reason; a name there that the suite no longer has fails the test, and so does a
test that is neither left out nor passes. INTEROP_BROKERS=apache shows that the rest is right.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tarfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
from interop.apache_kafka import ROOT
from interop.broker_process import BrokerProcess

pytest.importorskip("kafka")

SECURITY = "needs an authorizer or TLS, which come with a later issue"
EXCLUDED = {
    "test_create_describe_delete_acls": SECURITY,
    "test_ssl_handshake": SECURITY,
    "test_legacy_kafka_client_ssl": SECURITY,
    "test_admin*": "starts a broker of its own with SASL",
    "test_produce_and_consume*": "starts a broker of its own with SASL",
    "test_client*": "starts a broker of its own with SASL",
    "test_kafka_consumer_offsets_for_time_old": "is for brokers before 0.10.1",
}
RUN_S = 280

# The distribution has the tests without two files that they import. The first only has to be there; of the second, an
# external broker needs no more than this.
_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    pass
"""


def test_kafka_pythons_own_integration_tests(
    broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = _suite()
    directory = tmp_path_factory.mktemp("suite")
    names = _collected(folder)
    unknown = [name for name in EXCLUDED if not fnmatch.filter(names.values(), name)]
    assert not unknown, f"the suite has no such test any more: {unknown}"
    wanted = [path for path, name in names.items() if not any(fnmatch.fnmatchcase(name, pattern) for pattern in EXCLUDED)]
    # The suite takes its broker for number 0, which makes unknown topics and lets sessions be short.
    properties = {
        "node.id": "0",
        "num.partitions": "4",
        "auto.create.topics.enable": "true",
        "group.min.session.timeout.ms": "1000",
    }
    with broker_class(directory / "broker", properties) as broker:
        report = directory / "report.xml"
        run = _pytest(folder, *wanted, f"--junitxml={report}", "--timeout=60", uri=f"kafka://{broker.bootstrap}")
    cases = list(ElementTree.parse(report).iter("testcase"))
    problems = [
        f"{case.get('name')}: {(problem.get('message') or '')[:400]}"
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error", "skipped")
    ]
    assert not problems, "\n".join(problems)
    assert run.returncode == 0, run.stdout[-3000:]
    assert len(cases) == len(wanted)


@cache
def _suite() -> Path:
    """The unpacked source distribution of the installed version, fetched once."""
    release = version("kafka-python")
    folder = ROOT / "build" / "clients" / f"kafka_python-{release}"
    stamp = folder / ".complete"
    if not stamp.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        download = ("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder.parent))
        command = (sys.executable, "-m", "pip", *download, f"kafka-python=={release}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        with tarfile.open(folder.with_name(f"{folder.name}.tar.gz")) as archive:
            archive.extractall(folder.parent, filter="data")
        (folder / "test" / "__init__.py").touch()
        (folder / "test" / "service.py").write_text(_SERVICE)
        stamp.touch()
    return folder


def _collected(folder: Path) -> dict[str, str]:
    """The names of the suite's tests, without parameters, by their paths."""
    listed = _pytest(folder, "test/integration", "--collect-only", "-q")
    paths = [line for line in listed.stdout.splitlines() if "::" in line]
    assert listed.returncode == 0, listed.stdout[-3000:]
    return {path: path.partition("[")[0].rpartition("::")[2] for path in paths}


def _pytest(folder: Path, *options: str, uri: str = "kafka://nowhere:1") -> subprocess.CompletedProcess[str]:
    # KAFKA_ROOT would be the folder of the broker that the suite would start.
    environment = os.environ | {"KAFKA_VERSION": "4.3", "KAFKA_URI": uri, "KAFKA_ROOT": str(folder)}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "--show-capture=no", *options)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S)
