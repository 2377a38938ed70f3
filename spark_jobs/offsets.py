"""Which partitions a job reads and from where to where, checked against what the cluster has before anything is written.

Offsets as JSON need not name every partition: one that is not named is read from its beginning, or to its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.arguments import assigned_partitions, is_offsets, matches_source, milliseconds, source_topics, stated_offsets
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.kafka import offsets_json
from spark_jobs.summary import TopicPartition

_EARLIEST, _LATEST = -2, -1  # as Spark writes them


def source_partitions(context: Context, targets: Iterable[str] = ()) -> list[TopicPartition]:
    """All that are read. They are there, and none is of a topic that is written to: its own output would come back for ever."""
    given = context.given
    topics = source_topics(given, context.kafka.topics())
    context.kafka.require_topics(topics)
    for target in targets:
        if matches_source(given, target):
            raise JobError(f"topic {target} would be read and written; name another target")
    present = context.kafka.partitions(topics)
    if given.assign is None:
        return present
    assigned = assigned_partitions(given.assign)
    for topic, partition in sorted(assigned - set(present)):
        raise JobError(f"--assign names {topic}[{partition}]; {_has(topic, present)}")
    return sorted(assigned)


def range_options(context: Context, partitions: list[TopicPartition], others: Iterable[TopicPartition] = ()) -> dict[str, str]:
    """Of a batch read: from `--from` up to, and without, `--to`. Offsets may name `others`, too, which another read has."""
    given = context.given
    options = {}
    for name, option, where in (("starting", "--from", given.start), ("ending", "--to", given.end)):
        if where == {"starting": "earliest", "ending": "latest"}[name]:
            options[f"{name}Offsets"] = where
        elif where in ("earliest", "latest"):  # Spark takes no such word there: there is nothing to read
            options[f"{name}Offsets"] = offsets_json(context.kafka.offsets(partitions, where, given.isolation))
        elif is_offsets(where):
            options[f"{name}Offsets"] = offsets_json(checked_offsets(context, where, option, partitions, others))
        else:
            options[f"{name}Timestamp"] = str(milliseconds(where))
    if "startingTimestamp" in options:
        # A time after the last record is no error: there is nothing to read.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options


def checked_offsets(
    context: Context, text: str, option: str, partitions: list[TopicPartition], others: Iterable[TopicPartition] = ()
) -> dict[TopicPartition, int]:
    """Those of JSON, for all partitions, as they are now. Refused where the cluster has no such partition or offset."""
    given = context.given
    stated = stated_offsets(text)
    for topic, partition in sorted(set(stated) - set(partitions) - set(others)):
        raise JobError(f"{option} names {topic}[{partition}]; {_has(topic, partitions)}")
    first, end = context.kafka.offsets(partitions, "earliest"), context.kafka.offsets(partitions, "latest")
    last = context.kafka.offsets(partitions, "latest", given.isolation)
    found = {}
    for at in partitions:
        offset = stated.get(at, _LATEST if option == "--to" else _EARLIEST)
        found[at] = {_EARLIEST: first[at], _LATEST: last[at]}.get(offset, offset)
        is_gone = found[at] < first[at] and not given.allow_data_loss
        if is_gone or found[at] > end[at]:
            raise JobError(f"{option} has offset {offset} of {at[0]}[{at[1]}], which has {first[at]} to {end[at]}")
    return found


def first_offsets(context: Context, where: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """What --starting-offsets means now."""
    if where in ("earliest", "latest"):
        return context.kafka.offsets(partitions, where, context.given.isolation)
    return checked_offsets(context, where, "--starting-offsets", partitions)


def _has(topic: str, partitions: list[TopicPartition]) -> str:
    numbers = [number for name, number in partitions if name == topic]
    return f"it has partitions {', '.join(map(str, numbers))}" if numbers else "that topic is not read"
