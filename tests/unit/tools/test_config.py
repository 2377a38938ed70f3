from __future__ import annotations

import json
from pathlib import Path

import pytest

from pybroker.config.keys import BROKER, CLIENT_METRICS, GROUP, TOPIC
from pybroker.tools.main import main

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "config" / "server.properties"


def test_a_good_file_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", str(SAMPLE)]) == 0
    assert capsys.readouterr() == (f"{SAMPLE}: ok\n", "")


def test_a_warning_is_said_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", str(SAMPLE), "--override", "zookeeper.connect=h"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{SAMPLE}: ok, with 1 warning\n"
    assert err.startswith("command line: warning: zookeeper.connect has no effect")


def test_errors_are_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", str(SAMPLE), "--override", "node.id=x", "--override", "num.io.threads=0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "command line: error: node.id=x is not allowed; allowed: at least 0",
        "command line: error: num.io.threads=0 is not allowed; allowed: at least 1",
    ]


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "--check", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def described(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["config", "--describe", *args]) == 0
    return capsys.readouterr().out


def test_without_all_only_what_works_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(described(capsys, "--scope", "broker", "--format", "json"))
    names = {row["name"] for row in rows}
    assert names == {name for name, key in BROKER.items() if key.implemented and not key.internal}
    assert "metric.reporters" not in names


def test_with_all_everything_is(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(described(capsys, "--all", "--format", "json"))
    assert len(rows) == len(BROKER) + len(TOPIC) + len(GROUP) + len(CLIENT_METRICS)
    [row] = [row for row in rows if row["name"] == "metric.reporters"]
    assert row["ignored"].startswith("names Java classes")
    [row] = [row for row in rows if row["name"] == "log.retention.ms"]
    assert row["fallbacks"][0] == {"name": "log.retention.minutes", "factor": 60000}


@pytest.mark.parametrize(("scope", "keys"), [("topic", TOPIC), ("group", GROUP), ("client-metrics", CLIENT_METRICS)])
def test_one_scope(capsys: pytest.CaptureFixture[str], scope: str, keys: dict[str, object]) -> None:
    rows = json.loads(described(capsys, "--all", "--scope", scope, "--format", "json"))
    assert [row["name"] for row in rows] == list(keys)


def test_the_text_form(capsys: pytest.CaptureFixture[str]) -> None:
    text = described(capsys, "--all", "--scope", "broker")
    assert "process.roles\n    list; required; a list of broker, controller; read-only\n" in text
    assert "No effect: Kerberos (GSSAPI) is not supported." in text


def test_the_documentation_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    current = described(capsys, "--all", "--format", "markdown")
    stored = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert stored == current, "docs/configuration.md is stale: run `make docs`"


def test_describe_or_check_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["config"])
    assert "--describe" in capsys.readouterr().err
