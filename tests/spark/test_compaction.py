"""Compaction that dies: whatever it was doing, no row is lost or read twice, and the next one clears up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import JobError

ROWS = 4


class DiedError(Exception):
    """In the middle of it."""


class Archive:
    """As the sink leaves it: two folders, two files each, and a whole list. The list has its path, so it stays where it is."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self.path = folder / "archive"
        self._copy = folder / "copy"
        source = folder / "source"
        schema = "topic string, date string, hour int, partition int, offset long"
        for number in range(ROWS // 2):
            rows = [(name, "2024-11-07", 17, 0, number) for name in ("a", "b")]
            spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").json(str(source))
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(source)).coalesce(1)
        writer = stream.writeStream.format("parquet").option("path", str(self.path)).partitionBy("topic", "date", "hour")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        shutil.copytree(self.path, self._copy)

    def restore(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)

    def rows(self) -> list[tuple[str, int]]:
        found = self._spark.read.parquet(str(self.path)).collect()
        return sorted((row["topic"], row["offset"]) for row in found)

    def files(self) -> list[Path]:
        """All that are there but the log's, whether they count or not."""
        inside = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return sorted(path for path in inside if path.parts[0] != "_spark_metadata" and not path.name.startswith("."))

    def compact(self) -> tuple[int, int]:
        from spark_jobs.compaction import compact

        return compact(self._spark, str(self.path), 1 << 20)


EVERY_ROW = [(name, number) for name in ("a", "b") for number in range(ROWS // 2)]


@pytest.fixture(scope="module")
def prepared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return Archive(spark, tmp_path_factory.mktemp("compaction"))


@pytest.fixture
def archive(prepared: Archive) -> Iterator[Archive]:
    yield prepared
    prepared.restore()


def steps(monkeypatch: pytest.MonkeyPatch, die_at: int) -> list[str]:
    """What compaction does to the files, noted; it dies before the step of that number."""
    from spark_jobs.files import Folder

    done: list[str] = []
    for name in ("write_text", "take", "delete"):
        real = getattr(Folder, name)

        def step(self: Folder, *arguments: Any, name: str = name, real: Any = real) -> Any:
            if len(done) == die_at:
                raise DiedError
            done.append(name)
            return real(self, *arguments)

        monkeypatch.setattr(Folder, name, step)
    return done


def test_it_dies_at_every_step(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive.rows() == EVERY_ROW
    assert len(archive.files()) == ROWS
    died_at = 0
    while True:
        with monkeypatch.context() as patch:
            done = steps(patch, died_at)
            try:
                assert archive.compact() == (ROWS, 2)
                break
            except DiedError:
                pass
        assert archive.rows() == EVERY_ROW, f"after {done}"
        archive.compact()
        assert archive.rows() == EVERY_ROW, f"after {done} and again"
        assert [path.name.partition("-")[0] for path in archive.files()] == ["merged", "merged"], f"after {done} and again"
        archive.restore()
        died_at += 1
    # The note, two folders with a move and a removal each, the list, and what is not needed any more.
    assert done[:6] == ["write_text", "take", "delete", "take", "delete", "write_text"]
    assert len(done) > 6 + ROWS


def test_a_list_that_is_not_replaced_costs_no_file(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.files import Folder

    write = Folder.write_text

    def lost(self: Folder, name: str, text: str) -> None:
        if not name.endswith(".compact"):
            write(self, name, text)

    monkeypatch.setattr(Folder, "write_text", lost)
    with pytest.raises(JobError, match="was written and reads as before; no file was deleted") as told:
        archive.compact()
    assert told.value.exit_code == 1
    assert archive.rows() == EVERY_ROW


def test_files_that_were_merged_into_fewer_rows_stay(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs import compaction

    merge = compaction._merge

    def forget(spark: Any, folder: str, files: list[Any], *more: Any) -> Any:
        return merge(spark, folder, files[1:], *more)

    monkeypatch.setattr(compaction, "_merge", forget)
    with pytest.raises(JobError, match=f"{ROWS} files with {ROWS} rows were merged into files with {ROWS - 2}"):
        archive.compact()
    assert archive.rows() == EVERY_ROW
