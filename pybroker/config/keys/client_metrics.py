"""The configs of a client metrics subscription."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import INT, LIST, PER_RESOURCE
from pybroker.config.validators import ANY

KEYS = (
    Key("metrics",     LIST, (),      ANY, PER_RESOURCE,
        "Names, or beginnings of names, of the metrics that clients push; * for all."),
    Key("interval.ms", INT,  300_000, ANY, PER_RESOURCE,
        "How often clients push them."),
    Key("match",       LIST, (),      ANY, PER_RESOURCE,
        "Which clients: a list of selector=pattern, as client_id=app.*"),
)
