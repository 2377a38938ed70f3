"""`make bench-transactions`: what transactions cost a producer of 1 KiB records, of Apache Kafka and of pybroker in one run.

The same client sends with acks=all and one request in flight, with acks=1 and five, and in transactions of 100 ms; then single
records, a transaction each. Rounds go over the modes in turn, so that a slow minute falls on none of them alone. Writes
docs/benchmarks-transactions.md; the report is in transactions_report.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer
from interop.apache_kafka import ROOT, java_command
from perf.bench.frames import full_batch
from perf.bench.results import Failure, Measurement, Results, percentile
from perf.bench.runner import machine, say
from perf.bench.servers import ApacheKafka, PyBroker, Server, UnavailableError
from perf.bench.transactions_report import CLIENTS, MODES, markdown, text
from perf.bench.workloads import KIB, Meter, Session, Values, warm_up
from perf.bench.workloads import QUICK as WARM_UP_PACE

from pybroker.protocol.records.compression import Codec

SERVERS: tuple[type[Server], ...] = (ApacheKafka, PyBroker)
WAIT_S = 60.0
TRANSACTION_MS = 100
_BUILD = ROOT / "build" / "bench"


class Pace(NamedTuple):
    seconds: float
    lead_in_s: float
    rounds: int


# Short runs and many of them: the modes are compared with each other, and what else the machine does changes by the second.
FULL = Pace(1.0, 2.0, 9)
QUICK = Pace(1.0, 1.5, 3)


class Sent(NamedTuple):
    records: int
    seconds: float
    commits_s: list[float]


# (topic, mode, seconds) -> what was sent in it.
Send = Callable[[str, str, float], Sent]


def settings_of(mode: str) -> dict[str, str]:
    """What the modes differ in; both clients call it by these names."""
    if mode == "one-in-flight":
        return {"acks": "all", "enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
    if mode == "five-in-flight":
        return {"acks": "1", "enable.idempotence": "false", "max.in.flight.requests.per.connection": "5"}
    return {"acks": "all", "max.in.flight.requests.per.connection": "5", "transactional.id": uuid4().hex}


# The Java producer.


@contextmanager
def java(address: str) -> Iterator[Send]:
    command = [*java_command("TransactionBench"), address]
    # It lives long enough for the second compiler.
    command = [part for part in command if part != "-XX:TieredStopAtLevel=1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def send(topic: str, mode: str, seconds: float) -> Sent:
            assert process.stdin is not None
            assert process.stdout is not None
            kind = "plain" if mode.endswith("in-flight") else "transactional"
            words = [kind, topic, str(KIB), str(seconds)]
            if kind == "transactional":
                words.append("0" if mode == "small" else str(TRANSACTION_MS))
            words += [f"{key}={value}" for key, value in settings_of(mode).items()]
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, "the Java producer ended"
            records, took, *commits = line.split()
            return Sent(int(records), float(took), [int(commit) / 1e9 for commit in commits])

        try:
            yield send
        finally:
            process.kill()


# librdkafka.


@contextmanager
def confluent(address: str) -> Iterator[Send]:
    value = full_batch(0, KIB, Codec.NONE, 0).data[-KIB:]

    def send(topic: str, mode: str, seconds: float) -> Sent:
        refused: list[KafkaError] = []
        # librdkafka's own defaults, but for a batch of the Java producer's time: 5 ms of linger, both.
        producer = Producer({"bootstrap.servers": address, "enable.metrics.push": False, **settings_of(mode)})
        is_transactional = not mode.endswith("in-flight")
        if is_transactional:
            producer.init_transactions(WAIT_S)
        else:
            producer.list_topics(topic, WAIT_S)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        records = 0
        commits: list[float] = []
        lasts_s = {"small": 0.0, "transactional": TRANSACTION_MS / 1000}.get(mode, seconds)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            until = time.monotonic() + lasts_s
            if is_transactional:
                producer.begin_transaction()
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                    records += 1
                except BufferError:
                    producer.poll(0.01)
                if time.monotonic() >= until:
                    break
            if is_transactional:
                commit_began = time.monotonic()
                producer.commit_transaction(WAIT_S)
                commits.append(time.monotonic() - commit_began)
        assert producer.flush(WAIT_S) == 0
        assert not refused, f"{len(refused)} of {records} records were refused: {refused[0]}"
        return Sent(records, time.monotonic() - began, commits)

    yield send


_CLIENTS: dict[str, Callable[[str], Any]] = {"java": java, "confluent": confluent}


# Rounds.


class Bench:
    def __init__(self, pace: Pace, directory: Path, clients: list[str]) -> None:
        self._pace = pace
        self._directory = directory
        self._clients = clients
        names = {f"{client} {mode}": f"{CLIENTS[client]}, {MODES[mode]}" for client in clients for mode in MODES}
        self.results = Results(machine(), {}, names)

    def run(self, servers: list[type[Server]]) -> Results:
        for kind in servers:
            try:
                kind.check()
            except UnavailableError as reason:
                self.results.skipped[kind.label] = str(reason)
                say(f"{kind.label} is left out: {reason}")
                continue
            self.results.servers[kind.name] = kind.label
            server = kind(self._directory / kind.name)
            try:
                server.prepare()
                server.start()
                self._session(Session(server, WARM_UP_PACE))
                server.stop()
            except Exception as problem:
                self.results.failures.append(Failure(server.name, "the session", 0, f"{type(problem).__name__}: {problem}"))
                say(f"FAILED: {problem}")
            finally:
                server.kill()
                shutil.rmtree(server.directory, ignore_errors=True)
        return self.results

    def _session(self, session: Session) -> None:
        server = session.server
        say(f"{server.label}: warm-up")
        if not warm_up(session, set()).complete:
            self.results.cold.append(server.name)
        for client in self._clients:
            with _CLIENTS[client](server.address) as send:
                for mode in MODES:
                    self._run(session, send, mode, self._pace.lead_in_s)
                for number in range(1, self._pace.rounds + 1):
                    for mode in MODES:
                        self._measure(session, send, client, mode, number)

    def _measure(self, session: Session, send: Send, client: str, mode: str, number: int) -> None:
        with Meter(session.server) as meter:
            values = self._run(session, send, mode, self._pace.seconds)
        values["cpu_us_per_record"] = meter.broker_cpu_s / values.pop("records") * 1e6
        seen = meter.noise
        self.results.measurements.append(
            Measurement(session.server.name, f"{client} {mode}", number, values, seen.load_average, seen.steal_percent)
        )
        say(f"  {number} {client} {mode:<16}" + "  ".join(f"{key} {value:,.4g}" for key, value in values.items()))

    def _run(self, session: Session, send: Send, mode: str, seconds: float) -> Values:
        with session.topic() as (topic, _):
            sent = send(topic, mode, seconds)
            # Every transaction leaves a marker, which takes an offset.
            self._check_end(session.server, topic, sent.records + len(sent.commits_s))
        values = {"records": float(sent.records), "records_per_s": sent.records / sent.seconds}
        if sent.commits_s:
            commits_ms = sorted(commit * 1000 for commit in sent.commits_s)
            values["transactions_per_s"] = len(commits_ms) / sent.seconds
            values["p50_ms"], values["p99_ms"] = percentile(commits_ms, 50), percentile(commits_ms, 99)
        return values

    def _check_end(self, server: Server, topic: str, expected: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while (end := server.end_offsets(topic, 1)[0][1]) != expected:  # the last marker follows the answer
            assert end < expected, f"{server.label}: {expected} records and markers were sent, the log has {end}"
            assert time.monotonic() < deadline, f"{server.label}: the log has {end} of {expected} records and markers"
            time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-transactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs: rough figures in minutes")
    parser.add_argument("--rounds", type=int, help="how often each mode runs; 9 unless told, 3 if quick")
    parser.add_argument("--servers", default=",".join(kind.name for kind in SERVERS))
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--data-dir", type=Path, default=_BUILD / "data-transactions", help="where the brokers keep their data")
    parser.add_argument("--docs", type=Path, help="where the report goes; docs/, or build/bench/ for a part of the figures")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, write the report of a former run")
    arguments = parser.parse_args()
    if arguments.from_json is not None:
        results = Results.from_json(json.loads(arguments.from_json.read_text()))
        _report(results, arguments.docs or _BUILD)
        return 0
    chosen = [kind for kind in SERVERS if kind.name in arguments.servers.split(",")]
    clients = [client for client in CLIENTS if client in arguments.clients.split(",")]
    pace = QUICK if arguments.quick else FULL
    if arguments.rounds:
        pace = pace._replace(rounds=arguments.rounds)
    results = Bench(pace, arguments.data_dir, clients).run(chosen)
    _BUILD.mkdir(parents=True, exist_ok=True)
    (_BUILD / "transactions.json").write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    if not results.measurements:
        print("nothing was measured", file=sys.stderr)
        return 1
    whole = not arguments.quick and len(chosen) == len(SERVERS) and len(clients) == len(CLIENTS)
    _report(results, arguments.docs or (ROOT / "docs" if whole else _BUILD))
    return 1 if results.failures else 0


def _report(results: Results, docs: Path) -> None:
    print(text(results))
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks-transactions.md").write_text(markdown(results))


if __name__ == "__main__":
    sys.exit(main())
