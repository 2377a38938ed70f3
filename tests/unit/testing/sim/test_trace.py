from __future__ import annotations

from pybroker.base.ids import ZERO_UUID
from pybroker.raft.events import ElectionState, EpochStart, Flushed, Recovered, ReplicaKey, Started
from pybroker.testing.sim.trace import brief


def test_events_with_and_without_fields_in_one_line() -> None:
    assert (brief(Started()), brief(Flushed(7))) == ("Started()", "Flushed(end_offset=7)")


def test_values_within_values() -> None:
    found = Recovered(ElectionState(3, None, ReplicaKey(1, ZERO_UUID)), 0, 9, (EpochStart(3, 0),), None, 1, ())
    assert brief(found) == (
        "Recovered(election=ElectionState(3, None, ReplicaKey(1, 0000)), log_start_offset=0, log_end_offset=9, "
        "epochs=[EpochStart(3, 0)], snapshot=None, kraft_version=1, voters=[])"
    )
