from __future__ import annotations

import pytest
from unit.metadata.clusters import uuid
from unit.metadata.test_delta import apply, image_of

from pybroker.metadata.acls import acl_record, acl_records
from pybroker.metadata.draft import MetadataReplayError
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.internal.metadata_log import RemoveAccessControlEntryRecord
from pybroker.security.acls import Acl

ONE, TWO = uuid("one"), uuid("two")
ACL = Acl(2, "t", 3, "User:alice", "*", 3, 3)


def test_entries_come_and_go() -> None:
    delta, image = apply(EMPTY_IMAGE, acl_record(ONE, ACL), acl_record(TWO, ACL._replace(host="h")))
    assert image.acls == {ONE: ACL, TWO: ACL._replace(host="h")}
    assert delta.acls.changed == {ONE, TWO}
    delta, later = apply(image, RemoveAccessControlEntryRecord(id=ONE))
    assert (set(later.acls), set(image.acls), delta.acls.changed) == ({TWO}, {ONE, TWO}, {ONE})


def test_an_entry_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(MetadataReplayError, match="is removed, but is not there"):
        image_of(RemoveAccessControlEntryRecord(id=ONE))


def test_the_records_of_entries() -> None:
    assert list(acl_records({ONE: ACL})) == [acl_record(ONE, ACL)]
