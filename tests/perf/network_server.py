"""A reactor in a process of its own for the measurements: ApiVersions, Produce and Fetch answered as cheaply as can be.

Prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import sys
import tempfile

from pybroker.base.filesystem import OsFileSystem
from pybroker.config.broker import load_text
from pybroker.log.segment import FileSlice
from pybroker.network.request import Request
from pybroker.network.socket_server import SocketServer
from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pybroker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

PROPERTIES = """
process.roles=broker
node.id=1
controller.quorum.voters=2@localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:0
log.dirs=/tmp/nothing-is-written-here
"""
FETCHED_BYTES = 16 * 1024


class Answers:
    def __init__(self, directory: str, hops: bool) -> None:
        self._hops = hops
        file = OsFileSystem().open(f"{directory}/segment", create=True)
        file.write(0, bytes(1024 * 1024))
        data = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=100,
            last_stable_offset=100,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=FileSlice(file, 4096, FETCHED_BYTES),
        )
        fetched = FetchResponse(
            throttle_time_ms=0,
            error_code=0,
            session_id=0,
            responses=[FetchableTopicResponse(topic="topic", partitions=[data])],
        )
        produced = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="topic",
                    partition_responses=[PartitionProduceResponse(index=0, error_code=0, base_offset=12345)],
                )
            ]
        )
        self._answers = {0: produced, 1: fetched, 18: ApiVersionsResponse(error_code=0, api_keys=[])}

    def handle_pipelined(self, *_: object) -> int:
        return 0

    def handle(self, request: Request) -> bool:
        if self._hops and not request.may_block:
            return False
        request.respond(self._answers[request.api.key])
        return True


def main() -> None:
    placement, hops = sys.argv[1:]
    config = load_text(PROPERTIES, "measurement", [f"pybroker.connection.placement={placement}"]).config
    assert config is not None
    apis = {api.key: (api, api.stable_versions) for api in APIS}
    with tempfile.TemporaryDirectory() as directory:
        server = SocketServer(config, Answers(directory, hops == "hops"), lambda _: apis)
        server.bind()
        server.start()
        print(server.ports()["PLAINTEXT"], flush=True)
        sys.stdin.read()
        server.stop()


if __name__ == "__main__":
    main()
