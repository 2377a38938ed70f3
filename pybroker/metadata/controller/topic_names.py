"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import product

MAX_NAME_CHARS = 249
METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
# A name with more dots and underscores than this has more twins than a cluster has topics.
_MAX_SPELLED_OUT = 10


def problem_with_name(name: str) -> str | None:
    """What is wrong with `name`; None if nothing is."""
    if not name:
        return "A topic needs a name; found an empty one."
    if name in (".", ".."):
        return f"A topic cannot be called {name!r}, which is a directory's name."
    if len(name) > MAX_NAME_CHARS:
        return f"A topic's name has at most {MAX_NAME_CHARS} characters; found {len(name)} in {name!r}."
    if _LEGAL.fullmatch(name) is None:
        return f"A topic's name consists of ASCII letters, digits, '.', '_' and '-'; found {name!r}."
    return None


def twin_of(name: str, topics: Collection[str]) -> str | None:
    """A topic whose name differs from `name` only in dots for underscores: in the names of metrics they are the same.

    `topics` is looked up, not walked, unless the name has very many of them.
    """
    places = [at for at, char in enumerate(name) if char in "._"]
    if not places:
        return None
    if len(places) > _MAX_SPELLED_OUT:
        plain = name.replace(".", "_")
        return next((one for one in topics if one != name and one.replace(".", "_") == plain), None)
    return next((twin for twin in _spellings(name, places) if twin != name and twin in topics), None)


def _spellings(name: str, places: list[int]) -> Iterator[str]:
    chars = list(name)
    for spelling in product("._", repeat=len(places)):
        for at, char in zip(places, spelling, strict=True):
            chars[at] = char
        yield "".join(chars)
