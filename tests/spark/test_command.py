"""The command as a user calls it: what is missing is one line and an exit code, before Spark starts."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from spark.driver_process import ENVIRONMENT, ROOT, DriverProcess
from spark.topics import produce, records

from spark_jobs.errors import explain
from spark_jobs.jars import ARTIFACTS
from spark_jobs.jars import main as fetch_main
from spark_jobs.png import bar_chart

INGEST = ("ingest", "x.json", "--to-topic", "t", "--bootstrap-servers")


@pytest.fixture(autouse=True)
def _needs_jars(jars: Path) -> None:
    """A command needs pyspark before anything else."""


def refused(*arguments: str, **environment: str) -> str:
    command = (sys.executable, "-m", "spark_jobs", *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd="/", env=os.environ | {"PYTHONPATH": str(ROOT)} | environment
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_no_job_and_no_cluster() -> None:
    assert "the following arguments are required: JOB" in refused()
    assert "required: --bootstrap-servers" in refused("ingest", "x.json", "--to-topic", "t")
    assert "'localhost'; expected host:port" in refused(*INGEST, "localhost")
    assert "ingest: no broker can be reached at 127.0.0.1:1 (Connection refused)" in refused(*INGEST, "127.0.0.1:1")


def test_no_java(bootstrap: str) -> None:
    assert "Java is not in JAVA_HOME=/nowhere; Spark 4.0.0 needs 17 or newer" in refused(
        *INGEST, bootstrap, JAVA_HOME="/nowhere"
    )


def test_an_old_java(bootstrap: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    said = refused(*INGEST, bootstrap, JAVA_HOME=str(tmp_path))
    assert said == f'ingest: {java} is too old (openjdk version "11.0.2" 2019-01-15); Spark 4.0.0 needs Java 17 or newer\n'


def test_no_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError\n")
    said = refused(*INGEST, "127.0.0.1:1", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert said == "spark_jobs: pyspark is not installed: pip install pyspark==4.0.0\n"


def ivy_settings(path: Path, folder: Path) -> str:
    """One place to fetch from, without a network."""
    path.write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers><filesystem name="folder">'
        f'<artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    return f"spark.jars.ivySettings={path}"


def test_no_jars_and_nowhere_to_fetch_them_from(bootstrap: str, tmp_path: Path) -> None:
    settings = ivy_settings(tmp_path / "ivysettings.xml", tmp_path / "empty")
    cache = f"spark.jars.ivy={tmp_path / 'cache'}"
    said = refused(*INGEST, bootstrap, "--jars", "/nowhere", "--conf", settings, "--conf", cache)
    assert said == (
        "ingest: the connector's jars are not in /nowhere, and Spark could not fetch them"
        " (unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0: not found);"
        " run `make spark-jars`, or name their folder with --jars\n"
    )


class TestFetch:
    """`python -m spark_jobs.jars`, which needs no network where the settings name a folder."""

    def test_through_settings(self, jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ivy_settings(tmp_path / "ivysettings.xml", jars)
        target = tmp_path / "new" / "jars"
        assert fetch_main(["--to", str(target), "--settings", str(tmp_path / "ivysettings.xml")]) == 0
        assert capsys.readouterr().out == f"{len(ARTIFACTS)} jars in {target}\n"
        assert sorted(path.name for path in target.iterdir()) == sorted(artifact.file_name for artifact in ARTIFACTS)
        assert [path.name for path in target.parent.iterdir()] == ["jars"]
        # What is there is not fetched again: these settings would not do.
        assert fetch_main(["--to", str(target), "--settings", "/nowhere"]) == 0

    def test_from_a_place_that_has_them_not(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ivy_settings(tmp_path / "ivysettings.xml", tmp_path / "empty")
        target = tmp_path / "new" / "jars"
        assert fetch_main(["--to", str(target), "--settings", str(tmp_path / "ivysettings.xml")]) == 2
        said = capsys.readouterr().err
        assert said.startswith("spark_jobs.jars: Ivy could not fetch the connector's jars (")
        assert "not found" in said
        assert said.count("\n") == 1
        assert list(target.parent.iterdir()) == []

    def test_in_no_time(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spark_jobs.jars.FETCH_S", 0.01)
        assert fetch_main(["--to", str(tmp_path / "jars")]) == 2
        assert capsys.readouterr().err == "spark_jobs.jars: Ivy did not fetch the connector's jars within 0.01 s\n"

    def test_without_java(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert fetch_main(["--to", str(tmp_path / "jars")]) == 2
        said = "spark_jobs.jars: Java is neither on the PATH nor named by JAVA_HOME; Spark 4.0.0 needs 17 or newer\n"
        assert capsys.readouterr().err == said


def test_no_jars_but_a_place_that_spark_fetches_them_from(bootstrap: str, jars: Path, tmp_path: Path, topic: str) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}\n')
    settings = ivy_settings(tmp_path / "ivysettings.xml", jars)
    cache = tmp_path / "cache"
    arguments = ("ingest", "x.json", "--to-topic", topic, "--bootstrap-servers", bootstrap, "--jars", "/nowhere")
    with DriverProcess(tmp_path, (*arguments, "--conf", settings, "--conf", f"spark.jars.ivy={cache}")) as driver:
        assert driver.wait() == 0, driver.said
    progress, summary = driver.said.splitlines()
    assert progress == f"ingest: 1 rows fit, they are written to {topic}"
    assert summary.startswith("ingest: rows=1 batches=1 ")
    assert len(list(cache.glob("jars/*.jar"))) == len(ARTIFACTS)


def test_a_whole_run_wherever_it_is_started_and_whatever_python3_is(
    bootstrap: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'not this one' >&2; exit 1\n")
    other.chmod(0o755)
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{other.parent}:{ENVIRONMENT['PATH']}")
    monkeypatch.delitem(ENVIRONMENT, "PYTHONPATH")  # that of .venv knows the checkout, its workers do not
    produce(bootstrap, topic, [{"value": b"{}"}, {"value": b"{"}])
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    validate = ("validate", "--topics", topic, "--json-schema", "schema.json", "--checkpoint", str(tmp_path / "c"))
    targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad")
    with DriverProcess(tmp_path, (*validate, *targets, "--bootstrap-servers", bootstrap)) as driver:
        assert driver.wait() == 0, driver.said
    progress, summary = driver.said.splitlines()
    assert progress.startswith("validate: batch 0, 2 rows, ")
    assert summary.startswith("validate: rows=2 batches=1 ")
    assert [row.value for row in records(bootstrap, f"{topic}-bad")] == [b"{"]


def test_an_error_of_python_is_found_in_the_message_that_java_makes_of_it() -> None:
    class Throwable:
        def getClass(self) -> Throwable:  # noqa: N802
            return self

        def getSimpleName(self) -> str:  # noqa: N802
            return "PythonException"

        def getMessage(self) -> str:  # noqa: N802
            return (
                "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
                "  File \"worker.py\", line 1, in main\n    process()\nModuleNotFoundError: No module named 'x'\n\n"
                "=== Streaming Query ===\nIdentifier: [id = 1]\n+- ~Project [key#94]\n"
            )

        def getCause(self) -> None:  # noqa: N802
            return None

    error = Exception()
    error.java_exception = Throwable()  # type: ignore[attr-defined]
    assert explain(error) == "ModuleNotFoundError: No module named 'x'"


def test_a_chart_is_a_png() -> None:
    png = bar_chart([("rows", [("a[0]", 10, True), ("a[1]", 5, False)])])
    width, height = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    pixels = zlib.decompress(png[start + 4 : start + 4 + length])
    assert len(pixels) == height * (1 + 3 * width)
    assert pixels.count(bytes((200, 80, 60))) > 1.9 * pixels.count(bytes((70, 120, 190))) > 0
