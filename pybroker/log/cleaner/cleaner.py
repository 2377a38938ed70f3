"""One round of cleaning: take the dirtiest log, have a runner write it anew, swap in what comes out, note how far it is clean.

Belongs to one thread; several cleaners share a `CleanerManager`. No clock of its own.
"""

from __future__ import annotations

import logging
from typing import Final

from pybroker.log.cleaner.dirtiness import Dirtiness
from pybroker.log.cleaner.job import (
    CleanedSegment,
    CleanerConfig,
    CleanerStats,
    CleaningAbortedError,
    CleaningJob,
    LastRecord,
    SourceSegment,
)
from pybroker.log.cleaner.manager import CleanerManager
from pybroker.log.cleaner.process import WorkerDiedError
from pybroker.log.cleaner.runner import Runner
from pybroker.log.files import CLEANED, TopicPartition
from pybroker.log.log import Log
from pybroker.log.open_segments import OpenSegments
from pybroker.log.segment import Segment

DEATHS_ALLOWED: Final = 3

logger = logging.getLogger(__name__)


class Cleaner:
    def __init__(
        self,
        manager: CleanerManager,
        runner: Runner,
        open_segments: OpenSegments,
        config: CleanerConfig | None = None,
    ) -> None:
        self.config = config or CleanerConfig()
        self._manager = manager
        self._runner = runner
        self._open_segments = open_segments
        self._deaths: dict[TopicPartition, int] = {}

    def clean_once(self, now_ms: int) -> CleanerStats | None:
        """Clean one log, if any wants it; then delete what compacted logs may let go."""
        taken = self._manager.take_dirtiest(now_ms, self._runner.abort)
        stats = None if taken is None else self._clean(taken, now_ms)
        self._delete(now_ms)
        return stats

    def _clean(self, taken: Dirtiness, now_ms: int) -> CleanerStats | None:
        log = taken.log
        stats = None
        try:
            job, sources = self._job(taken, now_ms)
            stats = self._runner.clean(job, lambda cleaned: self._swap(log, cleaned, sources))
            self._deaths.pop(log.partition, None)
            _report(log, taken, stats)
        except CleaningAbortedError:
            logger.info("%s: the cleaning was given up, since the log is needed for something else", log.partition)
        except OSError as error:
            self._manager.disk_failed(log, error)
        except WorkerDiedError as error:
            self._worker_died(log.partition, error)
        except Exception as error:
            logger.debug("%s", log.partition, exc_info=True)
            self._manager.set_aside(log.partition, error)
        finally:
            self._manager.cleaned(log, None if stats is None else stats.end_offset)
        return stats

    def _job(self, taken: Dirtiness, now_ms: int) -> tuple[CleaningJob, dict[int, Segment]]:
        log, config = taken.log, taken.log.config
        end = taken.first_uncleanable_offset
        with log.lock:
            sources = {segment.base_offset: segment for segment in log.segments if segment.base_offset < end}
            producers = {
                entry.producer_id: LastRecord(entry.last_data_offset, entry.epoch) for entry in log.producers.entries()
            }
        first = min(sources)
        dirty = sources[max((base for base in sources if base <= taken.first_dirty_offset), default=first)]
        place = dirty.locate(taken.first_dirty_offset, dirty.size_bytes)
        job = CleaningJob(
            name=str(log.partition),
            directory=log.directory,
            segments=tuple(SourceSegment(segment.base_offset, segment.size_bytes) for segment in sources.values()),
            first_dirty_offset=taken.first_dirty_offset,
            first_uncleanable_offset=end,
            dirty_position=dirty.size_bytes if place is None else place.position,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            config=self.config,
            aborted=tuple(log.aborted_transactions(first, end)),
            producers=producers,
        )
        return job, sources

    def _swap(self, log: Log, cleaned: CleanedSegment, sources: dict[int, Segment]) -> None:
        self._manager.check_not_aborted(log.partition)
        old = [sources[base_offset] for base_offset in cleaned.sources]
        new = Segment(
            log.filesystem,
            log.directory,
            cleaned.base_offset,
            log.config,
            self._open_segments,
            size_bytes=cleaned.size_bytes,
            created_ms=old[-1].created_ms,
            suffix=CLEANED,
        )
        log.replace_segments([new], old)

    def _delete(self, now_ms: int) -> None:
        logs = self._manager.take_deletable()
        try:
            for log in logs:
                try:
                    log.delete_old_segments(now_ms)
                except OSError as error:
                    self._manager.disk_failed(log, error)
                except Exception as error:
                    self._manager.set_aside(log.partition, error)
        finally:
            self._manager.deleted(logs)

    def _worker_died(self, partition: TopicPartition, error: WorkerDiedError) -> None:
        """Once may be anybody's fault; time and again it is this log's, perhaps a batch that does not fit into memory."""
        deaths = self._deaths[partition] = self._deaths.get(partition, 0) + 1
        if deaths < DEATHS_ALLOWED:
            logger.warning("%s: %s; it is tried again", partition, error)
        else:
            del self._deaths[partition]
            self._manager.set_aside(partition, f"{error}, {deaths} times in a row")


def _report(log: Log, taken: Dirtiness, stats: CleanerStats) -> None:
    logger.info(
        "%s: cleaned the offsets %d to %d; %d of %d records and %d of %d bytes stay, the map is %.0f %% full, %.1f s",
        log.partition,
        taken.first_dirty_offset,
        stats.end_offset,
        stats.records_written,
        stats.records_read,
        stats.bytes_written,
        stats.bytes_read,
        100 * stats.map_use,
        stats.seconds,
    )
    if stats.invalid_records:
        logger.warning(
            "%s: dropped %d records without a key, which a compacted log must not have", log.partition, stats.invalid_records
        )
