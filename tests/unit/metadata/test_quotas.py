from __future__ import annotations

from unit.metadata.test_delta import apply

from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.metadata.quotas import quota_entity, quota_record, quota_records

ALICE = quota_entity([("user", "alice")])
BOTH = quota_entity([("user", "alice"), ("client-id", None)])


def test_the_parts_of_an_entity_are_in_order() -> None:
    assert quota_entity([("client-id", None), ("user", "alice")]) == BOTH
    assert quota_entity([("user", "a"), ("user", "b")]) == quota_entity([("user", "b")])


def test_quotas_come_change_and_go() -> None:
    records = quota_record(ALICE, "a", 1.0), quota_record(ALICE, "b", 2.0), quota_record(BOTH, "a", 3.0)
    delta, image = apply(EMPTY_IMAGE, *records)
    assert image.client_quotas == {ALICE: {"a": 1.0, "b": 2.0}, BOTH: {"a": 3.0}}
    assert delta.client_quotas.changed == {ALICE, BOTH}
    delta, later = apply(image, quota_record(ALICE, "a", None), quota_record(BOTH, "a", None), quota_record(BOTH, "x", None))
    assert later.client_quotas == {ALICE: {"b": 2.0}}
    assert image.client_quotas[ALICE] == {"a": 1.0, "b": 2.0}
    assert delta.client_quotas.changed == {ALICE, BOTH}
    delta, _ = apply(EMPTY_IMAGE, quota_record(ALICE, "never", None))
    assert delta.client_quotas.changed == set()


def test_the_records_of_quotas() -> None:
    records = list(quota_records({BOTH: {"a": 1.5}}))
    assert records == [quota_record(BOTH, "a", 1.5)]
    assert not records[0].remove
