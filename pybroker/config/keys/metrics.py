"""Metrics and client telemetry."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import CLUSTER_WIDE, INT, LIST, LONG, READ_ONLY, STRING
from pybroker.config.validators import ANY, at_least, one_of_any_case

JMX_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"
HTTP_METRICS = "names Java classes; metrics are served over HTTP"
LEVELS = one_of_any_case("INFO", "DEBUG", "TRACE")

KEYS = (
    Key("metrics.num.samples",                 INT,    2,               at_least(1), READ_ONLY,
        "How many past windows count for a rate."),
    Key("metrics.sample.window.ms",            LONG,   30_000,          at_least(1), READ_ONLY,
        "The length of a window for a rate."),
    Key("metrics.recording.level",             STRING, "INFO",          LEVELS,      READ_ONLY,
        "How much is measured: INFO, DEBUG or TRACE."),
    Key("metric.reporters",                    LIST,   (JMX_REPORTER,), ANY,         CLUSTER_WIDE,
        "Plugins that take the metrics elsewhere.", ignored=HTTP_METRICS),
    Key("kafka.metrics.reporters",             LIST,   (),              ANY,         READ_ONLY,
        "Plugins that take the older metrics elsewhere.", ignored=HTTP_METRICS),
    Key("kafka.metrics.polling.interval.secs", INT,    10,              at_least(1), READ_ONLY,
        "How often those plugins are fed.", ignored="goes with kafka.metrics.reporters"),
    Key("telemetry.max.bytes",                 INT,    1_048_576,       at_least(1), READ_ONLY,
        "The largest batch of metrics a client may push."),
)
