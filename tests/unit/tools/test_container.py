"""The container files, as far as they can be looked at without an engine: what the image starts, and what the compose file
makes of it."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path, PurePosixPath

import pytest

from pybroker.base.ids import uuid_from_text
from pybroker.config import Config, load_file
from pybroker.server.bootstrap import FormatPlan, plan_by_itself
from pybroker.tools import ping, start

ROOT = Path(__file__).resolve().parents[3]
PROPERTIES = ROOT / "config" / "container.properties"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()
NODES = ("broker-1", "broker-2", "broker-3")
VARIABLE = r"([A-Z_]+): (.+)$"


def command(instruction: str) -> list[str]:
    """The words of an instruction in exec form."""
    (words,) = re.findall(rf"^{instruction}\b.*?(\[.*\])$", DOCKERFILE, re.M)
    found = json.loads(words)
    assert isinstance(found, list)
    return found


def service(name: str) -> str:
    (found,) = re.findall(rf"^  {name}:\n((?:    .*\n)+)", COMPOSE, re.M)
    return str(found)


def environment(name: str) -> dict[str, str]:
    """A service's own variables over those that all have."""
    assert "<<: *environment" in service(name)
    (common,) = re.findall(r"^x-environment: &environment\n((?:  .*\n)+)", COMPOSE, re.M)
    return dict(re.findall(rf"^  {VARIABLE}", common, re.M)) | dict(re.findall(rf"^      {VARIABLE}", service(name), re.M))


def config(variables: dict[str, str]) -> Config:
    loaded = load_file(PROPERTIES, environment=variables)
    assert loaded.problems == ()
    assert loaded.config is not None
    return loaded.config


class TestImage:
    def test_no_shell_stands_between_a_signal_and_the_node(self) -> None:
        assert command("ENTRYPOINT") == ["pybroker"]

    def test_what_it_starts_reads_its_file_and_the_environment_and_formats(self) -> None:
        name, *options = command("CMD")
        parser = argparse.ArgumentParser()
        start.add_arguments(parser)
        args = parser.parse_args(options)
        assert (name, args.env, args.format_if_needed) == ("start", True, True)
        assert f"COPY config/{PROPERTIES.name} {args.properties}\n" in DOCKERFILE

    def test_alone_it_is_a_cluster_of_its_own(self) -> None:
        assert plan_by_itself(config({}), None) == FormatPlan(standalone=True)

    def test_data_is_in_the_volume_and_the_volume_the_users(self) -> None:
        (volume,) = re.findall(r"^VOLUME (.+)$", DOCKERFILE, re.M)
        assert [PurePosixPath(path).parent for path in config({}).items_of("log.dirs")] == [PurePosixPath(volume)]
        assert f"install -d -o pybroker -g pybroker {volume}\n" in DOCKERFILE
        assert re.search(r"^USER 1000:1000$", DOCKERFILE, re.M)

    def test_the_health_check_asks_the_port_that_is_exposed(self) -> None:
        program, name, *options = command("HEALTHCHECK")
        parser = argparse.ArgumentParser()
        ping.add_arguments(parser)
        address = parser.parse_args(options).address
        assert (program, name, address) == ("pybroker", "ping", f"localhost:{config({}).broker_listeners[0].port}")
        assert f"EXPOSE {address.partition(':')[2]}\n" in DOCKERFILE

    def test_what_it_is_built_from_reaches_the_engine(self) -> None:
        let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
        copied = {name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M) for name in line.split()}
        assert copied == let_in
        assert all((ROOT / name).exists() for name in copied)


class TestCompose:
    def test_the_services_are_the_nodes(self) -> None:
        services = COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
        assert tuple(re.findall(r"^  (\S+):$", services, re.M)) == NODES
        assert [config(environment(name)).int("node.id") for name in NODES] == [1, 2, 3]

    def test_they_agree_on_cluster_and_voters(self) -> None:
        (cluster_id,) = {environment(name)["CLUSTER_ID"] for name in NODES}
        uuid_from_text(cluster_id)
        (voters,) = {config(environment(name)).items_of("controller.quorum.voters") for name in NODES}
        assert voters == tuple(f"{number}@{name}:9093" for number, name in enumerate(NODES, 1))
        assert all(plan_by_itself(config(environment(name)), cluster_id) == FormatPlan() for name in NODES)

    @pytest.mark.parametrize("name", NODES)
    def test_a_variable_is_a_key_or_the_cluster_id(self, name: str) -> None:
        variables = environment(name)
        given = {one.where for one in config(variables).given.values()}
        assert {f"environment variable {variable}" for variable in variables.keys() - {"CLUSTER_ID"}} <= given

    @pytest.mark.parametrize(("name", "port"), [("broker-1", 9092), ("broker-2", 9094), ("broker-3", 9096)])
    def test_clients_reach_each_from_this_machine_and_from_containers(self, name: str, port: int) -> None:
        node = config(environment(name))
        inside = {one.name: one.port for one in node.listeners}
        advertised = {one.name: (one.host, one.port) for one in node.advertised_listeners}
        assert advertised == {
            "EXTERNAL": ("localhost", port),
            "INTERNAL": (name, inside["INTERNAL"]),
            "CONTROLLER": (name, inside["CONTROLLER"]),
        }
        assert f'ports: ["127.0.0.1:{port}:{inside["EXTERNAL"]}"]' in service(name)
        assert node["inter.broker.listener.name"] == "INTERNAL"
        # What the image's health check asks.
        assert inside["EXTERNAL"] == 9092

    @pytest.mark.parametrize("name", NODES)
    def test_each_has_a_volume_of_its_own(self, name: str) -> None:
        assert f'volumes: ["{name}:/var/lib/pybroker"]' in service(name)
        assert name in re.findall(r"^  (\S+):$", COMPOSE.partition("\nvolumes:\n")[2], re.M)
