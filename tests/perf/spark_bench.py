"""`make bench-spark`: rows/s of the jobs `ingest` and `archive` against Apache Kafka and pybroker, in one run, by turns.

Both brokers run all the while, in their stock configuration, and one Spark session of two threads drives the jobs as
`python -m spark_jobs` does: what is timed is a whole job, its checks and its summary included. A first round, which does not
count, warms up Spark and the brokers. The brokers' processor time is what their processes used meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from interop.apache_kafka import ROOT
from perf.bench.process import cpu_s
from perf.bench.servers import ApacheKafka, PyBroker, Server, UnavailableError

from spark_jobs.cli import main as run_job
from spark_jobs.jars import default_folder, jars_in
from spark_jobs.session import open_session

PARTITIONS = 6
VALUE_BYTES = 1024
WARM_UP_ROWS = 20_000
JOBS = ("ingest", "archive")
MASTER = "local[2]"


class Figure(NamedTuple):
    rows_per_s: float
    broker_cpu_us: float
    """Per row."""


def main() -> int:
    arguments = _arguments()
    if not jars_in(default_folder()):
        print("bench-spark: the connector is not here: make spark-jars", file=sys.stderr)
        return 2
    try:
        for kind in (ApacheKafka, PyBroker):
            kind.check()
    except UnavailableError as problem:
        print(f"bench-spark: {problem}", file=sys.stderr)
        return 2
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="bench-spark-") as folder, contextlib.ExitStack() as stack:
        directory = Path(folder)
        servers = [kind(directory / kind.name) for kind in (ApacheKafka, PyBroker)]
        for server in servers:
            server.prepare()
            stack.callback(server.kill)
            server.start()
        spark = open_session(MASTER, "bench", default_folder(), {"spark.driver.memory": "2g"})
        stack.callback(spark.stop)
        figures = _measure(spark, servers, directory, arguments.rows, arguments.runs)
    print(_table(figures, arguments.rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of 1 KiB that a job moves (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="the median of so many counts (default: %(default)s)")
    return parser.parse_args()


def _measure(spark: Any, servers: list[Server], directory: Path, rows: int, runs: int) -> dict[tuple[str, str], list[Figure]]:
    figures: dict[tuple[str, str], list[Figure]] = {(job, server.label): [] for job in JOBS for server in servers}
    for run in range(-1, runs):
        count = rows if run >= 0 else min(rows, WARM_UP_ROWS)
        path = _write_rows(directory, count)
        # By turns, so that neither always has the warmer machine.
        for server in servers if run % 2 else reversed(servers):
            for job, figure in zip(JOBS, _round(spark, server, directory, path, count), strict=True):
                if run >= 0:
                    figures[job, server.label].append(figure)
                    print(f"run {run}: {job} {server.label}: {figure.rows_per_s:,.0f} rows/s", file=sys.stderr, flush=True)
    return figures


def _round(spark: Any, server: Server, directory: Path, path: Path, count: int) -> list[Figure]:
    """The file into a new topic, and the topic into a new archive."""
    server.create_topic("rows", PARTITIONS)
    scratch = directory / "scratch"
    archive = ("--topics", "rows", "--to-path", str(scratch / "archive"), "--checkpoint", str(scratch / "checkpoint"))
    jobs = {"ingest": (str(path), "--value", "value", "--key", "id", "--to-topic", "rows"), "archive": archive}
    figures = []
    for job in JOBS:
        cpu_before, began = cpu_s(server.pid), time.monotonic()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run_job([job, "--bootstrap-servers", server.address, *jobs[job]], spark)
        seconds = time.monotonic() - began
        assert code == 0, said.getvalue()
        assert f"{job}: rows={count} " in said.getvalue(), said.getvalue()
        figures.append(Figure(count / seconds, (cpu_s(server.pid) - cpu_before) / count * 1e6))
    server.delete_topic("rows")
    shutil.rmtree(scratch)
    return figures


def _write_rows(directory: Path, count: int) -> Path:
    path = directory / f"{count}.jsonl"
    if not path.exists():
        text = "".join(chr(ord("a") + position * 7 % 26) for position in range(VALUE_BYTES - 10))
        with path.open("w") as file:
            for number in range(count):
                file.write(json.dumps({"id": number, "value": f"{number:010}{text}"}) + "\n")
    return path


def _table(figures: dict[tuple[str, str], list[Figure]], rows: int) -> str:
    lines = [
        f"{rows:,} rows of 1 KiB, {PARTITIONS} partitions, {MASTER}; medians, in parentheses the least and the most",
        "",
        "| job | broker | rows/s | broker's processor time, µs a row |",
        "|---|---|---|---|",
    ]
    for (job, label), found in figures.items():
        speeds = [figure.rows_per_s for figure in found]
        cpu = statistics.median(figure.broker_cpu_us for figure in found)
        lines.append(
            f"| {job} | {label} | {statistics.median(speeds):,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f}) | {cpu:.1f} |"
        )
    for job in JOBS:
        ours, theirs = (figures[job, kind.label] for kind in (PyBroker, ApacheKafka))
        speed = statistics.median(x.rows_per_s for x in ours) / statistics.median(x.rows_per_s for x in theirs)
        lines.append(f"\n{job}: pybroker has {speed:.2f} times Apache Kafka's rows/s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
