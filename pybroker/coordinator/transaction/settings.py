"""What of a broker's configs the transaction shards go by."""

from __future__ import annotations

from dataclasses import dataclass

from pybroker.config import Config
from pybroker.coordinator.transaction.transaction import MAX_EPOCH


@dataclass(slots=True, frozen=True)
class TransactionSettings:
    id_expiration_ms: int = 604_800_000
    abort_check_interval_ms: int = 10_000
    expiry_check_interval_ms: int = 3_600_000
    max_epoch: int = MAX_EPOCH  # another one where producers are to run out of them sooner

    @classmethod
    def of(cls, config: Config) -> TransactionSettings:
        return cls(
            id_expiration_ms=config.int("transactional.id.expiration.ms"),
            abort_check_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_check_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
