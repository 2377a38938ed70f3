"""ApiVersions (18): what this listener serves, and the features of the node and of the cluster.

Asked first on every connection. A version that we do not know is answered in v0, with the range that we do; clients newer
than this broker then ask again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from pybroker.metadata.image import VersionRange
from pybroker.network.request import Request
from pybroker.protocol.api_table import Api
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

PRODUCE_KEY: Final = 0
ZERO_FEATURES_FROM: Final = 4  # older clients take a lowest level of 0 for an error (KIP-1022)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandlers:
    def __init__(
        self,
        apis_of: Callable[[str], Mapping[int, Api]],
        supported: Mapping[str, VersionRange],
        finalized: Callable[[], Mapping[str, int]],
        metadata_offset: Callable[[], int],
    ) -> None:
        """`apis_of` gives what a listener serves; `supported` are the feature levels that this release knows."""
        self._apis_of = apis_of
        self._supported = supported
        self._finalized = finalized
        self._metadata_offset = metadata_offset

    def handle_api_versions(self, request: Request, message: ApiVersionsRequest | None) -> ApiVersionsResponse:
        if message is None:
            request.answer_version = 0
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_advertised(request.api)])
        version = request.version
        if version >= 3 and not (
            _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[_advertised(api) for api in self._apis_of(request.connection.listener_name).values()],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=levels.min_version, max_version=levels.max_version)
                for name, levels in self._supported.items()
                if version >= ZERO_FEATURES_FROM or levels.min_version > 0
            ],
            finalized_features_epoch=self._metadata_offset(),
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._finalized().items()
            ],
        )


def _advertised(api: Api) -> ApiVersion:
    low, high = api.stable_versions
    if api.key == PRODUCE_KEY:
        # Old librdkafka takes a broker without Produce v0 for one that knows no record batches; 3 is the lowest served.
        low = 0
    return ApiVersion(api_key=api.key, min_version=low, max_version=high)
