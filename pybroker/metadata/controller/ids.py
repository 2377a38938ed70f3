"""Blocks of producer ids: each broker gets a thousand at a time and hands them out itself."""

from __future__ import annotations

from pybroker.metadata.controller.brokers import checked_broker
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import ProducerIdsRecord
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse

PRODUCER_ID_BLOCK_SIZE = 1000
_MAX_PRODUCER_ID = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, request: AllocateProducerIdsRequest) -> Result:
    broker = checked_broker(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"All producer ids up to {start} have been given out.")
    record = ProducerIdsRecord(broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=start + PRODUCER_ID_BLOCK_SIZE)
    response = AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
    return Result([record], response)
