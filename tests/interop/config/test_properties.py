"""java.util.Properties and ours read the same texts to the same entries."""

from __future__ import annotations

import random

from interop.config.kafka_configs import ask

from pybroker.config import properties

PIECES = ["a", "b", "é", "=", ":", "#", "!", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "\\", "\\\n", "\\t", "\\u0042", "u12"]


def test_the_same_entries() -> None:
    rng = random.Random(4)
    texts = ["".join(rng.choices(PIECES, k=rng.randint(0, 16))) for _ in range(5000)]
    refused = 0
    for text, answer in zip(texts, ask("properties", texts), strict=True):
        parsed = properties.parse(text)
        if "error" in answer:
            assert any(note.fatal for note in parsed.notes), repr(text)
            refused += 1
            continue
        assert not any(note.fatal for note in parsed.notes), repr(text)
        ours, theirs = parsed.values, answer["entries"]
        if theirs.get("") == "":
            # A lone backslash at the very end is an entry without key and value to Java; to us it is nothing.
            ours.pop("", None)
            del theirs[""]
        assert ours == theirs, repr(text)
    assert refused > 100


def test_java_reads_back_what_we_write() -> None:
    rng = random.Random(5)
    alphabet = "ab=:#! \t\f\n\r\\é€😀\x00\x7f"
    maps = [
        {
            "".join(rng.choices(alphabet, k=rng.randint(1, 5))): "".join(rng.choices(alphabet, k=rng.randint(0, 6)))
            for _ in range(3)
        }
        for _ in range(500)
    ]
    answers = ask("properties", map(properties.write, maps))
    assert [answer["entries"] for answer in answers] == maps
