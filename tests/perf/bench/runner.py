"""Rounds of sessions: in every round each server is started, loaded, stopped, one after the other, so that a slow minute of the
machine does not fall on one of them alone. A workload that fails is told and the rest goes on."""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from perf.bench import process
from perf.bench.results import Failure, Measurement, Results
from perf.bench.servers import Server, UnavailableError
from perf.bench.workloads import MANY_PARTITIONS, MANY_TOPIC, WORKLOADS, Pace, Session, Values, warm_up

# linux/fs.h
_GET_FLAGS, _SET_FLAGS, _TOP_OF_DIRECTORIES = 0x80086601, 0x40086602, 0x00020000
_MANY = frozenset({"partitions-create", "partitions-restart", "partitions-kill"})


class Runner:
    def __init__(
        self, servers: Sequence[type[Server]], names: Set[str], pace: Pace, directory: Path, *, repeats: int = 1
    ) -> None:
        self._servers = servers
        self._repeats = repeats
        self._names = names
        self._pace = pace
        self._directory = directory
        self.results = Results(machine(), {}, {row.name: row.title for row in WORKLOADS if row.name in names})

    def run(self, rounds: int) -> Results:
        present = []
        for kind in self._servers:
            try:
                kind.check()
            except UnavailableError as reason:
                self.results.skipped[kind.label] = str(reason)
                say(f"{kind.label} is left out: {reason}")
            else:
                present.append(kind)
                self.results.servers[kind.name] = kind.label
        for number in range(1, rounds + 1):
            for kind in present:
                say(f"round {number} of {rounds}: {kind.label}")
                self._session(kind, number)
        return self.results

    def _session(self, kind: type[Server], number: int) -> None:
        for part in (self._load, self._many_partitions):
            self._directory.mkdir(parents=True, exist_ok=True)
            spread(self._directory)
            server = kind(Path(tempfile.mkdtemp(prefix=f"{kind.name}-", dir=self._directory)))
            try:
                part(server, number)
            except Exception as problem:
                self._failed(server, "the session", number, problem)
            finally:
                server.kill()
                shutil.rmtree(server.directory, ignore_errors=True)

    def _load(self, server: Server, number: int) -> None:
        if not self._names - _MANY:
            return
        server.prepare()
        self._measure(server, "start", number, lambda: {"seconds": server.start()}, always=True)
        time.sleep(self._pace.idle_s)
        self._measure(server, "memory-idle", number, lambda: _memory(server))
        session = Session(server, self._pace)
        loads = [row for row in WORKLOADS if row.run is not None and row.name in self._names]
        if loads:
            done = warm_up(session, self._names)
            self.results.warm_ups.setdefault(server.name, done.costs)
            for kind, costs in done.costs.items():
                say(f"  {'warm-up':<20}CPU µs a {kind}: {', '.join(f'{cost:.1f}' for cost in costs)}")
            if not done.complete and server.name not in self.results.cold:
                self.results.cold.append(server.name)
                say("  NOT WARM when the time for it was over: its costs are too high")
        for repeat, row in itertools.product(range(self._repeats), loads):
            assert row.run is not None
            run = row.run
            # Every run has a number of its own, whichever session it is of.
            run_number = (number - 1) * self._repeats + repeat + 1
            self._measure(server, row.name, run_number, lambda run=run: run(session))  # type: ignore[misc]
        if loads:
            self._measure(server, "memory-loaded", number, lambda: _memory(server))
        server.stop()

    def _many_partitions(self, server: Server, number: int) -> None:
        if not self._names & _MANY:
            return
        server.prepare()
        server.start()

        def create() -> Values:
            began = time.monotonic()
            server.create_topic(MANY_TOPIC, MANY_PARTITIONS)
            return {"seconds": time.monotonic() - began}

        def start() -> Values:
            return {"seconds": server.start(MANY_TOPIC, MANY_PARTITIONS)}

        self._measure(server, "partitions-create", number, create, always=True)
        if server.persistent:
            server.stop()
            self._measure(server, "partitions-restart", number, start, always=True)
            server.kill()
            self._measure(server, "partitions-kill", number, start)
        server.stop()

    def _measure(self, server: Server, name: str, number: int, run: Callable[[], Values], always: bool = False) -> None:
        """`always`: what comes later needs it done, wanted or not; then its failure is the session's, too."""
        if name not in self._names and not always:
            return
        noise = process.NoiseMeter()
        try:
            values = run()
        except Exception as problem:
            self._failed(server, name, number, problem)
            if always:
                raise
            return
        if name in self._names:
            seen = noise.read()
            self.results.measurements.append(
                Measurement(server.name, name, number, values, seen.load_average, seen.steal_percent)
            )
            say(f"  {name:<20}" + "  ".join(f"{key} {value:,.4g}" for key, value in values.items()))

    def _failed(self, server: Server, name: str, number: int, problem: Exception) -> None:
        text = f"{type(problem).__name__}: {problem}"
        if self.results.failures and self.results.failures[-1].problem == text[:2000]:
            return
        self.results.failures.append(Failure(server.name, name, number, text[:2000]))
        say(f"  {name} FAILED: {text}")


def spread(directory: Path) -> None:
    """Ask ext4 to put every directory made in this one far from the others (`chattr +T`); other file systems take no notice.

    Without a journal it does not use an inode again within minutes of its deletion, and looks at all of those before it finds
    another: 1,000 partitions made where a former session deleted its own take up to 3 s more, whoever makes them.
    """
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = bytearray(8)
            fcntl.ioctl(fd, _GET_FLAGS, flags)
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("=q", struct.unpack("=q", flags)[0] | _TOP_OF_DIRECTORIES))
        finally:
            os.close(fd)


def machine() -> dict[str, str]:
    processors = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{os.cpu_count()} x {processors[0].partition(':')[2].strip() if processors else platform.machine()}",
        "memory": f"{pages / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}{_congestion_control()}",
        "python": platform.python_version(),
    }


def _congestion_control() -> str:
    try:
        return f" (TCP: {Path('/proc/sys/net/ipv4/tcp_congestion_control').read_text().strip()})"
    except OSError:
        return ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _memory(server: Server) -> Values:
    found = server.memory()
    return {"rss_mb": found.rss_mb, "peak_rss_mb": found.peak_mb}
