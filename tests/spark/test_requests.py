"""What Spark really sends, noted by a proxy: each request, in the version that it has there, gets its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.conftest import Jobs, NewBroker
from spark.proxy import RecordingProxy, Request
from spark.topics import json_rows, produce

from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.headers import ResponseHeader

_APIS = {api.name: api for api in APIS}
_NOT_SERVED = {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR}

SINK = {Request("ApiVersions", 4), Request("Metadata", 12), Request("InitProducerId", 5), Request("Produce", 11)}
SOURCE = {Request("ApiVersions", 4), Request("Metadata", 12), Request("ListOffsets", 9), Request("Fetch", 17)}
ADMIN = {Request("DescribeCluster", 1), Request("DescribeTopicPartitions", 0), Request("DescribeConfigs", 4)}
GROUP = {
    Request("FindCoordinator", 6),
    Request("JoinGroup", 9),
    Request("SyncGroup", 5),
    Request("OffsetFetch", 9),
    Request("LeaveGroup", 5),
}


@pytest.fixture
def proxied(
    new_broker: NewBroker, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[RecordingProxy, Jobs]]:
    with RecordingProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with new_broker(tmp_path / "broker", advertised) as broker:
            proxy.lead_to(broker.bootstrap)
            yield proxy, Jobs(spark, proxy.address, capsys)


def error_codes(answer: Any) -> Iterator[int]:
    """All that stand anywhere in it."""
    for name in getattr(type(answer), "__slots__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            yield value
        for part in value if isinstance(value, list) else (value,):
            yield from error_codes(part)


def check_answers(proxy: RecordingProxy) -> None:
    assert {request for request in proxy.sent if not proxy.answered[request]} == set()
    assert len(proxy.answers) > 20
    for request, frame in proxy.answers:
        api = _APIS[request.api]
        _, position = ResponseHeader.decode_from(api.response_header_version(request.version), frame, 0)
        answer = api.response.decode(request.version, frame[position:])
        assert not _NOT_SERVED & set(error_codes(answer)), (request, answer)


def test_source_and_sink(proxied: tuple[RecordingProxy, Jobs], tmp_path: Path) -> None:
    proxy, jobs = proxied
    (tmp_path / "rows.json").write_text("".join(json.dumps({"id": number}) + "\n" for number in range(100)))
    jobs("ingest", str(tmp_path / "rows.json"), "--to-topic", "rows").summary()
    assert {*SINK, *ADMIN} <= proxy.sent.keys(), sorted(proxy.sent)
    paths = ("--checkpoint", str(tmp_path / "c"), "--to-path", str(tmp_path / "a"))
    assert "rows=100 " in jobs("archive", "--topics", "rows", *paths).summary()
    assert proxy.sent.keys() >= SOURCE, sorted(proxy.sent)
    assert not {request for request in proxy.sent if "Group" in request.api}, "offsets are asked for without a group"
    check_answers(proxy)


def test_offsets_asked_for_through_a_group_as_before_spark_3_1(proxied: tuple[RecordingProxy, Jobs], tmp_path: Path) -> None:
    proxy, jobs = proxied
    produce(jobs.bootstrap, "rows", json_rows({"id": number} for number in range(100)))
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    jobs.spark.conf.set(setting, "true")
    try:
        paths = ("--checkpoint", str(tmp_path / "c"), "--to-path", str(tmp_path / "a"))
        assert "rows=100 " in jobs("archive", "--topics", "rows", *paths).summary()
    finally:
        jobs.spark.conf.unset(setting)
    assert proxy.sent.keys() >= {*SOURCE, *GROUP}, sorted(proxy.sent)
    check_answers(proxy)
