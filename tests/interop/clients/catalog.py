"""The clients under test and what each of them can do. A client without a feature is not asked for it; a client whose
toolchain is absent is skipped with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop.clients import programs
from interop.clients.driver import Client

from pybroker.protocol.records.compression import Codec

# What a client may lack.
ADMIN = "creates, describes and deletes topics"
PARTITIONS = "adds partitions to a topic"
CONFIGS = "describes and alters configs"
DELETE_RECORDS = "deletes records"
IDEMPOTENT = "has an idempotent producer"
TIMESTAMPS = "lets the application say when"
HEADERS = "knows headers"
SENDS_NULL_HEADERS = "sends headers that are null"
READS_NULLS = "tells null from empty"
ACKS = "produces with any acks"
MURMUR2 = "partitions keys as Java does"
NO_AUTO_CREATE = "can ask for metadata without creating the topic"
EVERYTHING = frozenset(
    {
        *(ADMIN, PARTITIONS, CONFIGS, DELETE_RECORDS, IDEMPOTENT, TIMESTAMPS, ACKS, MURMUR2, NO_AUTO_CREATE),
        *(HEADERS, SENDS_NULL_HEADERS, READS_NULLS),
    }
)


@dataclass(slots=True, frozen=True)
class Kind:
    start: Callable[[str, Path], Client]  # with the bootstrap address, and a directory for what the client says
    features: frozenset[str] = EVERYTHING


def _kafka_python(bootstrap: str, _: Path) -> Client:
    pytest.importorskip("kafka")
    from interop.clients.drive_kafka_python import KafkaPython

    return KafkaPython(bootstrap)


def _aiokafka(bootstrap: str, _: Path) -> Client:
    pytest.importorskip("aiokafka")
    from interop.clients.drive_aiokafka import AioKafka

    return AioKafka(bootstrap)


def _confluent_kafka(bootstrap: str, _: Path) -> Client:
    pytest.importorskip("confluent_kafka")
    from interop.clients.drive_confluent_kafka import ConfluentKafka

    return ConfluentKafka(bootstrap)


CLIENTS = {
    # An unknown topic is made by its producer whatever allow_auto_create_topics says.
    "kafka-python": Kind(_kafka_python, EVERYTHING - {NO_AUTO_CREATE, SENDS_NULL_HEADERS}),
    "aiokafka": Kind(_aiokafka, EVERYTHING - {NO_AUTO_CREATE}),
    "confluent-kafka": Kind(_confluent_kafka, EVERYTHING - {MURMUR2}),
    "java-4": Kind(programs.java_4, EVERYTHING - {NO_AUTO_CREATE}),
    "java-3": Kind(programs.java_3, EVERYTHING - {NO_AUTO_CREATE}),
    "franz-go": Kind(programs.franz_go),
    "sarama": Kind(programs.sarama, EVERYTHING - {MURMUR2}),
    "kafka-go": Kind(programs.kafka_go, EVERYTHING - {DELETE_RECORDS, IDEMPOTENT, READS_NULLS}),
    "kafkajs": Kind(programs.kafkajs, EVERYTHING - {NO_AUTO_CREATE, SENDS_NULL_HEADERS}),
    "kcat": Kind(programs.kcat, frozenset({ACKS, HEADERS, IDEMPOTENT})),
}


def clients_with(*features: str) -> pytest.MarkDecorator:
    """Play the test with every client that has all of `features`."""
    names = [name for name, kind in CLIENTS.items() if kind.features.issuperset(features)]
    return pytest.mark.parametrize("client", names, indirect=True)


every_client = clients_with()

every_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
