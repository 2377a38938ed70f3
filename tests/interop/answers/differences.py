"""Where pybroker answers otherwise than Apache Kafka 4.3.1 on purpose: (cases, path in the answers, reason), both patterns.

Cases are matched as a whole ("Produce: null records"), paths anywhere. A row that no answer needs any more fails a full run.
Everywhere, and not listed: an error may come with a message where Apache Kafka has none.
"""

from __future__ import annotations

from typing import Final

# What depends on features of the cluster that come with the APIs they belong to.
_FEATURES: Final = ((r".*", r"(supported|finalized)_features/(share|streams)\.version$", "these APIs are not served yet"),)

# Requests that no client sends and that Apache Kafka trips over: it answers UNKNOWN_SERVER_ERROR, late, or never.
_TRIPS: Final = (
    (r"Produce: (null records|a good partition and one without records)", r"", "Apache Kafka never answers"),
    (r"AlterConfigs: a topic twice", r"", "Apache Kafka never answers"),
    (
        r"IncrementalAlterConfigs: (an unknown|a negative) operation",
        r"error_(code|message)$",
        "INVALID_REQUEST says what is wrong",
    ),
    (r"Fetch: (negative partition max bytes|max bytes -1)", r"", "a negative size is no size: the first batch is served"),
    (r"(Fetch|ListOffsets): isolation level (2|7|-1)", r"", "a level that nobody knows reads what is not committed, too"),
    (
        r"Produce: gzip stated, plain bytes",
        r"error_code$",
        "INVALID_RECORD says what is wrong, and no client sends it again",
    ),
    (r"Metadata: by nothing", r"error_code$", "INVALID_REQUEST says what is wrong"),
    (r"DescribeTopicPartitions: an empty name", r"topics/", "INVALID_TOPIC_EXCEPTION says what is wrong"),
)

_OURS: Final = (
    (r"Produce: a (partition|topic) twice", r"", "each is written and answered; Apache Kafka forgets all but the last"),
    (r"ApiVersions: an array of minus two", r"frame$", "only -1 is a null array; other negative lengths are broken requests"),
    (r"DescribeConfigs: the broker.*", r"configs/pybroker\.", "keys of our own"),
    (
        r"Fetch: (partition )?max bytes \d+( from the middle)?",
        r"records/\d$",
        "we send whole batches only, where Apache Kafka cuts the last one that consumers then drop",
    ),
    (
        r".*",
        r"heartbeat_interval_ms$",
        "shorter while a group settles, so that news travels faster",
    ),
    (r"IncrementalAlterConfigs: append a reporter of .*", r"", "we have no Java classes to look for"),
    (
        r"InitProducerId: a zombie recovers while its successor has a transaction open",
        r"",
        "it is fenced, where Apache Kafka lets it abort what its successor has open",
    ),
)

DIFFERENCES: Final[tuple[tuple[str, str, str], ...]] = (*_FEATURES, *_TRIPS, *_OURS)
