"""Turns what the quorum has committed into images, and tells what changed from one to the next.

One thread; `image` is replaced as a whole. Records of a metadata transaction count when its end is committed: until then the
image stays before its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.difference import difference
from pybroker.metadata.draft import MetadataReplayError
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.internal.metadata_log import BeginTransactionRecord
from pybroker.protocol.message import Message
from pybroker.raft.events import SnapshotId
from pybroker.server.metadata_snapshot import SnapshotError
from pybroker.server.quorum.store import Entry, MetadataLogError

Publisher = Callable[[MetadataDelta, MetadataImage], None]


class MetadataLoader:
    def __init__(self, publish: Publisher) -> None:
        """`publish` gets every delta, and the image behind it."""
        self.image = EMPTY_IMAGE
        self.next_offset = 0  # of the first record that was not replayed
        self._epoch = 0
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._publish = publish

    @property
    def in_transaction(self) -> bool:
        return self._delta.in_transaction

    def replay(self, entries: Iterable[Entry]) -> None:
        """Committed entries, from `next_offset` on; `publish` makes an image of them. What is before a transaction is published
        when that begins: it may stay open, and a new controller starts from the image."""
        try:
            for offset, epoch, record in entries:
                assert offset >= self.next_offset, f"offset {offset} comes again; expected {self.next_offset}"
                if type(record) is BeginTransactionRecord:
                    self.publish()
                if record is not None:
                    self._delta.replay(record)
                self.next_offset, self._epoch = offset + 1, epoch
        except MetadataReplayError as error:
            raise MetadataLogError(f"the metadata log, after offset {self.next_offset - 1}: {error}") from error

    def replace(self, snapshot: SnapshotId, records: Iterable[Message]) -> None:
        """The snapshot stands for everything before its end; what was loaded so far is compared with it, and told."""
        delta = MetadataDelta(EMPTY_IMAGE)
        try:
            for record in records:
                delta.replay(record)
        except (MetadataReplayError, SnapshotError) as error:
            raise MetadataLogError(f"snapshot {snapshot}: {error}") from error
        image = delta.image(snapshot.end_offset - 1, snapshot.epoch)
        self.next_offset, self._epoch = snapshot.end_offset, snapshot.epoch
        self._delta = difference(self.image, image)
        self.publish()

    def publish(self) -> None:
        if self._delta.in_transaction or self.next_offset - 1 <= self.image.offset:
            return
        delta, image = self._delta, self._delta.image(self.next_offset - 1, self._epoch)
        self._delta = MetadataDelta(image)
        self.image = image
        self._publish(delta, image)
