"""Everything goes wrong, for FAULTS_S seconds (60 unless told), drawn from FAULTS_SEED: nodes are killed, stopped and hang,
links are cut, disks full, clocks set, one at a time or two; producers and consumers go on throughout. Then all is checked."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster.faults import IDS, FaultyCluster, faulty_cluster

confluent_kafka = pytest.importorskip("confluent_kafka")

from cluster.traffic import PARTITIONS, Reading, Seen, Writing, check, create, wait_in_sync  # noqa: E402

SECONDS = float(os.environ.get("FAULTS_S", "60"))
SEED = int(os.environ.get("FAULTS_SEED", "5"))
PROPERTIES = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.segment.bytes": "2097152",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
# One reads from the leaders, the others from the replica in their rack, two share a group.
READERS: dict[str, dict[str, object]] = {
    "plain": {},
    **{f"near {node_id}": {"client.rack": f"rack-{node_id}"} for node_id in IDS},
    **{
        f"member {number}": {"group.id": "members", "enable.auto.commit": True, "auto.offset.reset": "earliest"}
        for number in "ab"
    },
}
HOLD_S = (0.2, 4.0)


@pytest.mark.verdict
@pytest.mark.timeout(SECONDS + 600)
def test_nothing_acknowledged_is_lost_whatever_goes_wrong(tmp_path: Path) -> None:
    with faulty_cluster(tmp_path, PROPERTIES) as faulty, ExitStack() as clients:
        nodes = faulty.nodes
        nodes.start()
        create(nodes, "t")
        wait_in_sync(nodes, "t", set(IDS))
        seen = Seen()
        readers = [Reading(nodes, "t", name, seen, settings) for name, settings in READERS.items()]
        for reader in readers:
            clients.callback(reader.end)
        writers = [Writing(nodes, "t", f"{name}-", pace_s=0.005) for name in "xyz"]
        for writer in writers:
            clients.callback(writer.end)
        counts = _go_wrong(faulty, writers, random.Random(SEED))
        for writer in writers:
            writer.wait_for_more()
            writer.end()
        found = check(nodes, "t", *writers)
        ends = [sum(places[0][0] == index for places in found.values()) for index in range(PARTITIONS)]
        for reader in readers:
            if reader.name.startswith(("plain", "near")):
                reader.wait_for_end(ends)
        assert seen.problems == []
        assert {place: [place] for place in seen.values} == {place: found[value] for place, value in seen.values.items()}
        acked = sum(len(writer.acked) for writer in writers)
        gap_s = max(writer.longest_gap_s for writer in writers)
        print(f"{SECONDS:.0f} s, {counts}; {acked} acknowledged, {len(seen.values)} read, the longest pause {gap_s:.2f} s")
        if faulty.why_no_disks:
            print(f"no disk was full: {faulty.why_no_disks}")


def _go_wrong(faulty: FaultyCluster, writers: list[Writing], draw: random.Random) -> dict[str, int]:
    counts = dict.fromkeys(faulty.kinds, 0)
    never = threading.Event()
    end = time.monotonic() + SECONDS
    bag: list[str] = []
    while time.monotonic() < end:
        while len(bag) < 2:  # in rounds, so that each kind has its turn in a short run, too
            bag = draw.sample(list(counts), len(counts)) + bag
        names = [bag.pop() for _ in range(2 if draw.random() < 0.25 else 1)]
        with ExitStack() as stack:
            stories = []
            for name in names:
                stories.append(stack.enter_context(faulty.kinds[name](draw)))
                counts[name] += 1
            never.wait(draw.uniform(*HOLD_S))  # the fault's length
        over = faulty.recover()
        if over:
            stories.append(f"{over} ended by itself")
        print(f"{SECONDS - (end - time.monotonic()):6.1f} s: {', '.join(stories)}", flush=True)
        for writer in writers:
            writer.wait_for_more(50)
    return counts
