from __future__ import annotations

import pytest

from pybroker.config import validators as v


@pytest.mark.parametrize(
    ("validator", "good", "bad"),
    [
        (v.at_least(1), [1, 2**40], [0, -1]),
        (v.between(0, 0.5), [0, 0.5, 0.25], [-0.1, 0.51]),
        (v.one_of("a", "b"), ["a", "b"], ["A", "", "ab"]),
        (v.one_of_any_case("Up", "Down"), ["up", "DOWN"], ["left", ""]),
        (v.items_of("a", "b"), [("a",), ("b", "a")], [(), ("a", "c")]),
        (v.items_of("a", empty=True), [(), ("a",)], [("b",)]),
        (v.NON_EMPTY, ["x"], [""]),
        (v.NON_EMPTY_LIST, [("x",)], [()]),
        (v.GZIP_LEVEL, [-1, 1, 9], [0, -2, 10]),
        (v.CODEC, [0, 4], [-1, 5]),
        (v.LISTENERS, [("A://:1", "B://h:2")], [(), ("A",), ("A://:1", "B:2")]),
        (v.PROTOCOL_MAP, ["", "A:SSL", "a:plaintext, b:sasl_ssl"], ["A", "A:TLS", ":SSL"]),
        (v.HOST_PORTS, [("h:1",), ("[::1]:2", "10.0.0.1:3")], [(), ("h",), ("h:",), ("1@h:1",), (":1",)]),
        (v.VOTERS, [("1@h:1",), ("1@[::1]:2", "2@h:3")], [(), ("h:1",), ("1@h",), ("x@h:1",)]),
        (v.SASL_MECHANISMS, [(), ("PLAIN", "SCRAM-SHA-256")], [("plain",), ("A" * 21,)]),
        (v.THROTTLED_REPLICAS, [(), ("*",), ("0:1", "1:2")], [("0",), ("*", "0:1"), ("0:a",)]),
        (v.CONNECTIONS_PER_IP, ["", "1.2.3.4:5, h:6", "::1:7"], ["h", "h:x", ":5", "h:5,"]),
        (
            v.OFFSET_RESET,
            ["latest", "earliest", "by_duration:P1D", "by_duration:PT0.5S"],
            ["none", "by_duration:", "by_duration:PT"],
        ),
        (v.ANY, ["", 1, None], []),
    ],
    ids=lambda case: case.text if isinstance(case, v.Validator) else "",
)
def test_what_is_allowed(validator: v.Validator, good: list[object], bad: list[object]) -> None:
    assert [value for value in good if not validator.accepts(value)] == []
    assert [value for value in bad if validator.accepts(value)] == []


def test_the_text_says_what_is_allowed() -> None:
    assert v.at_least(1).text == "at least 1"
    assert v.between(1, 9).text == "1 to 9"
    assert v.one_of("a", "b").text == "one of a, b"
    assert v.items_of("a", "b", empty=True).text == "a list of a, b, or nothing"
