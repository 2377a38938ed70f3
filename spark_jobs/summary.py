"""What a job did, as the one line that it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TopicPartition = tuple[str, int]


@dataclass
class Summary:
    """`offsets` are those read, or for a job that only writes those of the target topic before and after it."""

    rows: int = 0
    batches: int = 0
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    more: dict[str, str | int] = field(default_factory=dict)

    def line(self, job: str, seconds: float) -> str:
        parts = [f"{job}: rows={self.rows} batches={self.batches}"]
        parts += [f"{name}={value}" for name, value in self.more.items()]
        parts += [f"{topic}[{partition}]={start}..{end}" for (topic, partition), (start, end) in sorted(self.offsets.items())]
        return " ".join([*parts, f"seconds={seconds:.1f}"])


def between(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """The stretch of each partition; one that was not there before began at 0."""
    return {partition: (before.get(partition, 0), end) for partition, end in after.items()}
