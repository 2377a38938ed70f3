"""The configuration of a running node: its file, and over it what the cluster's metadata says of brokers and of topics.

`publish` runs on the thread that publishes metadata, before whoever makes logs; everything else is for any thread. `current` is
one immutable value, replaced as a whole, and read without a lock; a lock only orders those who subscribe and what is told to
them, so that nobody misses what came before, or twice what comes then. A config in the metadata log that this node cannot use
is logged and the value before it stays: whatever stands there, the node goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from pybroker.config import Config
from pybroker.config.broker import Loaded
from pybroker.config.dynamic import check_dynamic
from pybroker.config.keys import TOPIC
from pybroker.config.problems import Problem, errors
from pybroker.config.reading import parse_override, read_resource
from pybroker.config.resources import defaults_of, levels_of
from pybroker.config.types import to_text
from pybroker.log.log_config import LogConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage, ResourceType
from pybroker.server.config_parts import Part, part_of

logger = logging.getLogger(__name__)

OnChange = Callable[[Config, Config], object]
UpdateLogs = Callable[[Callable[[str], LogConfig], Collection[str] | None], object]
Texts = Mapping[str, str]

CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")


class _Topic(NamedTuple):
    """A topic's configs, and what they were made of."""

    overrides: Texts
    broker: Config
    values: Mapping[str, Any]
    log: LogConfig


