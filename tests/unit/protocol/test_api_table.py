from pybroker.protocol.api_table import API_BY_KEY, APIS, BOTH, BROKER, CONTROLLER


def test_there_are_89_apis_and_no_key_twice() -> None:
    assert len(APIS) == len(API_BY_KEY) == 89
    assert [api.key for api in APIS] == sorted(API_BY_KEY)


def test_both_messages_of_an_api_have_its_key_and_the_same_versions() -> None:
    for api in APIS:
        assert api.request.KEY == api.response.KEY == api.key
        assert api.request.VERSIONS == api.response.VERSIONS
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"


def test_an_unstable_version_is_known_and_not_advertised() -> None:
    init_producer_id = API_BY_KEY[22]
    assert str(init_producer_id.versions) == "0-6"
    assert str(init_producer_id.stable_versions) == "0-5"
    assert str(API_BY_KEY[0].stable_versions) == "3-13"


def test_headers_are_flexible_where_the_message_is_but_for_the_answer_to_api_versions() -> None:
    produce, api_versions = API_BY_KEY[0], API_BY_KEY[18]
    assert [produce.request_header_version(version) for version in (8, 9)] == [1, 2]
    assert [produce.response_header_version(version) for version in (8, 9)] == [0, 1]
    assert [api_versions.request_header_version(version) for version in (2, 3)] == [1, 2]
    assert [api_versions.response_header_version(version) for version in (2, 3, 4)] == [0, 0, 0]


def test_listeners() -> None:
    assert API_BY_KEY[0].listeners == BROKER
    assert API_BY_KEY[52].listeners == CONTROLLER
    assert API_BY_KEY[18].listeners == BOTH
