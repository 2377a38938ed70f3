"""The thread that applies the metadata to the node: logs made and deleted, configs, coordinators.

What the quorum has committed comes here in order and is given to every publisher, on this thread, so that the quorum never
waits for a disk. `image` is replaced when all publishers have seen it. Answers of this node's own controller go through the
same queue: whoever gets one finds it done here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.difference import difference
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage

logger = logging.getLogger(__name__)

Publisher = Callable[[MetadataDelta, MetadataImage], None]


class Publishing:
    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self._publishers: list[Publisher] = []
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-publisher", daemon=True)
        self._changed = threading.Condition()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Everything that is queued is still done."""
        self._queue.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def add(self, publisher: Publisher, first: MetadataImage = EMPTY_IMAGE) -> None:
        """Have `publisher` called with every delta and the image behind it; first with all of `first`, which was there a while
        ago, then with what came since."""

        def begin() -> None:
            self._publishers.append(publisher)
            for old, new in ((EMPTY_IMAGE, first), (first, self.image)):
                if new is not old:
                    self._tell(publisher, difference(old, new), new)

        self._queue.put(begin)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        def tell() -> None:
            for publisher in self._publishers:
                self._tell(publisher, delta, image)
            self.image = image

        self._queue.put(tell)

    def post(self, work: Callable[[], None]) -> None:
        """Have `work` done after everything that came before it."""
        self._queue.put(work)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Until `condition`, which is looked at whenever something was done here, holds; False if the time is up first."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def drain(self) -> None:
        """Returns when what was queued so far is done."""
        done = threading.Event()
        self.post(done.set)
        done.wait()

    @staticmethod
    def _tell(publisher: Publisher, delta: MetadataDelta, image: MetadataImage) -> None:
        try:
            publisher(delta, image)
        except Exception:
            logger.exception("metadata up to offset %d could not be applied by %r", image.offset, publisher)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                logger.exception("%r failed", work)
            with self._changed:
                self._changed.notify_all()
