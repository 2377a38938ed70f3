"""The session and what is around it: addresses, files that go, a machine that lacks something."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark.driver_process import ENVIRONMENT, ROOT
from spark.needs import missing

_LISTEN = "0A"  # as /proc/net/tcp has it


def listening_addresses(pid: int) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Of a process, from /proc."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(link)
        except FileNotFoundError:
            continue  # closed since
        if name.startswith("socket:["):
            sockets.add(name[len("socket:[") : -1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in sockets:
                words = bytes.fromhex(fields[1].partition(":")[0])
                # Words of four bytes, each in the machine's order.
                found.add(b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4)))
    addresses = map(ipaddress.ip_address, found)
    return {getattr(address, "ipv4_mapped", None) or address for address in addresses}


def test_a_local_driver_is_on_loopback_alone(spark: Any) -> None:
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    found = listening_addresses(pid)
    assert found, "a driver listens for its executors"
    assert all(address.is_loopback for address in found), found
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_the_package_for_the_workers_is_gone_when_the_driver_is(tmp_path: Path) -> None:
    program = "from spark_jobs.session import _package_zip; import os; print(os.path.getsize(_package_zip()))"
    environment = ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert int(done.stdout) > 0, done
    assert list(tmp_path.iterdir()) == []


def test_what_a_machine_lacks_skips_a_test_but_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no PostgreSQL"):
        missing("no PostgreSQL")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI nothing is skipped: no PostgreSQL"):
        missing("no PostgreSQL")


def test_a_debian_without_java_17_gets_its_java_21(tmp_path: Path) -> None:
    """By an apt-get that has no lists at first, and never an OpenJDK 17."""
    apt = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  update*) touch {lists} ;;
  *openjdk-21*|*postgresql) [ -e {lists} ] ;;
  *) exit 100 ;;
esac
"""
    for name, text in (("apt-get", apt), ("id", "#!/bin/sh\necho 0\n")):
        program = tmp_path / name
        program.write_text(text.replace("{log}", str(tmp_path / "log")).replace("{lists}", str(tmp_path / "lists")))
        program.chmod(0o755)
    for name in ("bash", "sh", "ls", "touch"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    bare = {"PATH": str(tmp_path)}
    done = subprocess.run([str(ROOT / "tests" / "spark" / "machine_needs")], env=bare, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done
    asked = [line.split()[-1] for line in (tmp_path / "log").read_text().splitlines()]
    java = ["openjdk-17-jre-headless", "openjdk-21-jre-headless"]
    assert asked[:5] == [*java, "--quiet", *java]
    assert set(asked[5:]) <= {"postgresql"}  # which this machine may have
