"""A real disk that is full: a small tmpfs. Writing pauses with an error that clients try again after; reading goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from node.process import ANY_PORT, NodeProcess

from pybroker.protocol.errors import ErrorCode

Start = Callable[..., NodeProcess]

RECORD = os.urandom(50_000)
MANY = 1000  # of them are several times what fits


class SmallDisk:
    """16 MiB, below the test's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small disk is a tmpfs, which cannot be mounted here: {done.stderr.strip()}")

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", self.path], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if shutil.which("mount") is None:
        pytest.skip("mount is not installed")
    disk = SmallDisk(tmp_path / "small")
    yield disk
    disk.unmount()


def test_writing_pauses_and_reading_goes_on_until_there_is_room_again(disk: SmallDisk, start: Start) -> None:
    arguments = (*ANY_PORT, "--override", f"log.dirs={disk.path}/data")
    node = start(*arguments).wait_ready()
    acknowledged = []

    def write(count: int) -> ErrorCode:
        for number in range(count):
            value = b"%d " % (len(acknowledged) + number) + RECORD
            code = ErrorCode(client.send("t", [value]).error_code)
            if code is not ErrorCode.NONE:
                return code
            acknowledged.append(value)
        return ErrorCode.NONE

    with node.client() as client:
        client.create_topic("t")
        refusal = write(MANY)
        assert refusal is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal.retriable
        assert 0 < len(acknowledged) < MANY
        assert write(1) is refusal
        (line,) = (line for line in node.said.splitlines() if "an append to t-0 failed" in line)
        assert "ERROR" in line
        assert "No space left on device; it goes on when there is room again" in line
        # Nothing of what was refused is there, all of what was acknowledged is.
        assert [value for _, value in client.consume("t")] == acknowledged
        disk.grow()
        assert write(10) is ErrorCode.NONE
    assert node.stop() == 0
    with start(*arguments).wait_ready().client() as client:
        assert [value for _, value in client.consume("t")] == acknowledged


def test_a_kill_on_a_full_disk_loses_nothing(disk: SmallDisk, start: Start) -> None:
    arguments = (*ANY_PORT, "--override", f"log.dirs={disk.path}/data")
    node = start(*arguments).wait_ready()
    acknowledged = []
    with node.client() as client:
        client.create_topic("t")
        for number in range(MANY):
            value = b"%d " % number + RECORD
            if client.send("t", [value]).error_code:
                break
            acknowledged.append(value)
    node.kill()
    disk.grow()
    with start(*arguments).wait_ready().client() as client:
        assert [value for _, value in client.consume("t")] == acknowledged
        assert client.produce("t", [b"more"]) == len(acknowledged)
