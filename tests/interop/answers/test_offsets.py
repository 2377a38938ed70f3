"""ListOffsets 1-11, DeleteRecords 0-2, OffsetForLeaderEpoch 2-4: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.admin import delete_records, deleted_records, epoch_end, list_offsets
from interop.answers.case import Case, Pair, family
from interop.answers.steps import T0, by, fetch, on, producer, records, stored, topic, written

from pybroker.protocol.records.compression import Codec

listing, deleting, ending = family(2), family(21), family(23)

# Offsets 0-2 at T0, +1 s, +2 s; 3-4 at +10 s, +5 s; 5-7 at +20 s, +20 s, +15 s.
LOG = (
    topic("t", 2),
    written(count=3),
    stored(on(records=records(2, timestamps=[T0 + 10_000, T0 + 5_000]))),
    stored(on(records=records(3, timestamps=[T0 + 20_000, T0 + 20_000, T0 + 15_000], codec=Codec.GZIP))),
)
SPECIAL = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest pending upload": -6,
    "unknown -7": -7,
}

LIST = [
    *(listing(f"the {name}", *LOG, list_offsets(on(at=at))) for name, at in SPECIAL.items()),
    *(listing(f"the {name} of an empty log", topic(), list_offsets(on(at=at))) for name, at in SPECIAL.items()),
    *(
        listing(f"at {after_ms} ms", *LOG, list_offsets(on(at=T0 + after_ms)))
        for after_ms in (-10_000, 0, 1, 1000, 2000, 2001, 5000, 6000, 10_000, 10_001, 15_000, 20_000, 20_001)
    ),
    listing("at time 0", *LOG, list_offsets(on(at=0))),
    listing("at the end of time", *LOG, list_offsets(on(at=2**63 - 1))),
    listing("at a very negative time", *LOG, list_offsets(on(at=-(2**63)))),
    listing("at a time in an empty log", topic(), list_offsets(on(at=T0))),
    *(
        listing(f"{name} after a deletion", *LOG, deleted_records("t", 4), list_offsets(on(at=at)))
        for name, at in {**SPECIAL, "at a time before": T0, "at a time behind": T0 + 11_000}.items()
    ),
    listing("an unknown topic", *LOG, list_offsets(on("nobody", at=-1))),
    listing("an unknown partition", *LOG, list_offsets(on("t", 5, at=-1), on("t", -1, at=-1))),
    listing("a bad name", *LOG, list_offsets(on("=no/such", at=-1), on("=", at=-1))),
    listing("several", *LOG, list_offsets(on("t", 0, at=-1), on("t", 1, at=-1), on("t", 2, at=-2), on("nobody", at=-1))),
    listing("a partition twice", *LOG, list_offsets(on("t", 0, at=-1), on("t", 0, at=-2))),
    listing("a partition twice beside another", *LOG, list_offsets(on("t", 0, at=-1), on("t", 1, at=-1), on("t", 0, at=-2))),
    listing("nothing", *LOG, list_offsets()),
    *(
        listing(f"leader epoch {epoch}", *LOG, list_offsets(on(at=-1, epoch=epoch)), versions="4+")
        for epoch in (-2, -1, 0, 1, 50)
    ),
    listing("read committed", *LOG, *(list_offsets(on(at=at), isolation=1) for at in (-1, -2, -3, T0)), versions="2+"),
    listing("isolation level 7", *LOG, list_offsets(on(at=-1), isolation=7), versions="2+"),
    *(
        listing(f"replica id {replica_id}", *LOG, list_offsets(on(at=-1), replica_id=replica_id))
        for replica_id in (-2, -3, 1, 5)
    ),
    listing(
        "append time",
        topic(message_timestamp_type="LogAppendTime"),
        written(count=3),
        list_offsets(on(at=T0)),
        list_offsets(on(at=-3)),
    ),
    listing("of an idempotent producer", topic(), producer(), stored(on(records=by("p", 0, 3))), list_offsets(on(at=-3))),
]


def delete_at(name: str, offset: int) -> Case:
    return deleting(
        name, *LOG, delete_records(on(offset=offset)), list_offsets(on(at=-2)), fetch(on(offset=max(0, offset)), version=18)
    )


DELETE = [
    delete_at("in the middle", 4),
    delete_at("at a batch", 3),
    delete_at("at 0", 0),
    delete_at("up to the end", 8),
    delete_at("all", -1),
    delete_at("beyond the end", 9),
    delete_at("at -2", -2),
    delete_at("far beyond", 2**62),
    deleting("before the start", *LOG, deleted_records("t", 5), delete_records(on(offset=3)), list_offsets(on(at=-2))),
    deleting(
        "an empty log", topic(), delete_records(on(offset=0)), delete_records(on(offset=-1)), delete_records(on(offset=1))
    ),
    deleting("an unknown topic", delete_records(on("nobody", offset=0))),
    deleting("an unknown partition", *LOG, delete_records(on("t", 7, offset=0), on("t", -1, offset=0))),
    deleting("a bad name", *LOG, delete_records(on("=no/such", offset=0), on("=", offset=0))),
    deleting(
        "several",
        *LOG,
        delete_records(on("t", 0, offset=2), on("t", 1, offset=0), on("t", 2, offset=0), on("nobody", offset=1)),
    ),
    deleting("nothing", delete_records()),
    deleting("a partition twice", *LOG, delete_records(on("t", 0, offset=2), on("t", 0, offset=4)), list_offsets(on(at=-2))),
    deleting("no time", *LOG, delete_records(on(offset=2), timeout_ms=0)),
    deleting("a negative time", *LOG, delete_records(on(offset=2), timeout_ms=-1)),
    deleting(
        "of a compacted topic",
        topic(cleanup_policy="compact"),
        written(count=2, keys=[b"a", b"b"]),
        delete_records(on(offset=1)),
    ),
    deleting(
        "of a compacted and deleted topic",
        topic(cleanup_policy="compact,delete"),
        written(count=2, keys=[b"a", b"b"]),
        delete_records(on(offset=1)),
    ),
    deleting("of the internal metadata", delete_records(on("=__cluster_metadata", offset=1))),
]

END = [
    *(ending(f"epoch {epoch}", *LOG, epoch_end(on(of=epoch))) for epoch in (-2, -1, 0, 1, 100)),
    *(ending(f"current epoch {epoch}", *LOG, epoch_end(on(of=0, epoch=epoch))) for epoch in (-2, 0, 1)),
    ending("an empty log", topic(), epoch_end(on(of=0), on(of=1))),
    ending("an empty log, its epoch", topic(), epoch_end(on(of=0))),
    ending("an unknown topic", epoch_end(on("nobody", of=0))),
    ending("an unknown partition", *LOG, epoch_end(on("t", 7, of=0), on("t", -1, of=0))),
    ending("several", *LOG, epoch_end(on("t", 0, of=0), on("t", 1, of=0), on("nobody", of=0))),
    ending("a partition twice", *LOG, epoch_end(on("t", 0, of=0), on("t", 0, of=5))),
    ending("nothing", epoch_end()),
    ending("a bad name", epoch_end(on("=no/such", of=0), on("=", of=0))),
    ending("after a deletion", *LOG, deleted_records("t", 8), epoch_end(on(of=0))),
    *(ending(f"replica id {replica_id}", *LOG, epoch_end(on(of=0), replica_id=replica_id)) for replica_id in (-1, 1, 5)),
]


@pytest.mark.parametrize("case", [*LIST, *DELETE, *END], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
