from __future__ import annotations

from typing import Any

from support.requests import AskedRequest
from unit.server.clusters import Clock, Controller

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.features import FeatureHandlers


def test_the_controller_updates_features_and_the_clients_time_does_not_count() -> None:
    controller, clock = Controller(), Clock()
    handlers: Any = FeatureHandlers(Forwarding(controller, clock.timer, clock.now_ms), lambda: 1000)
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    asked = AskedRequest(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=0), 2)
    handlers.handle_update_features(asked, asked.message)
    assert controller.request.feature_updates == [update]
    answer = UpdateFeaturesResponse(error_code=0, error_message=None)
    controller.answer(answer)
    assert asked.answer is answer


def test_a_controller_that_is_silent() -> None:
    controller, clock = Controller(), Clock()
    handlers: Any = FeatureHandlers(Forwarding(controller, clock.timer, clock.now_ms), lambda: 1000)
    asked = AskedRequest(UpdateFeaturesRequest(feature_updates=[]), 2)
    handlers.handle_update_features(asked, asked.message)
    clock.advance(1001)
    assert asked.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
