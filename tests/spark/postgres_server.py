"""A PostgreSQL of the tests' own: a new cluster in a temporary folder, on loopback, gone afterwards.

It runs as the package's user where the tests are root, since PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from spark.needs import missing
from support.waiting import wait_until

START_S = 60.0
USER = "spark"


def _binaries() -> Path:
    """Debian keeps them off the PATH, by version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    if on_path is None:
        missing("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return Path(on_path).parent


def _account() -> str | None:
    """Whom to run as; None for the user of the tests."""
    if os.geteuid() != 0:
        return None
    present = {user.pw_name for user in pwd.getpwall()}
    found = [name for name in ("postgres", "nobody") if name in present]
    if not found:
        missing("PostgreSQL does not run as root, and there is no other user to run it as")
    return found[0]


class PostgresServer:
    def __init__(self) -> None:
        self._binaries = _binaries()
        self._account = _account()
        self._folder = Path(tempfile.mkdtemp(prefix="spark-postgres-"))
        if self._account is not None:
            shutil.chown(self._folder, self._account)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user={USER}"

    def __enter__(self) -> Self:
        try:
            data = str(self._folder / "data")
            self._run("initdb", "-D", data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync")
            command = [
                str(self._binaries / "postgres"),
                "-D",
                data,
                "-p",
                str(self.port),
                "-h",
                "127.0.0.1",
                "-k",
                str(self._folder),
            ]
            with (self._folder / "log").open("wb") as log:
                self._server = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._account, cwd=self._folder
                )
            wait_until(self._answers, START_S, lambda: (self._folder / "log").read_text())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(10)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, statement: str) -> list[tuple[str, ...]]:
        """The rows as text; an empty string for null."""
        out = self._run("psql", *self._connection(), "-qAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", statement)
        return [tuple(line.split("\t")) for line in out.splitlines()]

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self._folder / "log").read_text()
        command = [str(self._binaries / "psql"), *self._connection(), "-c", "SELECT 1"]
        return subprocess.run(command, capture_output=True, cwd=self._folder).returncode == 0

    def _connection(self) -> tuple[str, ...]:
        return ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "postgres")

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, user=self._account, cwd=self._folder)
        assert done.returncode == 0, done
        return done.stdout
