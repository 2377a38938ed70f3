from __future__ import annotations

import pytest

from pybroker.security.acls import Acl, AclFilter, AclOperation, AclResourceType, PatternType, PermissionType, is_known, name_of

LITERAL = Acl(AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
PREFIXED = LITERAL._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
EVERYTHING = LITERAL._replace(resource_name="*")


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, (True, True, True)),
        (PatternType.ANY, "orders", (True, False, False)),
        (PatternType.ANY, "ord", (False, True, False)),
        (PatternType.LITERAL, None, (True, False, True)),
        (PatternType.LITERAL, "*", (False, False, True)),
        (PatternType.PREFIXED, "ord", (False, True, False)),
        (PatternType.PREFIXED, "orders", (False, False, False)),
        (PatternType.MATCH, None, (True, True, True)),
        (PatternType.MATCH, "orders", (True, True, True)),
        (PatternType.MATCH, "ordinary", (False, True, True)),
        (PatternType.MATCH, "other", (False, False, True)),
    ],
)
def test_a_filter_means_a_name_in_its_way(pattern: PatternType, name: str | None, found: tuple[bool, ...]) -> None:
    wanted = AclFilter(resource_name=name, pattern_type=pattern)
    assert tuple(wanted.matches(acl) for acl in (LITERAL, PREFIXED, EVERYTHING)) == found


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        (AclFilter(), True),
        (AclFilter(resource_type=AclResourceType.GROUP), False),
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.READ), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission_type=PermissionType.DENY), False),
        (AclFilter(*LITERAL), True),
    ],
)
def test_every_field_that_is_given_must_be_the_same(wanted: AclFilter, is_found: bool) -> None:
    assert wanted.matches(LITERAL) is is_found


def test_numbers_that_have_no_meaning() -> None:
    assert AclFilter(resource_type=0).has_unknown_pattern
    assert AclFilter(pattern_type=9).has_unknown_pattern
    assert AclFilter(operation=99).has_unknown_entry
    assert AclFilter(permission_type=-1).has_unknown_entry
    assert not AclFilter().has_unknown_pattern
    assert not AclFilter().has_unknown_entry
    assert is_known(AclOperation, 15)
    assert not is_known(AclOperation, 16)
    assert (name_of(PatternType, 4), name_of(PatternType, 5)) == ("PREFIXED", "UNKNOWN")
