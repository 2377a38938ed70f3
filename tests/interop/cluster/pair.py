"""Two clusters of the same shape, three nodes that are controllers and brokers at once: Apache Kafka's and ours. A tool is run
against each, and what it said is compared without what two clusters rightly differ in: ports, directories, ids, times."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from interop.apache_kafka import ApacheTools
from interop.cluster.mixed import APACHE, COMBINED, OURS, Make, Nodes, mixed
from interop.tools.both import CLUSTER_TOOL
from support.waiting import wait_until

from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA_QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
LEADER_ELECTION: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

IDS: Final = (1, 2, 3)
CATCH_UP_S: Final = 10.0

_STACK = re.compile(r"^(\s+at .*|\s+\.\.\. \d+ more|Caused by: .*)\n?", re.MULTILINE)
_WHEN = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ", re.MULTILINE)
_TOPIC_ID = re.compile(r"(TopicId: |topic id:? ?)[\w-]{22}", re.IGNORECASE)
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
# With eligible.leader.replicas.version, Apache Kafka sets this default for all brokers by itself.
_MIN_ISR = re.compile(r"^ *min\.insync\.replicas=1 sensitive.*\n", re.MULTILINE)
_OUR_KEYS = re.compile(r"^ *pybroker\..*\n", re.MULTILINE)


class Said(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str

    def lines(self, part: str = "") -> list[str]:
        """The lines of stdout with `part` in them, in any order."""
        return sorted(line.strip() for line in self.stdout.splitlines() if part in line)

    @property
    def exceptions(self) -> list[str]:
        """The words of a refusal are a broker's own; the exception that they become is not."""
        return re.findall(r"\b\w+Exception\b", self.stdout + self.stderr)


class Side:
    """One of the clusters."""

    def __init__(self, nodes: Nodes, tools: ApacheTools) -> None:
        self.nodes = nodes
        self._tools = tools

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.nodes.brokers.values() if one.pid is not None)

    def run(self, main_class: str, *args: str, server: str = "--bootstrap-server") -> Said:
        where = self.bootstrap if server == "--bootstrap-server" else self.nodes.controller_servers
        at = 1 if main_class == CLUSTER_TOOL else 0  # its first word is what to do
        run = self._tools.run(main_class, *args[:at], server, where, *args[at:])
        return Said(run.exit_code, _shown(self.nodes, run.stdout), _shown(self.nodes, run.stderr))

    def rows(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """By partition: leader, replicas, ISR."""
        at = next(one for one in self.nodes.brokers.values() if one.pid is not None)
        (found,) = at.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
        return {one.partition_index: (one.leader_id, one.replica_nodes, sorted(one.isr_nodes)) for one in found.partitions}


class Pair:
    def __init__(self, apache: Side, ours: Side) -> None:
        self.apache = apache
        self.ours = ours

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.apache, self.ours

    def run(self, main_class: str, *args: str, server: str = "--bootstrap-server") -> tuple[Said, Said]:
        apache, ours = (side.run(main_class, *args, server=server) for side in self.sides)
        return apache, ours

    def same(
        self,
        main_class: str,
        *args: str,
        server: str = "--bootstrap-server",
        exit_code: int = 0,
        seen: Callable[[Said], object] = lambda said: said,
    ) -> Said:
        """Both say the same and end with `exit_code`; what ours said. Who only looks may look again: brokers learn of a change
        a moment after it is made."""
        apache, ours = self.run(main_class, *args, server=server)
        deadline = time.monotonic() + CATCH_UP_S
        while seen(ours) != seen(apache) and _only_looks(args) and time.monotonic() < deadline:
            apache, ours = self.run(main_class, *args, server=server)
        assert seen(ours) == seen(apache)
        assert ours.exit_code == apache.exit_code == exit_code, (ours, apache)
        return ours

    def wait(self, condition: Callable[[Side], object], what: str) -> None:
        """Until it is so at both."""
        for side in self.sides:
            wait_until(lambda: condition(side), 60, lambda: f"{what}\n{side.nodes.last_words()}")  # noqa: B023


def _only_looks(args: tuple[str, ...]) -> bool:
    return bool({"--describe", "--list", "describe", "--verify"} & set(args))


def _shown(nodes: Nodes, text: str) -> str:
    for one in nodes.by_id.values():
        text = text.replace(str(one.directory), "DIRECTORY")
    for pattern in (_WHEN, _STACK, _MIN_ISR, _OUR_KEYS):
        text = pattern.sub("", text)
    return _TOPIC_ID.sub(r"\1ID", _ADDRESS.sub("ADDRESS", text))


@contextmanager
def pair(directory: Path, tools: ApacheTools) -> Iterator[Pair]:
    def kinds(make: Make) -> dict[int, tuple[Make, str]]:
        return dict.fromkeys(IDS, (make, COMBINED))

    properties = {"auto.leader.rebalance.enable": "false"}
    with (
        mixed(directory / "apache", kinds(APACHE), properties) as apache,
        mixed(directory / "ours", kinds(OURS), properties) as ours,
    ):
        for nodes in (apache, ours):
            for node_id in IDS:
                nodes[node_id].launch()
        for nodes in (apache, ours):
            for node_id in IDS:
                nodes[node_id].wait_until_it_serves()
            nodes.wait_for_brokers(*IDS)
        yield Pair(Side(apache, tools), Side(ours, tools))
