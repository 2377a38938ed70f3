from __future__ import annotations

from pybroker.protocol.messages.cluster import BrokerHeartbeatResponse
from pybroker.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from pybroker.server.response_errors import errors_in


def test_the_errors_of_a_response_are_found_wherever_they_are() -> None:
    assert errors_in(BrokerHeartbeatResponse(error_code=41, should_shut_down=False)) == {41}
    results = [CreatableTopicResult(name=name, error_code=code, error_message=None) for name, code in (("a", 0), ("b", 36))]
    assert errors_in(CreateTopicsResponse(topics=results)) == {0, 36}
    assert errors_in(CreateTopicsResponse(topics=[])) == set()
