"""What the log manager takes from a node's configuration, as plain typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pybroker.config import Config


@dataclass(slots=True, frozen=True)
class ManagerSettings:
    log_dirs: tuple[str, ...]
    recovery_threads: int = 2
    initial_delay_ms: int = 30_000
    retention_check_ms: int = 300_000
    flush_check_ms: int = 2**63 - 1
    recovery_point_checkpoint_ms: int = 60_000
    log_start_checkpoint_ms: int = 60_000
    file_delete_delay_ms: int = 60_000
    producer_id_check_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    verifies_transactions: bool = True
    cordoned_log_dirs: tuple[str, ...] = ()  # "*" stands for all

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(
            log_dirs=config.items_of("log.dirs"),
            recovery_threads=config.int("num.recovery.threads.per.data.dir"),
            initial_delay_ms=config.int("log.initial.task.delay.ms"),
            retention_check_ms=config.int("log.retention.check.interval.ms"),
            flush_check_ms=config.int("log.flush.scheduler.interval.ms"),
            recovery_point_checkpoint_ms=config.int("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_ms=config.int("log.flush.start.offset.checkpoint.interval.ms"),
            file_delete_delay_ms=config.int("log.segment.delete.delay.ms"),
            producer_id_check_ms=config.int("producer.id.expiration.check.interval.ms"),
            producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
            verifies_transactions=config.flag("transaction.partition.verification.enable"),
            cordoned_log_dirs=config.items_of("cordoned.log.dirs"),
        )
