"""The checker of tests/cluster on histories by hand: a sane one, and one with each anomaly."""

from __future__ import annotations

from cluster.append_checker import Anomaly, History, Kind, Outcome, Read, Reader, Send, Transaction, anomalies

COMMITTED, ABORTED, UNKNOWN = Outcome


def transaction(began: float, *sends: Send, outcome: Outcome = COMMITTED, process: str = "a") -> Transaction:
    """That asks for its commit after half a second and has it after a whole."""
    asked = None if outcome is ABORTED else began + 0.5
    return Transaction(process, began, list(sends), outcome, asked, None if outcome is UNKNOWN else began + 1)


def final(*reads: Read, is_at_end: bool = True) -> Reader:
    return Reader("final", list(reads), is_at_end)


def kinds(history: History) -> list[Kind]:
    return [one.kind for one in anomalies(history)]


def read(offset: int, value: int, partition: int = 0, at: float = 100.0) -> Read:
    return Read(partition, offset, value, at)


def test_nothing_is_wrong_with_a_sane_history() -> None:
    transactions = [
        transaction(0, Send(0, 1, 0), Send(1, 2, 0)),
        transaction(2, Send(0, 3, 2), outcome=ABORTED),
        transaction(4, Send(0, 4), outcome=UNKNOWN),
        transaction(5, Send(0, 5), outcome=UNKNOWN),
    ]
    early = Reader("early", [read(0, 1, at=0.6)], is_at_end=True)
    assert anomalies(History(transactions, [final(read(0, 1), read(0, 2, 1), read(4, 4)), early])) == []


def test_a_lost_write() -> None:
    history = History([transaction(0, Send(0, 1, 0)), transaction(2, Send(0, 2, 2))], [final(read(2, 2))])
    assert kinds(history) == [Kind.LOST_WRITE]


def test_what_a_stuck_reader_has_not_reached_is_not_lost() -> None:
    history = History([transaction(0, Send(0, 1, 0))], [final(is_at_end=False)])
    assert kinds(history) == [Kind.STUCK]


def test_an_aborted_read() -> None:
    history = History([transaction(0, Send(0, 1, 0), outcome=ABORTED)], [final(read(0, 1))])
    assert kinds(history) == [Kind.ABORTED_READ]


def test_an_aborted_read_of_one_that_the_last_reader_does_not_find() -> None:
    history = History([transaction(0, Send(0, 1, 0), outcome=ABORTED)], [final(), Reader("b", [read(0, 1)], True)])
    assert kinds(history) == [Kind.ABORTED_READ]


def test_an_intermediate_read() -> None:
    early = Reader("early", [read(0, 1, at=0.4)], is_at_end=True)
    history = History([transaction(0, Send(0, 1, 0), Send(0, 2, 1))], [final(read(0, 1), read(1, 2)), early])
    assert kinds(history) == [Kind.INTERMEDIATE_READ]


def test_a_torn_transaction() -> None:
    history = History([transaction(0, Send(0, 1, 0), Send(1, 2, 0), outcome=UNKNOWN)], [final(read(0, 1))])
    assert kinds(history) == [Kind.TORN]


def test_one_that_is_committed_and_torn_has_lost_a_write_as_well() -> None:
    history = History([transaction(0, Send(0, 1, 0), Send(1, 2, 0))], [final(read(0, 1))])
    assert kinds(history) == [Kind.LOST_WRITE, Kind.TORN]


def test_a_duplicate() -> None:
    history = History([transaction(0, Send(0, 1, 0))], [final(read(0, 1), read(2, 1))])
    assert kinds(history) == [Kind.DUPLICATE]


def test_a_reordering_of_one_that_was_over_when_the_next_began() -> None:
    transactions = [transaction(0, Send(0, 1, 5)), transaction(2, Send(0, 2, 3), process="b")]
    assert kinds(History(transactions, [final(read(3, 2), read(5, 1))])) == [Kind.REORDERED]


def test_transactions_at_the_same_time_may_lie_as_they_like() -> None:
    transactions = [transaction(0, Send(0, 1, 5)), transaction(0.7, Send(0, 2, 3), process="b")]
    assert anomalies(History(transactions, [final(read(3, 2), read(5, 1))])) == []


def test_a_reordering_within_a_transaction() -> None:
    history = History([transaction(0, Send(0, 1, 1), Send(0, 2, 0))], [final(read(0, 2), read(1, 1))])
    assert kinds(history) == [Kind.REORDERED]


def test_two_values_at_one_offset() -> None:
    transactions = [transaction(0, Send(0, 1)), transaction(0, Send(0, 2), outcome=UNKNOWN, process="b")]
    other = Reader("other", [read(0, 2)], is_at_end=True)
    assert kinds(History(transactions, [final(read(0, 1)), other])) == [Kind.DIVERGED]


def test_a_spurious_zero_offset() -> None:
    transactions = [transaction(0, Send(0, 1, 0)), transaction(2, Send(0, 2, 0))]
    found = anomalies(History(transactions, [final(read(0, 1), read(2, 2))]))
    assert found == [
        Anomaly(Kind.WRONG_OFFSET, f"{Send(0, 2, 0)}, found at [2]"),
        Anomaly(Kind.WRONG_OFFSET, f"{Send(0, 2, 0)} and {Send(0, 1, 0)}"),
    ]


def test_a_spurious_offset_of_one_that_nobody_may_read() -> None:
    transactions = [transaction(0, Send(0, 1, 0)), transaction(2, Send(0, 2, 0), outcome=ABORTED)]
    assert kinds(History(transactions, [final(read(0, 1))])) == [Kind.WRONG_OFFSET]


def test_a_reader_that_skips_a_value() -> None:
    transactions = [transaction(2 * number, Send(0, number, number)) for number in range(3)]
    whole = [read(number, number) for number in range(3)]
    hasty = Reader("hasty", [whole[0], whole[2]], is_at_end=True)
    assert kinds(History(transactions, [final(*whole), hasty])) == [Kind.SKIPPED]


def test_a_reader_may_begin_later() -> None:
    transactions = [transaction(2 * number, Send(0, number, number)) for number in range(3)]
    whole = [read(number, number) for number in range(3)]
    assert anomalies(History(transactions, [final(*whole), Reader("late", whole[1:], is_at_end=True)])) == []


def test_a_reader_that_goes_backwards() -> None:
    transactions = [transaction(0, Send(0, 1, 0), Send(0, 2, 1))]
    back = Reader("back", [read(1, 2), read(0, 1)], is_at_end=True)
    assert kinds(History(transactions, [final(read(0, 1), read(1, 2)), back])) == [Kind.BACKWARDS]


def test_a_value_that_nobody_sent_there() -> None:
    history = History([transaction(0, Send(0, 1, 0))], [final(read(0, 1), read(1, 7), read(0, 1, 1))])
    assert kinds(history) == [Kind.PHANTOM, Kind.PHANTOM]


def test_a_stuck_reader() -> None:
    history = History([transaction(0, Send(0, 1, 0))], [final(read(0, 1)), Reader("stuck", [], is_at_end=False)])
    assert kinds(history) == [Kind.STUCK]
