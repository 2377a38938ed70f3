"""Closing the logs of one directory at a clean stop, and marking that it was one, if everything closed well."""

from __future__ import annotations

import logging

from pybroker.log.log import Log
from pybroker.log.manager.checkpointing import log_start_offsets, recovery_points
from pybroker.log.manager.log_dir import LogDir
from pybroker.log.manager.online_logs import LogTable
from pybroker.log.manager.parallel import in_parallel

logger = logging.getLogger(__name__)


def close_dir(log_dir: LogDir, logs: LogTable, threads: int, broker_epoch: int) -> None:
    if not log_dir.is_loaded:
        # Its checkpoints tell more than is known here.
        return
    failed: list[Log] = []

    def close(log: Log) -> None:
        try:
            log.flush()
            log.close()
        except OSError as error:
            logger.error("%s did not close well: %s", log, error)
            failed.append(log)
        except Exception:
            logger.exception("%s did not close well", log)
            failed.append(log)

    in_parallel(f"log-closing-{log_dir.path}", threads, close, logs.values())
    if failed or not log_dir.is_online:
        logger.warning("%s is not marked as cleanly shut down: %d logs did not close well", log_dir.path, len(failed))
        return
    try:
        log_dir.write_recovery_points(recovery_points(logs))
        log_dir.write_log_start_offsets(log_start_offsets(logs))
        log_dir.write_shutdown_mark(broker_epoch)
    except OSError as error:
        logger.error("%s is not marked as cleanly shut down: %s", log_dir.path, error)
