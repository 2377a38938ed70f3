"""The command line of `pybroker start`, as far as it goes without a node that runs: tests/node has those."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes import running

from pybroker.config import load_text
from pybroker.log.manager.directories import LogDirError
from pybroker.server.node import Node
from pybroker.tools.main import main
from pybroker.tools.start import EMBEDDED

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
log.dirs={data}
"""


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """A start takes the signals and the logging of its process for itself."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    root = logging.getLogger()
    loggers, level = list(root.handlers), root.level
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    root.handlers[:] = loggers
    root.setLevel(level)
    for number, name in ((logging.WARNING, "WARNING"), (logging.CRITICAL, "CRITICAL")):
        logging.addLevelName(number, name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES.format(data=tmp_path / "data"))
    return path


def run(*arguments: object) -> int:
    return main(["start", *map(str, arguments)])


class TestConfiguration:
    def test_the_embedded_defaults_have_no_problem_and_are_one_node_on_localhost(self) -> None:
        loaded = load_text(EMBEDDED, "embedded defaults", [])
        assert loaded.problems == ()
        assert loaded.config is not None
        assert [str(listener) for listener in loaded.config.listeners] == [
            "PLAINTEXT://localhost:9092",
            "CONTROLLER://localhost:9093",
        ]
        assert loaded.config.items_of("log.dirs") == ("pybroker-data",)

    def test_a_file_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("nothing.properties") == 1
        assert capsys.readouterr().err == "nothing.properties: error: cannot be read: No such file or directory\n"

    def test_a_key_that_is_not_known(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(file, "--override", "log.retention.mss=5") == 1
        assert "command line: error: log.retention.mss is not a known key; did you mean log.retention.ms?" in (
            capsys.readouterr().err
        )

    def test_a_value_that_is_not_allowed(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(file, "--override", "num.io.threads=none") == 1
        assert "num.io.threads" in capsys.readouterr().err

    def test_an_override_without_a_value(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(file, "--override", "num.io.threads") == 1
        assert "an override is written key=value" in capsys.readouterr().err

    def test_a_level_that_is_not_known(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            run(file, "--log-level", "loud")
        assert caught.value.code == 2
        assert "loud" in capsys.readouterr().err


class TestEnvironment:
    def check(self, file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
        return run(file, "--check", "--format-if-needed", *options), capsys.readouterr().err

    def test_it_has_no_say_unless_asked_for(
        self, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "none")
        assert self.check(file, capsys)[0] == 0
        code, error = self.check(file, capsys, "--env")
        assert code == 1
        assert error.startswith("environment variable KAFKA_NUM_IO_THREADS: error: num.io.threads=none is not allowed")

    def test_the_command_line_wins_over_it(
        self, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "none")
        assert self.check(file, capsys, "--env", "--override", "num.io.threads=1")[0] == 0

    def test_the_embedded_defaults_heed_it_too(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "elsewhere"))
        monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0")
        assert run("--env", "--check") == 0
        assert f"{tmp_path / 'elsewhere'}: not formatted yet; the start does that" in capsys.readouterr().err

    def test_one_of_several_nodes_needs_the_cluster_id_of_them_all(
        self, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@127.0.0.1:9093,2@127.0.0.1:9095")
        monkeypatch.delenv("CLUSTER_ID", raising=False)
        code, error = self.check(file, capsys, "--env")
        assert (code, "all of them need the same cluster id" in error) == (1, True)
        monkeypatch.setenv("CLUSTER_ID", "")
        assert self.check(file, capsys, "--env")[0] == 1
        monkeypatch.setenv("CLUSTER_ID", "MkU3OEVBNTcwNTJENDM2Qg")
        assert self.check(file, capsys, "--env")[0] == 0

    def test_a_directory_of_another_cluster(
        self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with running(tmp_path / "data"):
            pass
        monkeypatch.setenv("CLUSTER_ID", "MkU3OEVBNTcwNTJENDM2Qg")
        assert self.check(file, capsys)[0] == 0
        code, error = self.check(file, capsys, "--env")
        assert code == 1
        assert "already; expected MkU3OEVBNTcwNTJENDM2Qg" in error
        assert run(file, "--env", "--format-if-needed") == 1
        assert "already; expected MkU3OEVBNTcwNTJENDM2Qg" in capsys.readouterr().err


class TestRefusals:
    def test_a_directory_that_is_not_formatted(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(file) == 1
        error = capsys.readouterr().err
        assert f"FATAL {tmp_path / 'data'}: not formatted yet. Format with\n" in error
        assert f"\n  pybroker storage format -t CLUSTER_ID -c {file} --standalone\n" in error
        assert not (tmp_path / "data").exists()

    def test_a_directory_that_another_node_uses(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with running(tmp_path / "data"):
            assert run(file, "--override", "controller.quorum.voters=1@127.0.0.1:9093") == 1
        assert f"FATAL log directory {tmp_path / 'data'} is locked" in capsys.readouterr().err

    def test_a_port_in_use(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
            assert run(file, "--format-if-needed", "--override", listeners) == 1
        error = capsys.readouterr().err
        assert f"FATAL cannot listen on PLAINTEXT://127.0.0.1:{port}: port {port} is in use by another process\n" in error
        assert "Traceback" not in error

    def test_what_a_start_says_of_its_logging_begins_with_time_and_level(
        self, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Node) -> None:
            logging.getLogger("pybroker").warning("about to fail")
            raise LogDirError("not a StartError")

        monkeypatch.setattr(Node, "_start", fail)
        assert run(file) == 1
        lines = capsys.readouterr().err.splitlines()
        assert [line[23:] for line in lines] == [" WARN  about to fail", " FATAL not a StartError"]


class TestCheck:
    def test_what_is_well(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with running(tmp_path / "data"):
            pass
        assert run(file, "--check") == 0
        assert capsys.readouterr() == ("ok\n", "")

    def test_what_is_not_formatted_is_an_error_unless_the_start_would_do_it(
        self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(file, "--check") == 1
        assert f"pybroker storage format -t CLUSTER_ID -c {file} --standalone" in capsys.readouterr().err
        assert run(file, "--check", "--format-if-needed") == 0
        output = capsys.readouterr()
        assert output.out == "ok, with 1 warning\n"
        assert "this machine: warning: log.dirs: " in output.err
        assert not (tmp_path / "data").exists()

    def test_every_problem_is_told_at_once(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with running(tmp_path / "data"), socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            override = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
            assert run(file, "--check", "--override", override) == 1
        output = capsys.readouterr()
        assert output.out == ""
        assert [line.split(":")[2].strip() for line in output.err.splitlines()] == ["log.dirs", "listeners"]

    def test_warnings_of_the_file_count_too(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with running(tmp_path / "data"), socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://:{port},CONTROLLER://127.0.0.1:0"
        advertised = f"advertised.listeners=PLAINTEXT://localhost:{port}"
        arguments = [part for text in (listeners, advertised, "zookeeper.connect=h") for part in ("--override", text)]
        assert run(file, "--check", *arguments) == 0
        output = capsys.readouterr()
        assert "tells clients to connect to their own machine" in output.err
        assert "zookeeper.connect has no effect" in output.err
        assert output.out == "ok, with 2 warnings\n"
