from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError, error_name


def test_a_code_is_its_number_and_says_whether_a_client_retries() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert ErrorCode(6).retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_protocol_error_says_message_version_field_and_offset() -> None:
    error = ProtocolError("too short", message="FetchRequest", version=12, field="topics", offset=9)
    assert str(error) == "FetchRequest v12, field topics, at byte 9: too short"
    assert str(ProtocolError("too short")) == "too short"


def test_a_kafka_error_carries_code_and_message() -> None:
    error = KafkaError(ErrorCode.CORRUPT_MESSAGE, "the crc is off")
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert str(error) == "CORRUPT_MESSAGE: the crc is off"


def test_a_code_newer_than_the_table_is_named_by_its_number() -> None:
    assert [error_name(code) for code in (0, 41, 12345)] == ["NONE", "NOT_CONTROLLER", "12345"]
