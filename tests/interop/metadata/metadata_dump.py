"""What Apache Kafka's DumpLogSegments reads in the files of the metadata: metadata records, and the controllers' own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from interop.apache_kafka import DUMP_LOG_SEGMENTS, ApacheTools

_PAYLOAD = re.compile(r"\| offset: (\d+) .* payload: (\{.*\})$")
_CONTROL = re.compile(r"\| offset: (\d+) .* headerKeys: \[\] (\w+):? (\{.*\})$")

# In 4.3 the tool takes the first record of a segment that does not start at 0 for one behind a gap.
_FIRST = re.compile(r"\ANon-consecutive offsets in .*\n  -1 is followed by \d+\n\Z")


class DumpedRecord(NamedTuple):
    offset: int
    type: str  # as FEATURE_LEVEL_RECORD, or as LeaderChange for a control record
    version: int
    data: dict[str, Any]


def dump_metadata(tools: ApacheTools, path: Path) -> list[DumpedRecord]:
    """Every record in a segment or snapshot; all of its batches must be valid."""
    run = tools.run(DUMP_LOG_SEGMENTS, "--cluster-metadata-decoder", "--files", str(path))
    found = []
    for line in run._replace(stderr=_FIRST.sub("", run.stderr)).checked().splitlines():
        assert "isvalid: false" not in line, line
        if match := _PAYLOAD.fullmatch(line):
            content = json.loads(match[2])
            found.append(DumpedRecord(int(match[1]), content["type"], content["version"], content["data"]))
        elif match := _CONTROL.fullmatch(line):
            data = json.loads(match[3])
            found.append(DumpedRecord(int(match[1]), match[2], data.pop("version"), data))
        else:
            assert not line.startswith("|"), f"not understood: {line}"
    return found
