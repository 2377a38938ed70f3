from __future__ import annotations

import pytest

from pybroker.config.key import Update
from pybroker.config.keys import BROKER, TOPIC
from pybroker.server.config_parts import PART_OF, Part, part_of


def test_every_config_that_can_change_has_somebody_who_applies_it_and_no_other_has() -> None:
    assert set(PART_OF) == {name for name, key in BROKER.items() if key.update is not Update.READ_ONLY}


def test_what_topics_fall_back_to_is_the_logs() -> None:
    defaults = {key.fallbacks[0].name for key in TOPIC.values() if key.fallbacks}
    assert {name for name, part in PART_OF.items() if part is Part.LOGS} == defaults


def test_nobody_applies_just_what_has_no_effect() -> None:
    assert {name for name, part in PART_OF.items() if part is Part.NOBODY} == {
        name for name in PART_OF if BROKER[name].ignored is not None
    }


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("log.retention.ms", Part.LOGS),
        ("log.cleaner.delete.retention.ms", Part.LOGS),
        ("log.cleaner.threads", Part.CLEANER),
        ("num.io.threads", Part.SOCKET_SERVER),
        ("background.threads", Part.SCHEDULER),
        ("num.recovery.threads.per.data.dir", Part.LOG_MANAGER),
        ("ssl.keystore.location", Part.SECURITY),
        ("sasl.jaas.config", Part.SECURITY),
        ("remote.log.reader.threads", Part.TIERED_STORAGE),
        ("listener.name.external.max.connections", Part.SOCKET_SERVER),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", Part.SECURITY),
        ("log.dirs", None),
        ("no.such.key", None),
    ],
)
def test_who_applies_what(name: str, part: Part | None) -> None:
    assert part_of(name) is part
