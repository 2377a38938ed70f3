"""UpdateFeatures 0-2: the same answer as Apache Kafka's, and the same levels afterwards.

Nothing here lowers metadata.version or raises kraft.version, which other cases build on.
"""

from __future__ import annotations

from typing import Any

import pytest
from interop.answers.case import Case, Pair, Step, family
from interop.answers.side import Side
from interop.answers.steps import asks

from pybroker.protocol.message import Message
from pybroker.protocol.messages import api_versions

updating = family(57)

UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA, KRAFT = "metadata.version", "kraft.version"


def update(*rows: tuple[str, int] | tuple[str, int, int], validate_only: bool = False, timeout_ms: int = 10_000) -> Step:
    def build(_: Side, version: int) -> Message:
        updates = []
        for name, level, *kind in rows:
            how: dict[str, Any] = {"upgrade_type": kind[0]} if version and kind else {}
            if version == 0:
                how = {"allow_downgrade": bool(kind) and kind[0] != UPGRADE}
            updates.append(api_versions.FeatureUpdateKey(feature=name, max_version_level=level, **how))
        fields = {"validate_only": validate_only} if version else {}
        return api_versions.UpdateFeaturesRequest(feature_updates=updates, timeout_ms=timeout_ms, **fields)

    return asks(57, build, f"update {rows}", changes=True)


def finalized() -> Step:
    def only_metadata(_: Side, answer: Any) -> Any:
        return answer["finalized_features"].get(METADATA)

    request = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return asks(18, lambda _, __: request, "the levels", version=4, see=only_metadata)


CASES = [
    updating("metadata.version as it is", update((METADATA, 30)), finalized()),
    updating("metadata.version of a later release", update((METADATA, 32)), finalized()),
    updating("metadata.version of an older release, as an upgrade", update((METADATA, 29)), finalized()),
    updating("metadata.version where metadata might be lost", update((METADATA, 29, SAFE)), finalized()),
    updating("metadata.version where metadata would be lost", update((METADATA, 29, UNSAFE)), finalized(), versions="1-2"),
    updating("metadata.version from before its time", update((METADATA, 6, SAFE)), finalized()),
    updating("metadata.version 0", update((METADATA, 0, UNSAFE)), finalized()),
    updating("a downgrade to a higher level", update((METADATA, 31, SAFE)), finalized()),
    updating("an unknown type of upgrade", update((METADATA, 30, 4)), finalized(), versions="1-2"),
    updating("no type of upgrade", update((METADATA, 30, 0)), finalized(), versions="1-2"),
    updating("a negative level", update((METADATA, -1))),
    updating("an unknown feature", update(("shoe.size", 44))),
    updating("an unknown feature, to 0", update(("shoe.size", 0))),
    updating("an unknown feature, to 0 by a downgrade", update(("shoe.size", 0, SAFE))),
    updating("a feature without a name", update(("", 1))),
    updating("a bad one beside a good one", update((METADATA, 30), ("shoe.size", 44))),
    updating("a feature twice", update((METADATA, 30), (METADATA, 30))),
    updating("validated only", update((METADATA, 30), validate_only=True), finalized(), versions="1-2"),
    updating("validated only, and bad", update((METADATA, 29, SAFE), validate_only=True), versions="1-2"),
    updating("kraft.version of later times", update((KRAFT, 2))),
    updating("kraft.version as it is", update((KRAFT, 0))),
    updating("kraft.version as a downgrade", update((KRAFT, 0, SAFE))),
    updating("nothing", update()),
    updating("no time", update((METADATA, 30), timeout_ms=0)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
