"""What must hold between keys: Apache Kafka's start-up checks, and what pybroker cannot take. Pure.

A finding names every key it read, so that it can be dropped when one of them is broken by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pybroker.config.problems import Severity
from pybroker.config.reading import parse_override
from pybroker.config.validators import SASL_SUPPORTED

if TYPE_CHECKING:
    from pybroker.config.broker import Config
    from pybroker.config.listeners import Listener


class Finding(NamedTuple):
    keys: tuple[str, ...]
    message: str
    severity: Severity = Severity.ERROR


def findings(config: Config) -> Iterator[Finding]:
    for check in (_ids, _quorum, _listeners, _listener_roles, _advertised, _inter_broker, _early_start, _overrides):
        yield from check(config)
    for check in (_log, _replication, _network, _groups, _tls, _sasl):
        yield from check(config)


def _ids(config: Config) -> Iterator[Finding]:
    if config["node.id"] != config["broker.id"]:
        message = f"node.id={config['node.id']} and broker.id={config['broker.id']} name the same thing and differ"
        yield Finding(("node.id", "broker.id"), message)


def _quorum(config: Config) -> Iterator[Finding]:
    voters, bootstrap = config["controller.quorum.voters"], config["controller.quorum.bootstrap.servers"]
    if not voters and not bootstrap:
        yield Finding(
            ("controller.quorum.bootstrap.servers", "controller.quorum.voters"),
            "where the controllers are must be given: controller.quorum.bootstrap.servers=host:port,..., "
            "or controller.quorum.voters=id@host:port,... for a fixed quorum",
        )
    keys = ("controller.quorum.voters", "node.id", "process.roles")
    ids = [int(voter.partition("@")[0]) for voter in voters]
    if ids and config.is_controller and config["node.id"] not in ids:
        message = f"controller.quorum.voters names {_join(sorted(ids))}, but this controller is node {config['node.id']}"
        yield Finding(keys, message)
    if not config.is_controller and config["node.id"] in ids:
        message = f"node {config['node.id']} is in controller.quorum.voters, but process.roles has no controller"
        yield Finding(keys, message)
    for id_ in (id_ for id_, count in Counter(ids).items() if count > 1):
        yield Finding(keys[:1], f"controller.quorum.voters names node {id_} twice")
    for address in (*voters, *bootstrap):
        if address.rpartition("@")[2].startswith("0.0.0.0:"):
            message = f"{address} is no address to connect to: 0.0.0.0 stands for all interfaces of a node"
            yield Finding(("controller.quorum.voters", "controller.quorum.bootstrap.servers"), message)


def _listeners(config: Config) -> Iterator[Finding]:
    yield from _twice("listeners", config.listeners)
    protocols = config.security_protocols
    used = {*(one.name for one in (*config.listeners, *config.advertised_listeners)), *config.controller_listener_names}
    for name in sorted(used - protocols.keys()):
        yield Finding(
            ("listener.security.protocol.map", "listeners", "advertised.listeners", "controller.listener.names"),
            f"listener.security.protocol.map does not say which protocol listener {name} speaks: add {name}:PLAINTEXT "
            "or another protocol",
        )


def _twice(key: str, listeners: tuple[Listener, ...]) -> Iterator[Finding]:
    for name, count in Counter(one.name for one in listeners).items():
        if count > 1:
            yield Finding((key,), f"{key} has {count} listeners of the name {name}")
    by_port: dict[int, list[Listener]] = {}
    for one in listeners:
        by_port.setdefault(one.port, []).append(one)
    for port, sharing in by_port.items():
        # One IPv4 and one IPv6 address may share a port.
        is_pair = (
            len(sharing) == 2 and {":" in one.host for one in sharing} == {True, False} and all(one.host for one in sharing)
        )
        if port != 0 and len(sharing) > 1 and not is_pair:
            yield Finding((key,), f"{key} uses port {port} twice: {_join(sharing)}")


def _listener_roles(config: Config) -> Iterator[Finding]:
    keys = ("controller.listener.names", "listeners", "process.roles")
    names = {one.name for one in config.listeners}
    for name in config.controller_listener_names:
        if config.is_controller and name not in names:
            yield Finding(keys, f"controller.listener.names has {name}, which is not in listeners ({_join(names)})")
        if not config.is_controller and name in names:
            yield Finding(keys, f"listeners has {name}, a controller listener, but process.roles has no controller")
    for name in config.items_of("controller.listener.names"):
        if name != name.upper() and name.upper() in names:
            yield Finding(keys, f"controller.listener.names has {name}: write it {name.upper()}, as Apache Kafka does")
    if config.broker_listeners and not config.is_broker:
        extra = _join(one.name for one in config.broker_listeners)
        yield Finding(keys, f"listeners has {extra}, but a controller only listens on controller.listener.names")
    if not config.broker_listeners and config.is_broker:
        yield Finding(keys, "all listeners are in controller.listener.names: none is left for the broker")


def _advertised(config: Config) -> Iterator[Finding]:
    keys = ("advertised.listeners", "listeners")
    names = {one.name for one in config.listeners}
    for one in config.advertised_listeners:
        if one.host in ("0.0.0.0", "::"):
            yield Finding(
                keys,
                f"{one} would be advertised, and {one.host} is no address to connect to: "
                "give advertised.listeners with a host that clients can reach",
            )
        if one.name not in names:
            yield Finding(keys, f"advertised.listeners has {one.name}, which is not in listeners ({_join(names)})")
    for name, count in Counter(one.name for one in config.advertised_listeners).items():
        if count > 1:
            yield Finding(keys[:1], f"advertised.listeners has {count} listeners of the name {name}")


def _inter_broker(config: Config) -> Iterator[Finding]:
    keys = ("inter.broker.listener.name", "security.inter.broker.protocol")
    if all(key in config.given for key in keys):
        yield Finding(keys, "inter.broker.listener.name and security.inter.broker.protocol say the same: give one of them")
    name = config.text("inter.broker.listener.name").upper()
    if name not in config.security_protocols:
        message = f"inter.broker.listener.name={name} has no protocol in listener.security.protocol.map"
        yield Finding((*keys, "listener.security.protocol.map"), message)
        return
    brokers = [one.name for one in config.advertised_listeners if one.name not in config.controller_listener_names]
    if config.is_broker and config.broker_listeners and name not in brokers:
        yield Finding(
            (*keys, "advertised.listeners", "listeners", "controller.listener.names", "process.roles"),
            f"brokers are to talk over {name}, but the listeners brokers advertise are {_join(brokers)}: "
            "inter.broker.listener.name must be one of them",
        )


def _early_start(config: Config) -> Iterator[Finding]:
    names = {one.name for one in config.listeners} | set(config.controller_listener_names)
    for name in config.items_of("early.start.listeners"):
        if name.upper() not in names:
            message = f"early.start.listeners has {name}, which is not in listeners ({_join(names)})"
            yield Finding(("early.start.listeners", "listeners", "controller.listener.names"), message)


def _overrides(config: Config) -> Iterator[Finding]:
    names = {one.name for one in config.listeners} | set(config.controller_listener_names)
    for given in config.given:
        override = parse_override(given)
        if override is not None and override.listener not in names:
            message = f"{given} has no effect: there is no listener {override.listener} ({_join(names)})"
            yield Finding((given, "listeners"), message, Severity.WARNING)


def _log(config: Config) -> Iterator[Finding]:
    if config["log.retention.ms"] == 0:
        retention = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        yield Finding(retention, "a retention of 0 ms keeps nothing: give at least 1 ms, or -1 to keep everything")
    if config["log.roll.ms"] < 1:
        yield Finding(("log.roll.ms", "log.roll.hours"), f"log.roll.ms={config['log.roll.ms']}: at least 1 is needed")
    if config["log.roll.jitter.ms"] < 0:
        keys = ("log.roll.jitter.ms", "log.roll.jitter.hours")
        yield Finding(keys, f"log.roll.jitter.ms={config['log.roll.jitter.ms']}: it cannot be negative")
    threads, buffer = config["log.cleaner.threads"], config["log.cleaner.dedupe.buffer.size"]
    keys = ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads")
    if threads == 0:
        yield Finding(keys[1:], "log.cleaner.threads=0: at least 1 is needed")
    elif buffer // threads <= 1024 * 1024:
        message = f"log.cleaner.dedupe.buffer.size={buffer} is too small: each of {threads} cleaners needs more than 1 MiB"
        yield Finding(keys, message)
    for folder in config.items_of("cordoned.log.dirs"):
        if folder != "*" and folder not in config["log.dirs"]:
            message = f"cordoned.log.dirs has {folder}, which is not in log.dirs ({_join(config['log.dirs'])})"
            yield Finding(("cordoned.log.dirs", "log.dirs", "log.dir"), message)


def _replication(config: Config) -> Iterator[Finding]:
    for limit in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        yield from _at_most(config, "replica.fetch.wait.max.ms", limit)
    if config["broker.session.timeout.ms"] <= config["broker.heartbeat.interval.ms"]:
        yield Finding(
            ("broker.session.timeout.ms", "broker.heartbeat.interval.ms"),
            f"broker.session.timeout.ms={config['broker.session.timeout.ms']} ends a session before the next heartbeat, "
            f"after {config['broker.heartbeat.interval.ms']} ms",
            Severity.WARNING,
        )


def _network(config: Config) -> Iterator[Finding]:
    queued, request = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    if 0 < queued < request:
        keys = ("queued.max.request.bytes", "socket.request.max.bytes")
        yield Finding(keys, f"queued.max.request.bytes={queued} has no room for one request of {request} bytes")
    if config["max.connections.per.ip"] == 0 and not config["max.connections.per.ip.overrides"]:
        keys = ("max.connections.per.ip", "max.connections.per.ip.overrides")
        yield Finding(keys, "max.connections.per.ip=0 lets nobody in unless max.connections.per.ip.overrides names some")
    delay, idle = config["connection.failed.authentication.delay.ms"], config["connections.max.idle.ms"]
    if 0 <= idle <= delay:
        keys = ("connection.failed.authentication.delay.ms", "connections.max.idle.ms")
        yield Finding(
            keys, f"connections.max.idle.ms={idle} closes a connection before a failed login is answered ({delay} ms)"
        )


def _groups(config: Config) -> Iterator[Finding]:
    if "classic" not in config["group.coordinator.rebalance.protocols"]:
        keys = ("group.coordinator.rebalance.protocols",)
        yield Finding(keys, "group.coordinator.rebalance.protocols must have classic among them")
    unserved = [name for name in ("share", "streams") if name in config["group.coordinator.rebalance.protocols"]]
    # The default, which is Apache Kafka's, has streams.
    if unserved and "group.coordinator.rebalance.protocols" in config.given:
        message = f"group.coordinator.rebalance.protocols has {_join(unserved)}: such groups are not served"
        yield Finding(("group.coordinator.rebalance.protocols",), message, Severity.WARNING)
    yield from _at_most(config, "group.min.session.timeout.ms", "group.max.session.timeout.ms", Severity.WARNING)
    for kind in ("consumer", "share", "streams"):
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            yield from _within(config, f"group.{kind}.", what)
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if config[heartbeat] >= config[session]:
            message = f"{heartbeat}={config[heartbeat]} must be less than {session}={config[session]}"
            yield Finding((heartbeat, session), message)
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        yield from _within(config, "group.share.", what)
    yield from _at_most(config, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")


def _within(config: Config, prefix: str, what: str) -> Iterator[Finding]:
    low, value, high = f"{prefix}min.{what}", f"{prefix}{what}", f"{prefix}max.{what}"
    yield from _at_most(config, low, high)
    yield from _at_most(config, low, value)
    yield from _at_most(config, value, high)


def _at_most(config: Config, small: str, large: str, severity: Severity = Severity.ERROR) -> Iterator[Finding]:
    if config[small] > config[large]:
        message = f"{small}={config[small]} must not be more than {large}={config[large]}"
        yield Finding((small, large), message, severity)


def _tls(config: Config) -> Iterator[Finding]:
    protocols = config.security_protocols
    # What the others are given, a file with keys for several nodes say, is not looked at.
    names = [one.name for one in config.listeners if protocols.get(one.name, "").endswith("SSL")]
    for store, what in (("ssl.keystore", "key store"), ("ssl.truststore", "trust store")):
        for name in names:
            kind = config.for_listener(name, f"{store}.type")
            if config.for_listener(name, f"{store}.location") is not None and kind.upper() != "PEM":
                keys = (f"{store}.type", f"{store}.location")
                yield Finding(keys, f"the {what} of listener {name} is {kind}: pybroker takes PEM, {store}.type=PEM")
                break


def _sasl(config: Config) -> Iterator[Finding]:
    protocols = config.security_protocols
    key = "sasl.enabled.mechanisms"
    for one in config.listeners:
        if not protocols.get(one.name, "").startswith("SASL"):
            continue
        enabled = config.for_listener(one.name, key)
        unsupported = [mechanism for mechanism in enabled if mechanism not in SASL_SUPPORTED]
        if unsupported:
            severity = Severity.WARNING if len(unsupported) < len(enabled) else Severity.ERROR
            message = f"listener {one.name} offers {_join(unsupported)}; pybroker has {_join(SASL_SUPPORTED)}"
            yield Finding((key, "listeners", "listener.security.protocol.map"), message, severity)
    inter = config.text("inter.broker.listener.name").upper()
    mechanism = config["sasl.mechanism.inter.broker.protocol"]
    if config.is_broker and protocols.get(inter, "").startswith("SASL"):
        enabled = config.for_listener(inter, key)
        if mechanism not in enabled:
            keys = ("sasl.mechanism.inter.broker.protocol", key, "inter.broker.listener.name")
            message = f"sasl.mechanism.inter.broker.protocol={mechanism} is not in {key} of listener {inter} ({_join(enabled)})"
            yield Finding(keys, message)


def _join(items: Iterable[object]) -> str:
    texts = [str(item) for item in items]
    return ", ".join(sorted(texts) if isinstance(items, set) else texts) or "none"
