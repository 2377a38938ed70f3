from __future__ import annotations

import pytest
from unit.metadata.test_delta import apply, image_of

from pybroker.metadata.draft import MetadataReplayError
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.metadata.scram import ScramCredential, ScramUser, scram_record, scram_records
from pybroker.protocol.internal.metadata_log import RemoveUserScramCredentialRecord

ALICE = ScramUser("alice", 1)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


def test_credentials_come_change_and_go() -> None:
    delta, image = apply(EMPTY_IMAGE, scram_record(ALICE, CREDENTIAL))
    assert (image.scram_credentials, delta.scram_credentials.changed) == ({ALICE: CREDENTIAL}, {ALICE})
    other = ScramCredential(b"salt", b"stored", b"server", 8192)
    _, changed = apply(image, scram_record(ALICE, other))
    assert changed.scram_credentials[ALICE].iterations == 8192
    _, gone = apply(changed, RemoveUserScramCredentialRecord(name="alice", mechanism=1))
    assert gone.scram_credentials == {}


def test_a_credential_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(MetadataReplayError, match=r"alice.* is removed, but is not there"):
        image_of(RemoveUserScramCredentialRecord(name="alice", mechanism=1))


def test_the_records_of_credentials_and_keys_that_do_not_show() -> None:
    assert list(scram_records({ALICE: CREDENTIAL})) == [scram_record(ALICE, CREDENTIAL)]
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096)"
