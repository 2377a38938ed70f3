"""kafka-features, kafka-acls, and kafka-configs for users, clients, addresses, client metrics and groups, against the node:
they say what they say of Apache Kafka."""

from __future__ import annotations

import re

import pytest
from interop.tools.both import ACL_COMMAND, CLIENT_METRICS_COMMAND, CONFIG_COMMAND, FEATURE_COMMAND, Both, Said
from support.waiting import wait_until

from pybroker.metadata.controller.features import SUPPORTED


def configs(both: Both, *args: str, exit_code: int = 0) -> Said:
    return both.same(CONFIG_COMMAND, *args, exit_code=exit_code)


def exceptions(said: Said) -> list[str]:
    return re.findall(r"\b\w+Exception\b", said.stdout + said.stderr)


def features_of(said: Said) -> list[str]:
    """The lines of the features that we support, without the epoch, which is an offset of each log."""
    lines = [re.sub(r"Epoch: \d+", "Epoch: N", line) for line in said.lines("Feature: ")]
    return [line for line in lines if line.split()[1] in SUPPORTED]


class TestFeatures:
    def test_describe(self, both: Both) -> None:
        apache, node = both.run(FEATURE_COMMAND, "describe")
        assert apache.exit_code == node.exit_code == 0
        assert features_of(node) == features_of(apache)
        assert any("metadata.version" in line and "4.3-IV0" in line for line in features_of(node))

    def test_the_level_it_has(self, both: Both) -> None:
        assert both.same(FEATURE_COMMAND, "upgrade", "--feature", "metadata.version=30").stdout

    def test_dry_runs(self, both: Both) -> None:
        both.same(FEATURE_COMMAND, "upgrade", "--feature", "metadata.version=30", "--dry-run")

    @pytest.mark.parametrize(
        "args",
        [
            ("upgrade", "--feature", "metadata.version=99"),
            ("upgrade", "--feature", "metadata.version=29"),
            ("upgrade", "--feature", "shoe.size=44"),
            ("downgrade", "--feature", "metadata.version=29"),
            ("downgrade", "--feature", "metadata.version=29", "--unsafe"),
            ("downgrade", "--feature", "metadata.version=29", "--dry-run"),
            ("disable", "--feature", "metadata.version"),
            ("disable", "--feature", "metadata.version", "--unsafe"),
            ("downgrade", "--feature", "kraft.version=2"),
        ],
        ids=" ".join,
    )
    def test_refused(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(FEATURE_COMMAND, *args)
        assert node.exit_code == apache.exit_code == 1
        # The words behind the feature's name are a broker's own.
        assert [line.split(".")[0] for line in node.lines()] == [line.split(".")[0] for line in apache.lines()]

    def test_version_mapping_and_dependencies(self, both: Both) -> None:
        both.same(FEATURE_COMMAND, "feature-dependencies", "--feature", "eligible.leader.replicas.version=1")
        both.same(FEATURE_COMMAND, "version-mapping", "--release-version", "4.3-IV0")


class TestQuotas:
    @pytest.mark.parametrize(
        "entity",
        [
            ("--entity-type", "users", "--entity-name", "tools-alice"),
            ("--entity-type", "clients", "--entity-name", "tools-app"),
            ("--entity-type", "users", "--entity-name", "tools-bob", "--entity-type", "clients", "--entity-name", "app"),
            ("--entity-type", "users", "--entity-name", "tools-carol", "--entity-type", "clients", "--entity-default"),
        ],
        ids=lambda entity: " ".join(entity[1::2]),
    )
    def test_from_setting_to_deleting(self, both: Both, entity: tuple[str, ...]) -> None:
        configs(both, *entity, "--alter", "--add-config", "producer_byte_rate=1000,request_percentage=12.5")
        assert "producer_byte_rate=1000" in configs(both, *entity, "--describe").stdout
        configs(both, *entity, "--alter", "--add-config", "consumer_byte_rate=5", "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in configs(both, *entity, "--describe").stdout
        configs(both, *entity, "--alter", "--delete-config", "consumer_byte_rate,request_percentage")
        assert "percentage" not in configs(both, *entity, "--describe").stdout

    def test_an_address(self, both: Both) -> None:
        of = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
        configs(both, *of, "--alter", "--add-config", "connection_creation_rate=10")
        assert "connection_creation_rate=10" in configs(both, *of, "--describe").stdout
        configs(both, *of, "--alter", "--delete-config", "connection_creation_rate")
        assert "connection_creation_rate" not in configs(both, *of, "--describe").stdout

    def test_the_short_forms(self, both: Both) -> None:
        configs(both, "--user", "tools-dave", "--client", "app", "--alter", "--add-config", "producer_byte_rate=7")
        assert "tools-dave" in configs(both, "--user", "tools-dave", "--client", "app", "--describe").stdout
        configs(both, "--ip", "10.9.8.7", "--alter", "--add-config", "connection_creation_rate=3")
        assert "10.9.8.7" in configs(both, "--ip", "10.9.8.7", "--describe").stdout

    @pytest.mark.parametrize(
        "args",
        [
            ("--entity-type", "users", "--entity-name", "tools-eve", "--alter", "--add-config", "producer_byte_rate=-1"),
            ("--entity-type", "users", "--entity-name", "tools-eve", "--alter", "--add-config", "shoe_size=44"),
            ("--entity-type", "ips", "--entity-name", "10.1.2.4", "--alter", "--add-config", "connection_creation_rate=0"),
            ("--entity-type", "ips", "--entity-name", "no such host", "--alter", "--add-config", "connection_creation_rate=1"),
            ("--entity-type", "users", "--entity-name", "tools-eve", "--alter", "--delete-config", "producer_byte_rate"),
        ],
        ids=lambda args: f"{args[3]} {args[-1]}",
    )
    def test_refused(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(CONFIG_COMMAND, *args)
        assert node.exit_code == apache.exit_code
        assert exceptions(node) == exceptions(apache)


class TestScram:
    def described(self, both: Both, *of: str) -> tuple[Said, Said]:
        """Apache Kafka tells the mechanisms of a user in any order, when its broker has learnt of both."""
        found = []

        def has_both() -> bool:
            found[:] = both.run(CONFIG_COMMAND, *of, "--describe")
            return all(said.stdout.count("SCRAM-SHA-") == 2 for said in found)

        wait_until(has_both, 10, lambda: f"{found}")
        apache, node = (said._replace(stdout=said.stdout.replace(",", "")) for said in found)
        return apache, node

    def test_a_user_from_its_making_to_its_end(self, both: Both) -> None:
        of = ("--entity-type", "users", "--entity-name", "tools-scram")
        configs(both, *of, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
        configs(both, *of, "--alter", "--add-config", "SCRAM-SHA-512=[password=secret]")
        described = [sorted(said.stdout.split()) for said in self.described(both, *of)]
        assert described[0] == described[1]
        assert any("SCRAM-SHA-256=iterations=8192" in word for word in described[1])
        configs(both, *of, "--alter", "--delete-config", "SCRAM-SHA-256")
        said = configs(both, *of, "--describe").stdout
        assert "SCRAM-SHA-512" in said
        assert "SCRAM-SHA-256" not in said
        configs(both, *of, "--alter", "--delete-config", "SCRAM-SHA-512")
        assert "SCRAM" not in configs(both, *of, "--describe").stdout

    @pytest.mark.parametrize(
        "change",
        [
            ("--add-config", "SCRAM-SHA-256=[iterations=5,password=secret]"),
            ("--add-config", "SCRAM-SHA-256=[iterations=99999,password=secret]"),
            ("--delete-config", "SCRAM-SHA-256"),
        ],
        ids=" ".join,
    )
    def test_refused(self, both: Both, change: tuple[str, ...]) -> None:
        apache, node = both.run(CONFIG_COMMAND, "--entity-type", "users", "--entity-name", "tools-no", "--alter", *change)
        assert node.exit_code == apache.exit_code == 1
        assert exceptions(node) == exceptions(apache)


class TestMetricsAndGroups:
    def test_client_metrics(self, both: Both) -> None:
        of = ("--entity-type", "client-metrics", "--entity-name", "tools-metrics")
        change = "interval.ms=1000,metrics=[org.apache.kafka.producer.],match=[client_id=a.*]"
        configs(both, *of, "--alter", "--add-config", change)
        assert "interval.ms=1000" in configs(both, *of, "--describe").stdout
        configs(both, *of, "--alter", "--delete-config", "interval.ms,metrics,match")
        assert "interval.ms=1000" not in configs(both, *of, "--describe").stdout

    def test_the_tool_for_client_metrics(self, both: Both) -> None:
        both.same(CLIENT_METRICS_COMMAND, "--alter", "--name", "tools-subscription", "--interval", "2000", "--metrics", "a.b")
        assert "tools-subscription" in both.same(CLIENT_METRICS_COMMAND, "--list").stdout
        assert "interval.ms=2000" in both.same(CLIENT_METRICS_COMMAND, "--describe", "--name", "tools-subscription").stdout
        both.same(CLIENT_METRICS_COMMAND, "--delete", "--name", "tools-subscription")
        assert "tools-subscription" not in both.same(CLIENT_METRICS_COMMAND, "--list").stdout

    def test_groups(self, both: Both) -> None:
        of = ("--entity-type", "groups", "--entity-name", "tools-group")
        configs(both, *of, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
        assert "consumer.session.timeout.ms=50000" in configs(both, *of, "--describe").stdout
        configs(both, *of, "--alter", "--delete-config", "consumer.session.timeout.ms")
        assert "50000" not in configs(both, *of, "--describe").stdout

    @pytest.mark.parametrize(
        "args",
        [
            ("--entity-type", "client-metrics", "--entity-name", "m", "--alter", "--add-config", "interval.ms=1"),
            ("--entity-type", "client-metrics", "--entity-name", "m", "--alter", "--add-config", "match=[shoe=44]"),
            ("--entity-type", "groups", "--entity-name", "g", "--alter", "--add-config", "consumer.session.timeout.ms=1"),
            ("--entity-type", "groups", "--entity-name", "g", "--alter", "--add-config", "shoe.size=44"),
        ],
        ids=lambda args: f"{args[1]} {args[-1]}",
    )
    def test_refused(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(CONFIG_COMMAND, *args)
        assert node.exit_code == apache.exit_code == 1
        assert exceptions(node) == exceptions(apache)


class TestAcls:
    """Neither side has an authorizer: nothing is stored that nobody would enforce."""

    @pytest.mark.parametrize(
        "args",
        [
            ("--list",),
            ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t"),
            ("--remove", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t", "--force"),
        ],
        ids=lambda args: args[0],
    )
    def test_without_an_authorizer(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(ACL_COMMAND, *args)
        assert node.exit_code == apache.exit_code
        assert exceptions(node) == exceptions(apache)
        assert "SecurityDisabledException" in exceptions(node)


class TestOnTheController:
    """The same tools, straight to a controller."""

    AT = ("--bootstrap-controller", "{controller}")

    def run(self, both: Both, main_class: str, *args: str) -> tuple[Said, Said]:
        return both.run(main_class, *self.AT, *args, server="")

    def test_features(self, both: Both) -> None:
        apache, node = self.run(both, FEATURE_COMMAND, "describe")
        assert apache.exit_code == node.exit_code == 0
        assert features_of(node) == features_of(apache)
        both.same(FEATURE_COMMAND, *self.AT, "upgrade", "--feature", "metadata.version=30", server="")

    def test_configs_of_all_brokers(self, both: Both) -> None:
        of = ("--entity-type", "brokers", "--entity-default")
        both.same(CONFIG_COMMAND, *self.AT, *of, "--alter", "--add-config", "log.cleaner.threads=2", server="")
        assert "log.cleaner.threads=2" in both.same(CONFIG_COMMAND, *self.AT, *of, "--describe", server="").stdout
        both.same(CONFIG_COMMAND, *self.AT, *of, "--alter", "--delete-config", "log.cleaner.threads", server="")

    @pytest.mark.parametrize(
        "args",
        [
            ("--entity-type", "users", "--entity-name", "tools-straight", "--alter", "--add-config", "producer_byte_rate=7"),
            ("--entity-type", "users", "--entity-name", "tools-straight", "--describe"),
            ("--entity-type", "client-metrics", "--entity-name", "m", "--alter", "--add-config", "interval.ms=1000"),
        ],
        ids=lambda args: " ".join(args[-2:]),
    )
    def test_what_the_tool_does_with_a_controller(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = self.run(both, CONFIG_COMMAND, *args)
        assert node.exit_code == apache.exit_code
        assert exceptions(node) == exceptions(apache)

    def test_acls(self, both: Both) -> None:
        apache, node = self.run(both, ACL_COMMAND, "--list")
        assert node.exit_code == apache.exit_code
        assert exceptions(node) == exceptions(apache)
