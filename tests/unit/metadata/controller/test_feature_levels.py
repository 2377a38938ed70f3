from __future__ import annotations

from pybroker.metadata.controller.feature_levels import LEVELS, default_levels, requirements, unmet
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES, SUPPORTED


def test_what_a_release_begins_with() -> None:
    assert default_levels(RELEASES["3.8-IV0"])["kraft.version"] == 0
    assert default_levels(RELEASES["3.9-IV0"])["kraft.version"] == 1
    assert default_levels(RELEASES["4.3-IV0"]).keys() <= SUPPORTED.keys()


def test_what_a_level_requires() -> None:
    elr = "eligible.leader.replicas.version"
    assert requirements(elr, 1) == {METADATA_VERSION: 23}
    assert requirements(elr, 0) == {}
    assert requirements(elr, 2) is None
    assert requirements(elr, -1) is None
    assert requirements("shoe.size", 1) is None
    assert requirements(METADATA_VERSION, 30) == {}
    assert requirements(METADATA_VERSION, 99) is None
    assert unmet(elr, 1, {METADATA_VERSION: 22}) == (METADATA_VERSION, 23)
    assert unmet(elr, 1, {}) == (METADATA_VERSION, 23)
    assert unmet(elr, 1, {METADATA_VERSION: 23}) is None


def test_every_supported_level_is_in_the_table() -> None:
    for name, levels in SUPPORTED.items():
        if name != METADATA_VERSION:
            assert len(LEVELS[name]) > levels.max_version
