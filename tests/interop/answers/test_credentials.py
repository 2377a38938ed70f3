"""DescribeUserScramCredentials 0, AlterUserScramCredentials 0, and the delegation tokens' 1-3, 1-2, 1-2 and 1-3: the same
answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.case import Case, Pair, Step, family
from interop.answers.side import Side
from interop.answers.steps import asks

from pybroker.protocol.message import Message
from pybroker.protocol.messages import credentials

describing, altering = family(50), family(51)
creating, renewing, expiring, describing_tokens = family(38), family(39), family(40), family(41)

SHA_256, SHA_512 = 1, 2


def own(side: Side, symbol: str) -> str:
    return side.name(symbol) if symbol else ""


def describe(*users: str) -> Step:
    def build(side: Side, _: int) -> Message:
        rows = [credentials.UserName(name=own(side, user)) for user in users]
        return credentials.DescribeUserScramCredentialsRequest(users=rows)

    return asks(50, build, f"describe {users}")


def delete(user: str = "u", mechanism: int = SHA_256) -> tuple[str, int]:
    return user, mechanism


Put = tuple[str, int, int, bytes]


def put(user: str = "u", mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt") -> Put:
    return user, mechanism, iterations, salt


def alter(*rows: tuple[str, int] | Put) -> Step:
    def build(side: Side, _: int) -> Message:
        request = credentials.AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        for row in rows:
            if len(row) == 2:
                request.deletions.append(credentials.ScramCredentialDeletion(name=own(side, row[0]), mechanism=row[1]))
            else:
                request.upsertions.append(
                    credentials.ScramCredentialUpsertion(
                        name=own(side, row[0]),
                        mechanism=row[1],
                        iterations=row[2],
                        salt=row[3],
                        salted_password=b"a salted password",
                    )
                )
        return request

    return asks(51, build, f"alter {rows}", changes=True)


SCRAM = [
    altering("a user", alter(put()), describe("u")),
    altering("both mechanisms", alter(put()), alter(put(mechanism=SHA_512, iterations=8192)), describe("u")),
    altering("both mechanisms in one request", alter(put(), put(mechanism=SHA_512)), describe("u")),
    altering("a user again", alter(put()), alter(put(iterations=5000)), describe("u")),
    altering("a user that goes", alter(put()), alter(delete()), describe("u")),
    altering("a user twice", alter(put(), put()), describe("u")),
    altering("a user deleted twice", alter(put()), alter(delete(), delete()), describe("u")),
    altering("a user deleted and put", alter(put()), alter(delete(), put()), describe("u")),
    altering("a user that is not there", alter(delete())),
    altering("a mechanism that the user does not have", alter(put()), alter(delete(mechanism=SHA_512)), describe("u")),
    altering("nobody", alter(put(user="")), alter(delete(user=""))),
    altering("an unknown mechanism", alter(put(mechanism=3)), alter(delete(mechanism=0)), alter(put(mechanism=-1))),
    *(
        altering(f"{count} iterations", alter(put(iterations=count)), describe("u"))
        for count in (0, -1, 4095, 16384, 16385, 2**31 - 1)
    ),
    altering("an empty salt", alter(put(salt=b"")), describe("u")),
    altering("a good one beside bad ones", alter(put("a"), put("b", 9), delete("c")), describe("a", "b", "c")),
    altering("nothing", alter()),
    describing("a user twice", alter(put()), describe("u", "u")),
    describing("somebody unknown", describe("nobody")),
    describing("several", alter(put("a"), put("b")), describe("a", "b", "nobody")),
]


def create_token(owner: tuple[str, str] | None = None, renewers: tuple[tuple[str, str], ...] = ()) -> Step:
    def build(_: Side, version: int) -> Message:
        fields = {} if owner is None or version < 3 else {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
        rows = [credentials.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers]
        return credentials.CreateDelegationTokenRequest(renewers=rows, max_lifetime_ms=-1, **fields)

    return asks(38, build)


def _describe_tokens(owners: list[credentials.DescribeDelegationTokenOwner] | None) -> Step:
    return asks(41, lambda _, __: credentials.DescribeDelegationTokenRequest(owners=owners))


OWNER = credentials.DescribeDelegationTokenOwner(principal_type="User", principal_name="u")
TOKENS = [
    creating("one's own", create_token()),
    creating("somebody else's", create_token(("User", "alice"))),
    creating("with renewers", create_token(renewers=(("User", "bob"),))),
    creating("with renewers that are no users", create_token(renewers=(("Group", "g"),))),
    renewing("a token", asks(39, lambda _, __: credentials.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1))),
    expiring("a token", asks(40, lambda _, __: credentials.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1))),
    describing_tokens("all", _describe_tokens(None)),
    describing_tokens("nobody's", _describe_tokens([])),
    describing_tokens("somebody's", _describe_tokens([OWNER])),
]


@pytest.mark.parametrize("case", [*SCRAM, *TOKENS], ids=str)
def test_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
