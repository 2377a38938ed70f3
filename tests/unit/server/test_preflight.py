"""What `--check` finds wrong with this machine: directories, ports, advertised addresses."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.nodes import config, running

from pybroker.base.filesystem import OsFileSystem
from pybroker.config import Severity
from pybroker.server.bootstrap import format_if_needed
from pybroker.server.node import Node, StartError
from pybroker.server.preflight import problems_of

NOW_MS = 1_700_000_000_000


def found(data: Path, *, formats: bool = False, **settings: object) -> list[tuple[str, str]]:
    """(severity, message) of all problems."""
    problems = problems_of(
        config(data, **settings), OsFileSystem(), now_ms=NOW_MS, formats=formats, config_file="my.properties"
    )
    return [(problem.severity.value, problem.message) for problem in problems]


def only(data: Path, *, formats: bool = False, **settings: object) -> tuple[str, str]:
    (problem,) = found(data, formats=formats, **settings)
    return problem


@pytest.fixture
def formatted(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    format_if_needed(OsFileSystem(), config(data), now_ms=NOW_MS)
    return data


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class TestDirectories:
    def test_a_formatted_one_has_no_problem_and_stays_as_it_was(self, formatted: Path) -> None:
        before = sorted(os.listdir(formatted))
        assert found(formatted) == []
        assert sorted(os.listdir(formatted)) == sorted({*before, ".lock"})

    def test_one_that_is_not_formatted_is_an_error_with_the_command_that_formats_it(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        severity, message = only(tmp_path / "data")
        assert severity == "error"
        assert f"{tmp_path / 'data'}: not formatted yet" in message
        assert "pybroker storage format -t CLUSTER_ID -c my.properties" in message

    def test_one_that_is_not_formatted_is_a_warning_where_the_start_formats_it(self, tmp_path: Path) -> None:
        severity, message = only(tmp_path / "data", formats=True)
        assert severity == "warning"
        assert f"{tmp_path / 'data'}: not formatted yet; the start does that" in message
        assert not (tmp_path / "data").exists()

    def test_a_new_one_beside_a_formatted_one_is_a_warning(self, formatted: Path, tmp_path: Path) -> None:
        severity, message = only(formatted, log_dirs=f"{formatted},{tmp_path / 'new'}")
        assert (severity, message) == ("warning", f"log.dirs: {tmp_path / 'new'} is not there; the start sees to that")

    def test_one_that_cannot_be_made(self, formatted: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        problems = found(formatted, log_dirs=f"{formatted},{tmp_path / 'file' / 'below'}")
        assert ("error", f"log.dirs: {tmp_path / 'file' / 'below'} is not there and cannot be made: ") in [
            (severity, message.removesuffix(f"{tmp_path / 'file'} is no directory that we may write to"))
            for severity, message in problems
        ]

    def test_one_that_is_a_file(self, formatted: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        severity, message = only(formatted, log_dirs=f"{formatted},{tmp_path / 'file'}")
        assert severity == "error"
        assert f"{tmp_path / 'file'} cannot be read" in message
        assert "Not a directory" in message

    def test_one_whose_disk_fails(self, formatted: Path, tmp_path: Path) -> None:
        disk = FaultyDisk()
        disk.broken.add(str(tmp_path / "b"))
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "meta.properties").write_text("")
        problems = problems_of(config(formatted, log_dirs=f"{formatted},{tmp_path / 'b'}"), disk, now_ms=NOW_MS)
        assert [problem.severity for problem in problems] == [Severity.ERROR]
        assert "Input/output error" in problems[0].message

    def test_one_that_a_running_node_uses(self, tmp_path: Path) -> None:
        with running(tmp_path):
            severity, message = only(tmp_path)
        assert severity == "error"
        assert f"log directory {tmp_path} is locked: another process holds" in message

    def test_one_of_another_node(self, formatted: Path) -> None:
        severity, message = only(formatted, node_id=2, controller_quorum_voters="2@127.0.0.1:9093")
        assert severity == "error"
        assert "belongs to node 1; the configuration says node.id=2" in message

    def test_two_of_two_clusters(self, formatted: Path, tmp_path: Path) -> None:
        format_if_needed(OsFileSystem(), config(tmp_path / "other"), now_ms=NOW_MS)
        severity, message = only(formatted, log_dirs=f"{formatted},{tmp_path / 'other'}")
        assert severity == "error"
        assert "belongs to cluster" in message

    def test_the_metadatas_own_directory_is_looked_at_too(self, formatted: Path, tmp_path: Path) -> None:
        severity, message = only(formatted, metadata_log_dir=tmp_path / "metadata")
        assert severity == "error"
        assert f"{tmp_path / 'metadata'} is not there" in message


class TestPorts:
    def test_a_port_in_use_is_named_with_its_listener(self, formatted: Path, taken: int) -> None:
        problems = found(formatted, listeners=f"PLAINTEXT://127.0.0.1:{taken},CONTROLLER://127.0.0.1:0")
        assert problems == [
            (
                "error",
                f"listeners: cannot listen on PLAINTEXT://127.0.0.1:{taken}: port {taken} is in use by another process",
            )
        ]

    def test_every_port_in_use_is_named(self, formatted: Path, taken: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            ports = (taken, other.getsockname()[1])
            listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
            messages = [message for _, message in found(formatted, listeners=listeners)]
        assert [str(port) in message for port, message in zip(ports, messages, strict=True)] == [True, True]

    def test_an_address_that_is_not_this_machines(self, formatted: Path) -> None:
        severity, message = only(formatted, listeners="PLAINTEXT://192.0.2.1:0,CONTROLLER://127.0.0.1:0")
        assert severity == "error"
        assert "192.0.2.1 is no address of this machine" in message

    def test_a_name_that_is_no_host(self, formatted: Path) -> None:
        problems = found(formatted, listeners="PLAINTEXT://no-such-host.invalid:0,CONTROLLER://127.0.0.1:0")
        assert any("cannot listen on PLAINTEXT://no-such-host.invalid:0" in message for _, message in problems)

    @pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
    def test_a_protocol_that_is_not_there_yet_is_refused_in_the_words_of_the_start(
        self, formatted: Path, protocol: str
    ) -> None:
        secured = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener_security_protocol_map": f"PLAINTEXT:PLAINTEXT,SECURE:{protocol},CONTROLLER:PLAINTEXT",
            "sasl_enabled_mechanisms": "PLAIN",
        }
        severity, message = only(formatted, **secured)
        assert severity == "error"
        with pytest.raises(StartError, match=f"{protocol} is not there yet") as caught:
            Node(config(formatted, **secured)).start()
        assert message == f"listeners: {caught.value}"

    def test_the_ports_are_free_again_afterwards(self, formatted: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        assert found(formatted, listeners=listeners) == []
        assert found(formatted, listeners=listeners) == []


class TestAdvertised:
    def test_what_nobody_listens_on_cannot_be_reached(self, formatted: Path) -> None:
        with socket.socket() as silent:
            # Nobody else can have the port meanwhile.
            silent.bind(("127.0.0.1", 0))
            port = silent.getsockname()[1]
            severity, message = only(formatted, advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}")
        assert severity == "error"
        assert f"PLAINTEXT://127.0.0.1:{port} cannot be reached from here: Connection refused" in message

    def test_a_name_that_nobody_knows_cannot_be_reached(self, formatted: Path) -> None:
        severity, message = only(formatted, advertised_listeners="PLAINTEXT://no-such-host.invalid:9092")
        assert severity == "error"
        assert "PLAINTEXT://no-such-host.invalid:9092 cannot be reached from here" in message

    def test_localhost_advertised_by_a_public_listener_is_a_warning(self, formatted: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        severity, message = only(
            formatted,
            listeners=f"PLAINTEXT://:{port},CONTROLLER://127.0.0.1:0",
            advertised_listeners=f"PLAINTEXT://localhost:{port}",
        )
        assert severity == "warning"
        assert "tells clients to connect to their own machine, though the node listens on all interfaces" in message

    def test_localhost_advertised_by_a_listener_on_localhost_is_fine(self, formatted: Path) -> None:
        assert found(formatted, listeners="PLAINTEXT://localhost:0,CONTROLLER://localhost:0") == []
