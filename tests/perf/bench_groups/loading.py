"""How long a shard with a million offset commits takes to be loaded, when its broker has been killed and starts again.

The commits are written to the only partition of `__consumer_offsets` as batches of records, which both brokers take from a
client that calls itself the admin client: committing them one by one would take minutes.
"""

from __future__ import annotations

import time

from interop.broker_process import ask
from perf.bench import process
from perf.bench.servers import Server
from perf.bench.workloads import Values
from perf.bench_groups.lines import Line, wait_for_coordinator
from support.waiting import wait_until

from pybroker.coordinator.group.group import CommittedOffset
from pybroker.coordinator.group.records import offset_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from pybroker.protocol.records.builder import BatchBuilder

PROPERTIES = {"offsets.topic.num.partitions": "1"}
RECORDS_A_BATCH = 2000
PARTITIONS_A_GROUP = 10
ADMIN_CLIENT = "__admin_client"
PRODUCE_VERSION = 12
LOAD_S = 180.0


def fill(server: Server, commits: int, groups: int) -> None:
    """`commits` of that many groups' offsets, ten partitions each if there are fewer groups than commits."""
    wait_for_coordinator(server.address, "g-0")
    # Offsets of a topic that does not exist go when they are loaded.
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS_A_GROUP, replication_factor=1, assignments=[], configs=[])
    (made,) = ask(server.address, CreateTopicsRequest(topics=[topic])).topics
    assert made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), made
    line = Line(server.address, ADMIN_CLIENT)
    now_ms = int(time.time() * 1000)
    partitions = PARTITIONS_A_GROUP if groups < commits else 1
    in_flight = 0
    for start in range(0, commits, RECORDS_A_BATCH):
        builder = BatchBuilder()
        for number in range(start, min(commits, start + RECORDS_A_BATCH)):
            group, partition = divmod(number % (groups * partitions), partitions)
            record = offset_record(f"g-{group}", "t", partition, CommittedOffset(number, -1, "", now_ms))
            builder.append(now_ms, *record.encoded())
        data = [PartitionProduceData(index=0, records=bytes(builder.build()))]
        rows = TopicProduceData(name="__consumer_offsets", partition_data=data)
        line.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[rows]), PRODUCE_VERSION)
        in_flight += 1
        if in_flight > 4:
            _written(line)
            in_flight -= 1
    for _ in range(in_flight):
        _written(line)
    line.close()


def _written(line: Line) -> None:
    (topic,) = line.receive().responses
    assert topic.partition_responses[0].error_code == ErrorCode.NONE, topic


def load(server: Server, commits: int, groups: int) -> Values:
    """Killed and started: from the first good Metadata until the last commit can be fetched."""
    server.kill()
    server.start()
    began, cpu_s = time.monotonic(), process.cpu_s(server.pid)
    partitions = PARTITIONS_A_GROUP if groups < commits else 1
    group, partition = divmod((commits - 1) % (groups * partitions), partitions)
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[partition])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"g-{group}", topics=[wanted])])
    found: list[int] = []

    def is_loaded() -> bool:
        (row,) = ask(server.address, request, 9).groups
        if row.error_code == ErrorCode.NONE:
            found.append(row.topics[0].partitions[0].committed_offset)
        return bool(found)

    wait_until(is_loaded, LOAD_S, lambda: "the offsets are not loaded")
    seconds = time.monotonic() - began
    assert found == [commits - 1], f"offset {found}, committed was {commits - 1}"
    return {"seconds": seconds, "cpu_s": process.cpu_s(server.pid) - cpu_s, "rss_mb": process.memory(server.pid).rss_mb}
