"""Arguments that several jobs share, and their way into the options of Spark's source."""

from __future__ import annotations

import argparse
import json
import re
from datetime import datetime, timezone

from spark_jobs.errors import JobError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


def add_source(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--topics", metavar="A,B", help="the topics to read")
    which.add_argument("--topic-pattern", metavar="REGEX", help="read the topics whose whole name matches")
    which.add_argument("--assign", metavar="JSON", help='read these partitions: {"orders": [0, 1]}')
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are read (default: %(default)s)",
    )
    parser.add_argument(
        "--min-partitions", type=positive, metavar="N", help="split the topics' partitions into N tasks or more"
    )
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="go on where offsets are gone that were to be read, instead of an error"
    )


def source_options(given: argparse.Namespace) -> dict[str, str]:
    options = {
        "kafka.isolation.level": given.isolation,
        "failOnDataLoss": "false" if given.allow_data_loss else "true",
    }
    if given.topics is not None:
        options["subscribe"] = given.topics
    elif given.topic_pattern is not None:
        options["subscribePattern"] = given.topic_pattern
    else:
        options["assign"] = json.dumps(_assigned(given.assign))
    if given.min_partitions is not None:
        options["minPartitions"] = str(given.min_partitions)
    return options


def source_topics(given: argparse.Namespace, present: list[str]) -> list[str]:
    """The topics that are meant, for a check that they are there."""
    if given.topics is not None:
        names = [name.strip() for name in given.topics.split(",")]
        if not all(names):
            raise JobError(f"--topics {given.topics!r} has an empty name")
        return names
    if given.assign is not None:
        return list(_assigned(given.assign))
    try:
        pattern = re.compile(given.topic_pattern)
    except re.error as error:
        raise JobError(f"--topic-pattern {given.topic_pattern!r} is no regular expression: {error}") from None
    found = [topic for topic in present if pattern.fullmatch(topic)]
    if not found:
        raise JobError(
            f"no topic matches --topic-pattern {given.topic_pattern!r}; the cluster has: {', '.join(present) or 'none'}"
        )
    return found


def matches_source(given: argparse.Namespace, topic: str) -> bool:
    """Whether a topic, which may not be there yet, is or would be read."""
    if given.topic_pattern is not None:
        return re.fullmatch(given.topic_pattern, topic) is not None
    return topic in source_topics(given, [])


def assigned_partitions(text: str) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in _assigned(text).items() for partition in partitions}


def _assigned(text: str) -> dict[str, list[int]]:
    try:
        found = json.loads(text)
        valid = (
            isinstance(found, dict)
            and found
            and all(
                isinstance(rows, list) and rows and all(type(row) is int and row >= 0 for row in rows)
                for rows in found.values()
            )
        )
    except json.JSONDecodeError:
        valid = False
    if not valid:
        raise JobError(f'--assign {text!r} does not name partitions; expected JSON such as {{"orders": [0, 1]}}')
    return dict(found)


def add_range(parser: argparse.ArgumentParser) -> None:
    what = 'earliest, latest, a time (2024-05-01T12:00:00Z or milliseconds), or offsets {"orders": {"0": 12}}'
    parser.add_argument(
        "--from", dest="start", type=position, default="earliest", metavar="WHERE", help=f"{what} (default: %(default)s)"
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=position,
        default="latest",
        metavar="WHERE",
        help="the same; not included (default: %(default)s)",
    )


def stated_offsets(text: str) -> dict[tuple[str, int], int]:
    """Of JSON as Spark takes it, where -2 is the earliest and -1 the latest."""
    try:
        found = json.loads(text)
        valid = isinstance(found, dict) and all(
            isinstance(rows, dict)
            and all(_is_partition(key) and type(value) is int and value >= -2 for key, value in rows.items())
            for rows in found.values()
        )
    except ValueError:
        valid = False
    if not valid:
        raise JobError(f'{text!r} does not state offsets; expected JSON such as {{"orders": {{"0": 12, "1": -2}}}}')
    return {(topic, int(number)): offset for topic, rows in found.items() for number, offset in rows.items()}


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit()


def starting_offsets(text: str) -> str:
    """The words, or offsets."""
    if text in ("earliest", "latest") or is_offsets(text):
        return position(text)
    raise argparse.ArgumentTypeError(f'{text!r} is not earliest, latest or offsets such as {{"orders": {{"0": 12}}}}')


def position(text: str) -> str:
    """The words, offsets, or a time: whether they are there is seen when the cluster is asked."""
    try:
        if is_offsets(text):
            stated_offsets(text)
        elif text not in ("earliest", "latest"):
            milliseconds(text)
    except JobError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def is_offsets(text: str) -> bool:
    return text.lstrip().startswith("{")


def milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # Before Python 3.11 the letter is not understood.
        when = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
    except ValueError:
        raise JobError(f"{text!r} is neither a time such as 2024-05-01T12:00:00Z, nor milliseconds, nor offsets") from None
    return round((when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def add_target(parser: argparse.ArgumentParser, name: str = "--to-topic") -> None:
    parser.add_argument(name, required=True, metavar="TOPIC", help="the topic to write to")
    parser.add_argument("--create", type=positive, metavar="N", help="create topics that are missing, with N partitions")
    parser.add_argument("--compression", choices=CODECS, help="the codec of the batches written")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def sql_name(text: str) -> str:
    """A table's or column's name that needs no quotes, with or without a schema: it goes into statements as it is."""
    if not _IDENTIFIER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name such as outbox or shop.outbox")
    return text


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
