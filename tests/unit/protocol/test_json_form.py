from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.random_messages import message_versions, random_message

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.json_form import from_json, to_json
from pybroker.protocol.messages.fetch import FetchRequest, ReplicaState
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.messages.quotas import AlterClientQuotasRequest


def test_names_are_camel_case_bytes_base64_and_uuids_22_characters() -> None:
    topic = TopicProduceData(topic_id=Uuid(bytes(16)), partition_data=[PartitionProduceData(index=1, records=b"\xff\xfe")])
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    assert to_json(request, 13) == {
        "transactionalId": None,
        "acks": -1,
        "timeoutMs": 5,
        "topicData": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "partitionData": [{"index": 1, "records": "//4="}]}],
    }


def test_a_tagged_field_at_its_default_is_left_out() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], replica_state=ReplicaState())
    assert "replicaState" not in to_json(request, 15)
    request.replica_state = ReplicaState(replica_id=2)
    assert to_json(request, 15)["replicaState"] == {"replicaId": 2, "replicaEpoch": -1}


def test_every_message_reads_back_from_its_json() -> None:
    rng = random.Random(8)
    for cls, version in message_versions():
        message = random_message(rng, cls, version)
        text = json.dumps(to_json(message, version))
        assert from_json(cls, version, json.loads(text)).encode(version) == message.encode(version), cls.__name__


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")])
def test_numbers_that_json_has_not_are_strings_as_jackson_writes_them(value: float, text: str) -> None:
    entry = {"entity": [], "ops": [{"key": "k", "value": text, "remove": False}]}
    request = from_json(AlterClientQuotasRequest, 1, {"entries": [entry], "validateOnly": False})
    assert repr(request.entries[0].ops[0].value) == repr(value)
    assert to_json(request, 1)["entries"] == [entry]


def test_a_field_of_another_version_may_be_given_and_is_judged_when_encoded() -> None:
    value = {"topics": None, "allowAutoTopicCreation": False}
    assert from_json(MetadataRequest, 4, value).allow_auto_topic_creation is False
    with pytest.raises(ProtocolError, match="field allowAutoTopicCreation: False cannot be carried"):
        from_json(MetadataRequest, 3, value).encode(3)


def good() -> dict[str, Any]:
    return {
        "acks": 1,
        "timeoutMs": 1,
        "transactionalId": None,
        "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": ""}]}],
    }


def broken(path: str, value: object) -> dict[str, Any]:
    whole = place = good()
    *steps, last = path.split(".")
    for step in steps:
        place = place[step][0]
    place[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("acks", 40000, "field acks: expected an integer from -32768 to 32767, got 40000"),
        ("acks", True, "field acks: expected an integer"),
        ("acks", "1", "field acks: expected an integer"),
        ("timeoutMs", None, "field timeoutMs: expected an integer"),
        ("topicData", {}, "field topicData: expected an array, got {}"),
        ("topicData", [1], r"field topicData\[0\]: expected an object, got 1"),
        ("topicData.name", 5, r"field topicData\[0\].name: expected a string, got 5"),
        ("topicData.topicId", "x", r"field topicData\[0\].topicId: 'x' is not a uuid"),
        ("topicData.partitionData.records", "!", r"field topicData\[0\].partitionData\[0\].records: expected base64, got '!'"),
        (
            "topicData.partitionData.indx",
            1,
            r"partitionData\[0\].indx: PartitionProduceData has no such field; did you mean 'index'",
        ),
    ],
)
def test_json_that_does_not_fit_is_refused_with_the_path_of_the_field(path: str, value: object, complaint: str) -> None:
    assert from_json(ProduceRequest, 9, good()).acks == 1
    with pytest.raises(ProtocolError, match=f"ProduceRequest v9, .*{complaint}"):
        from_json(ProduceRequest, 9, broken(path, value))


def test_a_missing_field_is_named() -> None:
    value = good()
    del value["topicData"][0]["name"]
    with pytest.raises(ProtocolError, match=r"ProduceRequest v9, field topicData\[0\]\.name: missing"):
        from_json(ProduceRequest, 9, value)
    with pytest.raises(ProtocolError, match=r"ProduceRequest v13, field topicData\[0\]\.topicId: missing"):
        from_json(ProduceRequest, 13, value)


def test_null_topics_mean_all_of_them() -> None:
    assert from_json(MetadataRequest, 1, {"topics": None}).topics is None
    assert from_json(MetadataRequest, 1, {"topics": [{"name": "t"}]}).topics == [MetadataRequestTopic(name="t")]
