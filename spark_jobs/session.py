"""The Spark session of a job: made here in local mode and for --master, taken over under spark-submit.

In local mode everything binds to loopback, and Spark's logger is silent unless asked. What is missing (pyspark, Java, jars) is
told before anything starts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_jobs.errors import JobError
from spark_jobs.jars import ARTIFACTS, IN_PYSPARK, SPARK_VERSION, jars_in, java_command
from spark_jobs.words import StartingWords

OLDEST_JAVA = 17
LOG4J2 = Path(__file__).with_name("log4j2.properties")
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def open_session(master: str, name: str, jars: Path, conf: Mapping[str, str], log_level: str = "off") -> Any:
    """`conf` goes on top of what is set here."""
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_local = master.startswith("local")
    settings = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    if not is_submitted:
        check_java()
        settings |= _jars_setting(jars)
        if is_local:
            # Otherwise the workers are whatever `python3` is, which may be of another version.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local and not is_submitted:
        # Spark asks the machine's name for an address, which need not be loopback.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J2.as_uri()} -Dspark.jobs.log.level={log_level}",
        }
    builder = SparkSession.builder.appName(name)
    if not is_submitted:
        builder = builder.master(master)
    for key, value in (settings | dict(conf)).items():
        builder = builder.config(key, value)
    words = StartingWords(is_heard=log_level != "off")
    try:
        with words if not is_submitted else contextlib.nullcontext():
            spark = builder.getOrCreate()
    except Exception as error:
        raise JobError(_why_not(error, master, jars, words.of_the_end() if not is_submitted else [])) from error
    _check_connector(spark)
    if not is_submitted:
        spark.sparkContext.addPyFile(_package_zip())
    return spark


def check_java() -> None:
    java = java_command()
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = said.splitlines()[0] if said else "no version"
        raise JobError(f"{java} is too old ({version}); Spark {SPARK_VERSION} needs Java {OLDEST_JAVA} or newer")


def _jars_setting(folder: Path) -> dict[str, str]:
    if jars := jars_in(folder):
        return {"spark.jars": ",".join(map(str, jars))}
    return {
        "spark.jars.packages": ",".join(artifact.coordinates for artifact in ARTIFACTS),
        "spark.jars.excludes": ",".join(IN_PYSPARK),
    }


def _why_not(error: Exception, master: str, jars: Path, words: list[str]) -> str:
    """Where the JVM itself ended, its own words say more than pyspark's."""
    lines = [line.strip(": \t") for line in words]
    if missing := re.search(r"unresolved dependency: [^\s,\]]+( not found)?", "\n".join(lines)):
        return (
            f"the connector's jars are not in {jars}, and Spark could not fetch them ({missing[0]});"
            " run `make spark-jars`, or name their folder with --jars"
        )
    thrown = next((line for line in lines if "Exception" in line or line.startswith("Error")), None)
    return f"Spark did not start with --master {master}: {thrown or str(error).splitlines()[0]}"


def _check_connector(spark: Any) -> None:
    from py4j.protocol import Py4JJavaError

    jvm = spark._jvm
    try:
        jvm.java.lang.Class.forName(_CONNECTOR, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        packages = ",".join(artifact.coordinates for artifact in ARTIFACTS)
        raise JobError(
            f"Spark runs without its Kafka connector: run `make spark-jars`, or submit with --packages {packages}"
        ) from None


def _package_zip() -> str:
    """This package as a file for the workers, which run the schema check in Python, wherever they are started."""
    package = Path(__file__).parent
    folder = tempfile.mkdtemp(prefix="spark-jobs-")
    # Executors may ask for it as long as the session lives.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "spark_jobs.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(package.rglob("*.py")):
            archive.write(source, Path("spark_jobs", source.relative_to(package)))
    return str(path)
