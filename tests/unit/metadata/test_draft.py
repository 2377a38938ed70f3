from __future__ import annotations

from pybroker.metadata.draft import Draft, TrackedDraft


def test_a_draft_is_a_copy_from_its_first_change_on() -> None:
    base = {"a": 1}
    draft = Draft(base)
    assert draft.give() is base
    draft.own()["b"] = 2
    given = draft.give()
    draft.own()["c"] = 3
    assert (base, given, draft.now) == ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3})


def test_a_tracked_draft_notes_what_was_set_or_removed() -> None:
    draft = TrackedDraft({"a": 1})
    draft.put("b", 2)
    assert draft.remove("a") == 1
    assert draft.remove("never") is None
    assert (draft.now, draft.changed) == ({"b": 2}, {"a", "b"})
