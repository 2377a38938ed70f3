from __future__ import annotations

import subprocess
import sys

import pytest

from pybroker import __version__
from pybroker.tools.main import main


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"pybroker {__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(command in text for command in ("start", "storage", "config", "protocol"))


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["strat"])
    assert stopped.value.code == 2
    assert "strat" in capsys.readouterr().err


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "pybroker", "--version"], capture_output=True, text=True)
    assert done.stdout == f"pybroker {__version__}\n"


def test_a_command_imports_no_other_commands_module() -> None:
    code = (
        "import sys; from pybroker.tools.main import main; main(['config', '--describe', '--format', 'json']); "
        "print('pybroker.protocol' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "False\n"
