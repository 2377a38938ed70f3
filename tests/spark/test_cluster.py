"""The jobs on a real Spark cluster: by the spark-submit line of the docs, and by --master. Executors are other processes, with
nothing of this checkout but what they are sent."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.conftest import Jobs
from spark.driver_process import ENVIRONMENT, ROOT, RUN_S, DriverProcess
from spark.standalone_cluster import BARE, StandaloneCluster
from spark.topics import json_rows, produce, records


@pytest.fixture(scope="module")
def cluster(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def submit_line(changes: dict[str, str]) -> str:
    """That of the docs, with what a reader has to change in it changed."""
    found = re.search(r"## On a cluster\n.*?```\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL)
    assert found is not None
    line = found[1]
    for old, new in changes.items():
        assert old in line, f"the docs say nothing of {old}:\n{line}"
        line = line.replace(old, new)
    return line


def test_the_spark_submit_line_of_the_docs(
    cluster: StandaloneCluster, jobs: Jobs, jars: Path, tmp_path: Path, topic: str
) -> None:
    produce(jobs.bootstrap, topic, json_rows({"id": number} for number in range(100)))
    (tmp_path / "spark_jobs").symlink_to(ROOT / "spark_jobs")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "spark-jars-4.0.0").symlink_to(jars)
    line = submit_line(
        {
            "python -m": f"{sys.executable} -m",
            "spark-submit": f"{cluster.spark_home}/bin/spark-submit",
            "spark://host:7077": cluster.url,
            "--topics orders": f"--topics {topic}",
            "s3a://bucket": str(tmp_path),
            "broker:9092": jobs.bootstrap,
        }
    )
    environment = BARE | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    assert "archive: rows=100 batches=1 " in done.stdout
    assert jobs.spark.read.parquet(str(tmp_path / "archive")).count() == 100
    assert "Launching executor app-" in cluster.said()


def test_a_master_by_name_and_functions_of_ours_in_its_executors(
    cluster: StandaloneCluster, bootstrap: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not the Python of .venv, which knows this checkout.
    bare = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    found = subprocess.run([bare, "-c", "import spark_jobs"], cwd="/", env=BARE, capture_output=True, text=True)
    assert "No module named 'spark_jobs'" in found.stderr
    monkeypatch.setitem(ENVIRONMENT, "SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setitem(ENVIRONMENT, "PYSPARK_PYTHON", str(bare))
    produce(bootstrap, topic, [{"value": value} for value in (b'{"id": 1}', b'{"id": "one"}')])
    (tmp_path / "schema.json").write_text('{"properties": {"id": {"type": "integer"}}}')
    validate = ("validate", "--topics", topic, "--json-schema", "schema.json", "--checkpoint", str(tmp_path / "c"))
    targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad", "--create", "1")
    arguments = (*validate, *targets, "--bootstrap-servers", bootstrap, "--master", cluster.url)
    with DriverProcess(tmp_path, arguments) as driver:
        assert driver.wait() == 0, driver.said
    assert [row.value for row in records(bootstrap, f"{topic}-good")] == [b'{"id": 1}']
    assert [dict(row.headers)["error.reason"] for row in records(bootstrap, f"{topic}-bad")] == [
        b"value.id is string, expected integer"
    ]


def test_the_jobs_import_nothing_that_a_spark_cluster_would_not_have() -> None:
    allowed = {*sys.stdlib_module_names, "pyspark", "py4j", "spark_jobs"}
    found = set()
    for path in (ROOT / "spark_jobs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: {ast.unparse(node)}"
                found.add(str(node.module).partition(".")[0])
    assert "pyspark" in found
    assert found <= allowed, found - allowed
