import pytest

from pybroker.base.ids import METADATA_TOPIC_UUID, ZERO_UUID, Uuid, uuid_from_text, uuid_to_text


def test_a_uuid_is_written_as_22_characters_of_url_safe_base64() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(Uuid(b"\xff" * 16)) == "_____________________w"


def test_its_text_reads_back() -> None:
    uuid = Uuid(bytes(range(16)))
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


@pytest.mark.parametrize("text", ["", "abc", "A" * 21, "A" * 23, "A" * 21 + "!", "A" * 21 + "B", "A" * 20 + "==", "ä" * 22])
def test_text_that_spells_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters"):
        uuid_from_text(text)
