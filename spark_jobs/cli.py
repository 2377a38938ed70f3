"""The command line: one subcommand a job, options that all share, one line for whatever goes wrong."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from spark_jobs.arguments import key_value
from spark_jobs.errors import FAILED, INTERRUPTED, REFUSED, Begun, JobError, explain
from spark_jobs.jars import SPARK_VERSION, default_folder
from spark_jobs.session import open_session
from spark_jobs.stop import Stop
from spark_jobs.summary import Summary

JOBS = ("ingest", "archive", "replay", "validate", "dedupe", "windows", "outbox", "to_postgres", "audit")


def main(arguments: Sequence[str], spark: Any = None) -> int:
    """The exit code. A session that is given is used, and stays open."""
    given = None
    begun = Begun()
    try:
        if spark is None:
            _check_pyspark()
        parser = _parser()
        given = parser.parse_args(arguments)
        began = time.monotonic()
        summary = _run(given, spark, begun)
        # Where stdout is for a machine, the line is for the terminal.
        line = summary.line(given.job, time.monotonic() - began)
        print(line, file=sys.stderr if getattr(given, "json", False) else sys.stdout, flush=True)
        return 0
    except JobError as error:
        return _refuse(given, str(error), error.exit_code, begun)
    except KeyboardInterrupt:
        return _refuse(given, "interrupted", INTERRUPTED, begun)
    except Exception as error:
        # Spark finds wrong paths, columns and types while it plans, before it runs anything.
        return _refuse(given, explain(error), REFUSED if type(error).__name__ == "AnalysisException" else FAILED, begun)


def _run(given: argparse.Namespace, spark: Any, begun: Begun) -> Summary:
    from spark_jobs.context import Context
    from spark_jobs.kafka import Kafka

    kafka = Kafka(spark, given.bootstrap_servers, dict(given.kafka_option), begun)
    kafka.check_reachable()
    job = importlib.import_module(f"spark_jobs.jobs.{given.job}")
    if hasattr(job, "check"):
        job.check(given)
    session = spark or open_session(
        given.master, f"spark_jobs {given.job}", given.jars, dict(given.conf), given.spark_log_level
    )
    try:
        kafka.spark = session
        stop = Stop()
        with stop.on_signals():
            summary = job.run(Context(session, kafka, given, _say, stop, begun))
        assert isinstance(summary, Summary)
        return summary
    finally:
        if spark is None:
            with contextlib.suppress(Exception):
                session.stop()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _refuse(given: argparse.Namespace | None, message: str, exit_code: int, begun: Begun) -> int:
    if exit_code == REFUSED and begun.is_set:
        message, exit_code = f"{message}; it had begun, what it wrote before stays", FAILED
    print(f"{given.job if given else 'spark_jobs'}: {message}", file=sys.stderr, flush=True)
    return exit_code


def _check_pyspark() -> None:
    try:
        import pyspark
    except ImportError:
        raise JobError(f"pyspark is not installed: pip install pyspark=={SPARK_VERSION}") from None
    if pyspark.__version__.split(".")[:2] != SPARK_VERSION.split(".")[:2]:
        raise JobError(f"pyspark {pyspark.__version__} is installed, the jobs and their connector are for {SPARK_VERSION}")


class _Parser(argparse.ArgumentParser):
    """Usage problems are one line too."""

    def error(self, message: str) -> NoReturn:
        raise JobError(f"{message} (python -m {self.prog} --help)", REFUSED)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spark_jobs", description="PySpark jobs for a Kafka cluster", allow_abbrev=False)
    subparsers = parser.add_subparsers(dest="job", required=True, metavar="JOB", parser_class=_Parser)
    for name in JOBS:
        job = importlib.import_module(f"spark_jobs.jobs.{name}")
        purpose = (job.__doc__ or "").split("\n", 1)[0].rstrip(".:")
        subparser = subparsers.add_parser(name, help=purpose, description=job.__doc__, allow_abbrev=False)
        _add_common(subparser)
        job.add_arguments(subparser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    common = parser.add_argument_group("cluster and Spark")
    common.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT", help="brokers to begin with")
    common.add_argument("--kafka-option", action="append", type=key_value, default=[], metavar="K=V", help="of Kafka's clients")
    common.add_argument("--master", default="local[2]", help="Spark's master (default: %(default)s)")
    common.add_argument("--conf", action="append", type=key_value, default=[], metavar="K=V", help="a setting of Spark's")
    common.add_argument("--jars", type=Path, default=default_folder(), metavar="DIR", help="where `make spark-jars` put them")
    common.add_argument(
        "--spark-log-level",
        choices=("off", "error", "warn", "info"),
        default="off",
        help="of a local driver (default: %(default)s)",
    )
