from __future__ import annotations

from dataclasses import replace

from unit.metadata.test_delta import apply

from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.metadata.tokens import DelegationToken, token_record, token_records
from pybroker.protocol.internal.metadata_log import RemoveDelegationTokenRecord

TOKEN = DelegationToken("id", "User:alice", "User:bob", ("User:carol",), 1, 5, 9)


def test_tokens_come_change_and_go() -> None:
    delta, image = apply(EMPTY_IMAGE, token_record(TOKEN))
    assert (image.delegation_tokens, delta.delegation_tokens.changed) == ({"id": TOKEN}, {"id"})
    renewed = replace(TOKEN, expiry_timestamp_ms=7)
    _, later = apply(image, token_record(renewed))
    assert later.delegation_tokens == {"id": renewed}
    delta, gone = apply(later, RemoveDelegationTokenRecord(token_id="id"), RemoveDelegationTokenRecord(token_id="id"))
    assert (gone.delegation_tokens, delta.delegation_tokens.changed) == ({}, {"id"})


def test_the_records_of_tokens() -> None:
    assert list(token_records({"id": TOKEN})) == [token_record(TOKEN)]
