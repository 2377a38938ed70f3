"""What all decisions share: their result, what they are given, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from pybroker.base.ids import Uuid
from pybroker.config.broker import Config
from pybroker.metadata.controller.effective_configs import EffectiveConfigs
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message

# What one request may write: its records go into one batch, which is committed as a whole.
MAX_RECORDS_PER_REQUEST = 10_000


def is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def unchangeable(level: int) -> KafkaError | None:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "This quorum cannot change kraft.version while it runs.")


class Result(NamedTuple):
    """The records are committed together or not at all, and then the response is given.

    `kraft_version` is an order to the quorum, which keeps that level in control records of its own: raise it, then answer.
    """

    records: list[Message]
    response: Message
    kraft_version: int | None = None


@dataclass(slots=True, frozen=True)
class Setting:
    """What a decision needs beside the image. `config` is the controller's own file.

    `is_address` says whether a text is an address or the name of a host; `has_authorizer` whether access control entries are
    enforced; `kraft_version` is the quorum's level, `check_kraft_version` says why it cannot go to another one, if so.
    """

    config: Config
    cluster_id: str
    effective: EffectiveConfigs
    new_uuid: Callable[[], Uuid]
    draw_below: Callable[[int], int]
    is_address: Callable[[str], bool] = is_ip_address
    has_authorizer: bool = False
    kraft_version: Callable[[], int] = lambda: 0
    check_kraft_version: Callable[[int], KafkaError | None] = unchangeable


def check_record_count(count: int) -> None:
    if count > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request would write {count} metadata records; at most {MAX_RECORDS_PER_REQUEST} are allowed. "
            "Ask for less at a time.",
        )
