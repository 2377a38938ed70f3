"""A test that judges the safety of data is not given a second chance; any other is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
INI = f"[pytest]\nmarkers = verdict\npythonpath = {TESTS}\n"
TEST = """
import os
import pytest
from support.waiting import wait_until

@pytest.mark.verdict
def test_verdict():
    wait_until(lambda: "late" not in os.environ["FAILS"], 0, lambda: "it is late")
    assert "verdict" not in os.environ["FAILS"]

def test_other():
    assert "other" not in os.environ["FAILS"]
"""


class Project:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        shutil.copy(TESTS / "conftest.py", directory / "conftest.py")
        (directory / "pytest.ini").write_text(INI)
        (directory / "test_it.py").write_text(TEST)

    def run(self, *options: str, fails: str = "") -> int:
        command = [sys.executable, "-m", "pytest", "-q", *options]
        done = subprocess.run(command, cwd=self._directory, env={"FAILS": fails}, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        return done.returncode


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_verdict_that_failed_is_not_tried_again(project: Project) -> None:
    assert project.run(fails="verdict") == 1
    assert project.run("--last-failed") == 42
    # Nor may the next one forget it.
    assert project.run("--last-failed") == 42
    assert project.run() == 0
    assert project.run("--last-failed", "--last-failed-no-failures", "none") == 5


@pytest.mark.parametrize("fails", ["other", "late"])
def test_whatever_else_failed_is(project: Project, fails: str) -> None:
    assert project.run(fails=fails) == 1
    assert project.run("--last-failed") == 0