class NodeConfig:
    def __init__(self, static: Config) -> None:
        """`static` is the node's file."""
        self.static = static
        self.current = static
        self._telling = Lock()
        self._update_logs: UpdateLogs | None = None
        self._own = ConfigResource(ResourceType.BROKER, str(static.int("node.id")))
        self._cluster: Texts = {}
        self._broker: Texts = {}
        self.levels = levels_of(static, {}, {})
        self._image = EMPTY_IMAGE
        self._topics: dict[str, _Topic] = {}
        self._plain = self._topic_of("every topic", {}, static)
        self._subscribers: list[tuple[OnChange, Part | None]] = []

    # For whoever needs a config.

    def topic_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """A topic's overrides in `image` over the broker's configs of now."""
        return self._topic(image, topic).log

    def config_of(self, topic: str) -> LogConfig:
        """The same, in the image that was published last."""
        return self._topic(self._image, topic).log

    def topic_value(self, image: MetadataImage, topic: str, name: str) -> Any:
        """The effective value of any topic config, also of those that are no business of a log."""
        return self._topic(image, topic).values[name]

    def subscribe(self, on_change: OnChange, part: Part | None = None) -> None:
        """Have `on_change` called with the former and the new configuration, on the publishing thread, after every change of
        a broker config; with `part`, only after a change of a config that this part of the node applies. It is called at once
        if the file, by which the part may have been made, is not what counts now."""
        with self._telling:
            self._subscribers.append((on_change, part))
            parts = {part_of(name) for name in changed_keys(self.static, self.current)}
            self._tell(on_change, part, parts, self.static, self.current)

    def subscribe_logs(self, update_logs: UpdateLogs) -> None:
        """Have `update_logs` called with a function from topic to config, and with the topics whose logs need a new one, None
        for all; at once for all, since their configs may have changed while they were loaded."""
        with self._telling:
            self._update_logs = update_logs
            if self._image is not EMPTY_IMAGE:
                self._tell_logs(None)

    def with_changes(self, *, cluster: Texts | None = None, broker: Texts | None = None) -> Loaded:
        """What the configuration would be if the dynamic configs of the cluster, or of this broker, were those given."""
        return self.static.with_changes(
            self._cluster if cluster is None else cluster, self._broker if broker is None else broker
        )

    # For the publisher of metadata.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        with self._telling:
            self._publish(delta, image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, self._image = self._image, image
        changed = delta.changed_configs
        for topic in delta.deleted_topics.values():
            self._topics.pop(topic.name, None)
        stale: list[str] | None = []
        # What is published first counts as a whole, however much of it is in the delta: nothing of it is applied yet.
        is_first = before is EMPTY_IMAGE
        if is_first or CLUSTER_DEFAULT in changed or self._own in changed:
            old, new = self.current, self._next_config(image)
            different = changed_keys(old, new)
            if different:
                self._apply(old, new, different)
            if is_first or any(part_of(name) is Part.LOGS for name in different):
                stale = None
        if stale is not None:
            topics = [resource.name for resource in changed if resource.type == ResourceType.TOPIC]
            # A topic that is new has no logs yet.
            stale = [name for name in topics if name in before.topics and name in image.topics]
        if stale is None or stale:
            self._tell_logs(stale)

    def _tell_logs(self, topics: list[str] | None) -> None:
        if self._update_logs is None:
            return
        try:
            self._update_logs(self.config_of, topics)
        except Exception:
            logger.exception("new configs could not be given to the logs of %s", "all topics" if topics is None else topics)

    def _next_config(self, image: MetadataImage) -> Config:
        cluster = usable(image.configs.get(CLUSTER_DEFAULT, {}), self._cluster, per_broker=False)
        broker = usable(image.configs.get(self._own, {}), self._broker, per_broker=True)
        loaded = self.static.with_changes(cluster, broker)
        if loaded.config is None:
            # Each may be right, and still not go with another one: go back on those that are said to be in conflict.
            _report(errors(loaded.problems))
            conflicting = {key for problem in errors(loaded.problems) for key in problem.keys}
            cluster = _restored(cluster, self._cluster, conflicting)
            broker = _restored(broker, self._broker, conflicting)
            loaded = self.static.with_changes(cluster, broker)
            if loaded.config is None:
                logger.error("the dynamic broker configs stay as they were")
                return self.current
        self._cluster, self._broker = cluster, broker
        self.levels = levels_of(self.static, cluster, broker)
        return loaded.config

    def _apply(self, old: Config, new: Config, different: set[str]) -> None:
        self.current = new
        self._plain = self._topic_of("every topic", {}, new)
        logger.info("new dynamic broker configs: %s", ", ".join(f"{name}={_shown(new, name)}" for name in sorted(different)))
        parts = {part_of(name) for name in different}
        for on_change, part in self._subscribers:
            self._tell(on_change, part, parts, old, new)

    @staticmethod
    def _tell(on_change: OnChange, part: Part | None, changed: set[Part | None], old: Config, new: Config) -> None:
        if not changed or (part is not None and part not in changed):
            return
        try:
            on_change(old, new)
        except Exception:
            logger.exception("a change of configs could not be applied by %r", on_change)

    # Topics.

    def _topic(self, image: MetadataImage, topic: str) -> _Topic:
        overrides = image.configs.get(ConfigResource(ResourceType.TOPIC, topic))
        if overrides is None:
            return self._plain
        current = self.current
        found = self._topics.get(topic)
        if found is None or found.overrides is not overrides or found.broker is not current:
            found = self._topics[topic] = self._topic_of(topic, overrides, current)
        return found

    def _topic_of(self, topic: str, overrides: Texts, current: Config) -> _Topic:
        values = defaults_of(TOPIC, current)
        if overrides:
            read, problems = read_resource(TOPIC, "topic", overrides)
            for problem in errors(problems):
                logger.error("topic %s: the config is not used: %s", topic, problem.message)
            values |= read
        return _Topic(overrides, current, values, LogConfig.of(values))


def usable(wanted: Texts, accepted: Texts, *, per_broker: bool) -> dict[str, str]:
    """`wanted` without what cannot be used; there the value that was `accepted` before stays, if there was one."""
    problems = errors(check_dynamic(wanted, per_broker=per_broker))
    _report(problems)
    return _restored(wanted, accepted, {key for problem in problems for key in problem.keys})


def _restored(texts: Texts, accepted: Texts, names: set[str]) -> dict[str, str]:
    kept = {name: text for name, text in texts.items() if name not in names}
    return kept | {name: accepted[name] for name in names if name in accepted and name in texts}


def changed_keys(old: Config, new: Config) -> set[str]:
    """The broker configs, and the overrides of single listeners, that differ."""
    if old is new:
        return set()
    values = {name for name in new if old[name] != new[name]}
    prefixed = {name for name in (*old.given, *new.given) if name.startswith("listener.name.")}
    return values | {name for name in prefixed if _text(old, name) != _text(new, name)}


def _text(config: Config, name: str) -> str | None:
    given = config.given.get(name)
    return None if given is None else given.value


def _shown(config: Config, name: str) -> str | None:
    override = parse_override(name)
    value = config[name] if override is None else config.for_listener(override.listener, override.key.name, override.mechanism)
    return to_text(value)


def _report(problems: Iterable[Problem]) -> None:
    for problem in problems:
        logger.error("%s: %s; the value before it stays", problem.where, problem.message)
