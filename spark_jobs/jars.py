"""The jars that the jobs need and pyspark does not have: Spark's Kafka connector, its Avro reader, PostgreSQL's driver.

`python -m spark_jobs.jars` fetches them once, with the Ivy that pyspark ships: Java and pip are enough. The versions are those
of the connector's own pom; pyspark and connector are of one version.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from spark_jobs.errors import JobError

SPARK_VERSION = "4.0.0"
JARS_VARIABLE = "SPARK_JOBS_JARS"
FETCH_S = 600


class Artifact(NamedTuple):
    group: str
    name: str
    version: str

    @property
    def coordinates(self) -> str:
        return ":".join(self)

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


ARTIFACTS = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.0"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0"),
    Artifact("org.apache.spark", "spark-avro_2.13", SPARK_VERSION),
    Artifact("org.postgresql", "postgresql", "42.7.5"),
)

# What those need in turn and pyspark has: Spark's own resolver would fetch it all again.
IN_PYSPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "com.github.luben:zstd-jni",
    "org.slf4j:slf4j-api",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.apache.spark:spark-tags_2.13",
    "com.google.code.findbugs:jsr305",
    "org.tukaani:xz",
    "org.checkerframework:checker-qual",
)


def default_folder() -> Path:
    """build/ of the checkout, or what the environment names."""
    named = os.environ.get(JARS_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[1] / "build" / f"spark-jars-{SPARK_VERSION}"


def jars_in(folder: Path) -> list[Path]:
    """All the jars, or nothing where one is missing."""
    jars = [folder / artifact.file_name for artifact in ARTIFACTS]
    return jars if all(jar.is_file() for jar in jars) else []


def fetch(folder: Path, settings: Path | None = None) -> list[Path]:
    """Make `folder` hold the jars; it is filled whole or not at all. `settings` is an ivysettings.xml, for a mirror."""
    if found := jars_in(folder):
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".spark-jars-") as scratch:
        module, fetched = Path(scratch, "ivy.xml"), Path(scratch, "jars")
        module.write_text(_ivy_module())
        command = [java_command(), "-jar", str(_ivy()), "-warn", "-cache", str(Path(scratch, "cache")), "-ivy", str(module)]
        command += ["-retrieve", f"{fetched}/[artifact]-[revision].[ext]"]
        if settings is not None:
            command += ["-settings", str(settings)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_S)
        except subprocess.TimeoutExpired:
            raise JobError(f"Ivy did not fetch the connector's jars within {FETCH_S} s") from None
        if not jars_in(fetched):
            lines = [line.strip(": \t") for line in (done.stdout + done.stderr).splitlines()]
            told = next((line for line in lines if "not found" in line or "UNRESOLVED" in line or "Exception" in line), "")
            raise JobError(f"Ivy could not fetch the connector's jars ({told or f'exit code {done.returncode}'})")
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)
    return jars_in(folder)


def java_command() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if java is None:
        where = f"not in JAVA_HOME={home}" if home else "neither on the PATH nor named by JAVA_HOME"
        raise JobError(f"Java is {where}; Spark {SPARK_VERSION} needs 17 or newer")
    return java


def _ivy() -> Path:
    try:
        import pyspark
    except ImportError:
        raise JobError(f"pyspark is not installed: pip install pyspark=={SPARK_VERSION}") from None
    found = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise JobError(f"{Path(pyspark.__file__).parent}/jars has no Ivy; put the jars of docs/spark.md into a folder by hand")
    return found[-1]


def _ivy_module() -> str:
    rows = "".join(
        f'<dependency org="{artifact.group}" name="{artifact.name}" rev="{artifact.version}" transitive="false"'
        ' conf="default->default"/>'
        for artifact in ARTIFACTS
    )
    return (
        '<ivy-module version="2.0"><info organisation="spark_jobs" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{rows}</dependencies></ivy-module>'
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.jars", description="fetch the jars that pyspark does not have")
    parser.add_argument("--to", type=Path, default=default_folder(), metavar="DIR", help="the folder (default: %(default)s)")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="an ivysettings.xml, for a mirror")
    given = parser.parse_args(arguments)
    try:
        jars = fetch(given.to, given.settings)
    except JobError as error:
        print(f"spark_jobs.jars: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{len(jars)} jars in {given.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
