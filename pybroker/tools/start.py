"""`pybroker start`: a node, from a server.properties file or, without one, with defaults for development.

With --env the environment has a say, as in a container; without it a stray variable changes nothing. Runs until SIGTERM,
SIGINT or SIGHUP, then stops cleanly; a second signal ends it at once.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from pybroker.config import Config, Loaded, load_file, load_text
from pybroker.config.problems import errors

CLUSTER_ID: Final = "CLUSTER_ID"  # Apache Kafka's image calls it so
LEVELS: Final = ("debug", "info", "warning", "error")

# One node for everything; a file given on the command line takes the place of all of it.
EMBEDDED: Final = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs=pybroker-data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

logger = logging.getLogger("pybroker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("properties", nargs="?", metavar="FILE", type=Path, help="a server.properties file")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="this value instead of the file's; may be repeated"
    )
    parser.add_argument(
        "--env",
        action="store_true",
        help=f"KAFKA_LOG_RETENTION_MS=... in the environment is log.retention.ms, above the file and below --override; "
        f"{CLUSTER_ID} is what --format-if-needed formats for",
    )
    parser.add_argument("--format-if-needed", action="store_true", help="format log directories that are not formatted yet")
    parser.add_argument("--check", action="store_true", help="only tell whether the node could start here, and be reached")
    parser.add_argument("--log-level", choices=LEVELS, default="info")


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    loaded = _load(args)
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    if loaded.config is None:
        return 1
    # Without a file this is for development: nobody should have to format anything.
    formats = args.format_if_needed or args.properties is None
    cluster_id = os.environ.get(CLUSTER_ID) or None if args.env else None
    if args.check:
        warnings = len(loaded.problems)
        return _check(loaded.config, args.properties, formats=formats, cluster_id=cluster_id, warnings=warnings)
    _start_logging(args.log_level)
    return _serve(loaded.config, args.properties, formats=formats, cluster_id=cluster_id, started=started)


def _load(args: argparse.Namespace) -> Loaded:
    environment = os.environ if args.env else None
    if args.properties is None:
        return load_text(EMBEDDED, "embedded defaults", args.override, environment)
    return load_file(args.properties, args.override, environment)


def _check(config: Config, path: Path | None, *, formats: bool, cluster_id: str | None, warnings: int) -> int:
    from pybroker.base.filesystem import OsFileSystem
    from pybroker.server.preflight import problems_of

    now_ms = time.time_ns() // 1_000_000
    file = None if path is None else str(path)
    problems = problems_of(config, OsFileSystem(), now_ms=now_ms, formats=formats, cluster_id=cluster_id, config_file=file)
    for problem in problems:
        print(problem, file=sys.stderr)
    if errors(problems):
        return 1
    warnings += len(problems)
    print("ok" + (f", with {warnings} warning{'s' * (warnings > 1)}" if warnings else ""))
    return 0


def _start_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-5s %(message)s", force=True)
    logging.addLevelName(logging.WARNING, "WARN")
    logging.addLevelName(logging.CRITICAL, "FATAL")


def _serve(config: Config, path: Path | None, *, formats: bool, cluster_id: str | None, started: float) -> int:
    from pybroker.server.node import Node, StartError, StartGivenUpError

    reasons_to_stop: SimpleQueue[str] = SimpleQueue()
    node = Node(
        config,
        config_path=path,
        formats=formats,
        cluster_id=cluster_id,
        on_fatal=lambda: reasons_to_stop.put("it cannot go on"),
    )

    def asked_to_stop(signal_name: str) -> None:
        reasons_to_stop.put(signal_name)
        node.give_up()

    _watch_signals(asked_to_stop)
    try:
        node.start()
    except StartGivenUpError as error:
        logger.info("stopping: %s, %s", reasons_to_stop.get(), error)
        return 0
    except StartError as error:
        logger.critical("%s", error)
        return 1
    # What a start leaves behind lives as long as the node: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    logger.info("ready in %.2f s", time.monotonic() - started)
    logger.info("stopping: %s", reasons_to_stop.get())
    node.stop()
    logger.info("stopped")
    return 1 if node.has_failed else 0


def _watch_signals(on_first: Callable[[str], None]) -> None:
    """Have the first signal's name told to `on_first`, on a thread of its own; a second signal ends the process at once.

    A handler in Python would run on the main thread alone, whenever that gets to it, while the system gives the signal to
    any thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signals.append(signal.SIGHUP)
    for number in signals:
        signal.signal(number, _heard_by_the_watch)

    def watch() -> None:
        on_first(signal.Signals(os.read(reader, 1)[0]).name)
        os._exit(128 + os.read(reader, 1)[0])

    threading.Thread(target=watch, name="signals", daemon=True).start()


def _heard_by_the_watch(_number: int, _frame: object) -> None:
    """With the default action in its place the signal would end the process."""
