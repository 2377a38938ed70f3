"""A connection to PostgreSQL on the driver, through the JDBC driver in the jobs' jars: a Spark cluster needs no other.

The password comes from PGPASSWORD or from the URL, never from the command line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from spark_jobs.errors import FAILED, JobError

if TYPE_CHECKING:
    from typing import Self

DRIVER = "org.postgresql.Driver"


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database", required=True, metavar="URL", help="jdbc:postgresql://host:port/name; PGPASSWORD is heeded"
    )
    parser.add_argument("--database-user", metavar="NAME", help="otherwise PGUSER, or the URL's")


def check_database(given: argparse.Namespace) -> None:
    if not given.database.startswith("jdbc:postgresql:"):
        raise JobError(f"--database {given.database!r} is not a URL such as jdbc:postgresql://localhost:5432/shop")


class Database:
    """Statements commit by themselves, but for those within `transaction`."""

    def __init__(self, spark: Any, given: argparse.Namespace) -> None:
        self._spark = spark
        self.url = given.database
        user = given.database_user or os.environ.get("PGUSER")
        password = os.environ.get("PGPASSWORD")
        self.properties = {"driver": DRIVER} | ({"user": user} if user else {}) | ({"password": password} if password else {})
        # Text goes into columns of any type, as a literal does.
        self.properties["stringtype"] = "unspecified"
        properties = spark._jvm.java.util.Properties()
        for key, value in self.properties.items():
            properties.setProperty(key, value)
        try:
            self._connection = spark._jvm.org.postgresql.Driver().connect(self.url, properties)
        except Py4JJavaError as error:
            raise JobError(f"PostgreSQL at {self.url.partition('?')[0]} cannot be used: {_first_line(error)}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()

    def read(self, query: str) -> Any:
        """A data frame; the query is run when its rows are asked for."""
        return self._spark.read.format("jdbc").options(url=self.url, query=query, **self.properties).load()

    def append(self, rows: Any, table: str) -> None:
        """Write a data frame from the executors, each in a transaction of its own."""
        rows.write.format("jdbc").mode("append").options(url=self.url, dbtable=table, **self.properties).save()

    def execute(self, statement: str, *parameters: Any) -> int:
        """How many rows it changed."""
        with self._prepared(statement, parameters) as prepared:
            return int(prepared.executeUpdate())

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._prepared(statement, parameters) as prepared:
            rows = prepared.executeQuery()
            width = rows.getMetaData().getColumnCount()
            found = []
            while rows.next():
                found.append(tuple(rows.getObject(position + 1) for position in range(width)))
            return found

    def lock(self, name: str) -> bool:
        """Whether it was free. It is held until the connection ends."""
        return bool(self.query("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", f"spark_jobs {name}")[0][0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.setAutoCommit(False)
        try:
            yield
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._connection.setAutoCommit(True)

    @contextmanager
    def _prepared(self, statement: str, parameters: tuple[Any, ...]) -> Iterator[Any]:
        prepared = None
        try:
            prepared = self._connection.prepareStatement(statement)
            for position, parameter in enumerate(parameters):
                prepared.setObject(position + 1, parameter)
            yield prepared
        except Py4JJavaError as error:
            raise JobError(f"PostgreSQL refused {' '.join(statement.split())[:80]!r}: {_first_line(error)}", FAILED) from None
        finally:
            if prepared is not None:
                prepared.close()


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).splitlines()[0]
