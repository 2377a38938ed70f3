"""Whatever happens in whatever order: one leader in an epoch, what is committed stays, and a healed quorum goes on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.quorum_cluster import Cluster

IDS = (1, 2, 3)
WHO = st.sampled_from(IDS)

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([1, 3, 10, 100, 400, 2500]), st.just(0)),
        st.tuples(st.just("propose"), WHO, st.integers(1, 3)),
        st.tuples(st.just("crash"), WHO, st.just(0)),
        st.tuples(st.just("start"), WHO, st.just(0)),
        st.tuples(st.just("cut"), WHO, WHO),
        st.tuples(st.just("heal"), st.just(0), st.just(0)),
        st.tuples(st.just("disconnect"), WHO, WHO),
        st.tuples(st.just("hold flushes"), WHO, st.just(0)),
        st.tuples(st.just("flush"), WHO, st.just(0)),
        st.tuples(st.just("snapshot"), WHO, st.just(0)),
    ),
    max_size=40,
)


class Watch:
    """What was true once must stay true."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}  # by base offset: epoch and bytes

    def look(self) -> None:
        for replica in self.cluster.replicas.values():
            for epoch, leader in replica.announced:
                if leader is not None:
                    assert self.leaders.setdefault(epoch, leader) == leader, f"two leaders of epoch {epoch}"
            if replica.quorum is None or replica.q.high_watermark is None:
                continue
            for batch in replica.disk.batches:
                if batch.next_offset <= replica.q.high_watermark:
                    entry = (batch.partition_leader_epoch, bytes(batch.view()))
                    known = self.committed.setdefault(batch.base_offset, entry)
                    assert known == entry, f"what was committed at {batch.base_offset} changed"


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS, seed=st.integers(0, 1000), is_dynamic=st.booleans(), grace_ms=st.sampled_from([0, 300]))
def test_any_schedule(actions: list[tuple[str, int, int]], seed: int, is_dynamic: bool, grace_ms: int) -> None:
    cluster = Cluster(
        () if is_dynamic else IDS, dynamic=IDS if is_dynamic else (), observers=[9], seed=seed, death_grace_ms=grace_ms
    )
    watch = Watch(cluster)
    cluster.start()
    values = 0
    for what, first, second in actions:
        is_up = first in cluster.replicas and cluster.replicas[first].quorum is not None
        if what == "run":
            cluster.run(first)
        elif what == "propose" and is_up and cluster[first].is_leader:
            cluster.propose_to(first, *(b"%d" % (values + number) for number in range(second)))
            values += second
        elif what == "crash" and is_up:
            cluster.crash(first)
        elif what == "start" and not is_up:
            cluster.start(first)
        elif what == "cut" and first != second:
            cluster.cut.add((first, second))
        elif what == "heal":
            cluster.heal()
        elif what == "disconnect" and is_up and first != second:
            cluster.disconnect(first, second)
        elif what == "hold flushes":
            cluster.replicas[first].flushes = False
        elif what == "flush" and is_up:
            cluster.replicas[first].flushes = True
            cluster.flush(first)
        elif what == "snapshot" and is_up and (cluster[first].high_watermark or 0) > cluster[first].log_start_offset:
            cluster.snapshot(first, b"image up to %d" % (cluster[first].high_watermark or 0))
        watch.look()

    cluster.heal()
    for id_ in IDS:
        cluster.replicas[id_].flushes = True
        if cluster.replicas[id_].quorum is None:
            cluster.start(id_)
        cluster.flush(id_)
    cluster.elect(within_ms=30_000)
    cluster.run(200)
    end = cluster.propose(b"last")
    everybody = (*IDS, 9)
    done = cluster.run_until(lambda: all(cluster[id_].high_watermark == end for id_ in everybody), 10_000)
    assert done, cluster.transcript()
    watch.look()
