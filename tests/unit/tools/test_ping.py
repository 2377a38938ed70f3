from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support.nodes import running

from pybroker.tools.main import main


def test_a_node_that_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as node:
        assert main(["ping", f"127.0.0.1:{node.port}"]) == 0
        assert f"127.0.0.1:{node.port} serves " in capsys.readouterr().out
        assert main(["ping", f"127.0.0.1:{node.controller_port}"]) == 0


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert main(["ping", f"127.0.0.1:{port}"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"ERROR 127.0.0.1:{port}: not connected: ")


def test_one_that_accepts_and_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert main(["ping", f"127.0.0.1:{port}", "--timeout-ms", "50"]) == 1
    assert capsys.readouterr().err.startswith(f"ERROR 127.0.0.1:{port}: ")


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", "localhost"]) == 1
    assert capsys.readouterr().err == "ERROR 'localhost' is no address; expected host:port\n"
