from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.tools import protocol
from pybroker.tools.main import main

PYBROKER = str(Path(sys.executable).parent / "pybroker")


def pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: str, lines: str) -> list[str]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert main(["protocol", action]) == 0
    return capsys.readouterr().out.splitlines()


LINES = (
    ('18 3 request {"clientSoftwareName":"a","clientSoftwareVersion":"1.0"}', "18 3 request 026104312e3000"),
    (
        '18 3 request-header {"requestApiKey":18,"requestApiVersion":3,"correlationId":7,"clientId":null}',
        "18 3 request-header 0012000300000007ffff00",
    ),
    ('18 3 response-header {"correlationId":7}', "18 3 response-header 00000007"),
    ('3 9 response-header {"correlationId":7}', "3 9 response-header 0000000700"),
    ('22 0 response {"throttleTimeMs":0,"errorCode":3,"producerId":-1,"producerEpoch":-1}',
     "22 0 response 000000000003ffffffffffffffffffff"),
    ('OffsetCommitKey 0 message {"group":"g","topic":"t","partition":1}', "OffsetCommitKey 0 message 00016700017400000001"),
)  # fmt: skip


@pytest.mark.parametrize(("as_json", "as_hex"), LINES)
def test_a_line_of_json_becomes_hex_and_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: str, as_hex: str
) -> None:
    assert pipe(monkeypatch, capsys, "encode", as_json) == [as_hex.split()[3]]
    assert pipe(monkeypatch, capsys, "decode", as_hex) == [as_json.split(" ", 3)[3]]


@pytest.mark.parametrize(
    ("action", "line", "complaint"),
    [
        ("encode", "", "expected KEY VERSION KIND PAYLOAD"),
        ("encode", "18 3", "expected KEY VERSION KIND PAYLOAD"),
        ("encode", "18 x request {}", "version 'x' is not a number"),
        ("encode", "18 9 request {}", "ApiVersions v9: no such version, there are 0-4"),
        ("encode", "4 0 request {}", "no API has the key '4'"),
        ("encode", "²2 0 request {}", "no API has the key '²2'"),
        ("encode", "18 3 reqest {}", "kind 'reqest' is none of request, response"),
        ("encode", "OffsetKey 0 message {}", "no message is called 'OffsetKey'"),
        ("encode", "OffsetCommitKey 7 message {}", "OffsetCommitKey v7: no such version, there are"),
        ("encode", "18 3 request {", "not JSON"),
        ("encode", "18 3 request " + "[" * 100_000, "not JSON"),
        ("encode", "18 3 request []", "ApiVersionsRequest v3: expected an object, got []"),
        ("encode", "18 3 request {}", "field clientSoftwareName: missing"),
        ("decode", "18 3 request xyz", "not hex"),
        (
            "decode",
            "18 3 request 02",
            "ApiVersionsRequest v3, field clientSoftwareName, at byte 1: a length of 1 bytes, but 0 remain",
        ),
        ("decode", "18 3 request", "the frame ends too early"),
    ],
)
def test_what_cannot_be_is_one_line_of_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: str, line: str, complaint: str
) -> None:
    answers = pipe(monkeypatch, capsys, action, line + "\n18 0 request " + ("{}" if action == "encode" else "") + "\n")
    assert answers[0].startswith("ERROR ")
    assert complaint in answers[0]
    assert answers[1] == ("" if action == "encode" else "{}")
    assert len(answers) == 2


def test_each_line_is_answered_before_the_next_is_asked() -> None:
    with subprocess.Popen([PYBROKER, "protocol", "decode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdin is not None
        assert tool.stdout is not None
        for number in range(3):
            tool.stdin.write(f"18 3 response-header {number:08x}\n")
            tool.stdin.flush()
            assert json.loads(tool.stdout.readline()) == {"correlationId": number}


def test_a_line_that_is_not_utf_8_is_an_error_like_any_other() -> None:
    done = subprocess.run([PYBROKER, "protocol", "encode"], input=b"\xff 0 request {}\n18 0 request {}\n", capture_output=True)
    assert done.stdout.startswith(b"ERROR no API has the key")
    assert done.stdout.count(b"\n") == 2
    assert done.returncode == 0


def test_the_list_shows_every_api(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 90
    assert lines[0].split() == ["key", "name", "versions", "unstable", "flexible", "listeners"]
    assert lines[2].split() == ["1", "Fetch", "4-18", "12+", "broker,controller"]
    assert next(line for line in lines if "InitProducerId" in line).split() == [
        "22",
        "InitProducerId",
        "0-6",
        "6",
        "2+",
        "broker",
    ]


def test_the_list_of_internal_schemas_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", "list", "--internal", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["PartitionRecord"] == {"name": "PartitionRecord", "key": 3, "versions": "0-2", "flexible": "0+"}
    assert "RequestHeader" in rows
    assert "ProduceRequest" not in rows


def test_a_reader_that_stops_reading_is_no_traceback() -> None:
    done = subprocess.run(f"{PYBROKER} protocol list | head -1", shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("key")
    assert done.stderr == ""


def test_requests_need_the_version_of_the_api_and_headers_take_their_own() -> None:
    assert protocol.find_class("0", 9, "request-header")[1] == 2
    assert protocol.find_class("0", 8, "request-header")[1] == 1
