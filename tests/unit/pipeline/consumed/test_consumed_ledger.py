"""Which delivery stands for which row."""

from __future__ import annotations

from enmasse.pipeline.source.consumed.ledger import Entry, Ledger
from enmasse.pipeline.source.consumed.spool import BatchFile


def entry(first: int, *identities: bytes | None, alive: bool = True) -> Entry[str]:
    handles = [f"delivery {first + n}" if alive else None for n in range(len(identities))]
    return Entry(BatchFile(first, first + len(identities), 0), identities, handles)


def test_what_comes_again_takes_the_place_of_the_delivery_that_is_gone() -> None:
    held = entry(0, b"a", b"b", None, alive=False)
    ledger = Ledger([held])
    assert ledger.tie(b"b", "again")
    assert held.handles == [None, "again", None]
    assert held.living == ["again"]
    assert held.unheld == [b"a"]
    assert held.known == [b"a", b"b"]


def test_a_second_message_of_the_same_identity_is_another_row() -> None:
    ledger = Ledger([entry(0, b"a")])
    assert not ledger.tie(b"a", "twin")
    ledger.lost()
    assert ledger.tie(b"a", "one of the two")
    assert not ledger.tie(b"a", "the other")


def test_what_is_not_known_is_new() -> None:
    ledger = Ledger([entry(0, b"a", None, alive=False)])
    assert not ledger.tie(b"c", "new")
    assert not ledger.tie(None, "new")


def test_twins_in_one_batch_are_tied_one_by_one() -> None:
    held = entry(0, b"a", b"a", alive=False)
    ledger = Ledger([held])
    assert ledger.tie(b"a", "x")
    assert ledger.tie(b"a", "y")
    assert not ledger.tie(b"a", "z")
    assert held.handles == ["x", "y"]


def test_only_whole_batches_below_an_offset_are_committed() -> None:
    first, second = entry(0, b"a", b"b"), entry(2, b"c", b"d")
    ledger = Ledger([first, second])
    assert ledger.committed(1) == []
    assert ledger.committed(2) == [first]
    assert ledger.committed(3) == [first]
    assert ledger.committed(4) == [first, second]


def test_a_settled_batch_is_forgotten_and_its_twin_is_not() -> None:
    first, second = entry(0, b"a", b"b", alive=False), entry(2, b"a", alive=False)
    ledger = Ledger([first, second])
    ledger.remove(first)
    assert ledger.entries == [second]
    assert not ledger.tie(b"b", "new")
    assert ledger.tie(b"a", "of the second")


def test_what_was_committed_is_known_as_often_as_it_may_come() -> None:
    ledger: Ledger[str] = Ledger((), [b"a", b"a"])
    ledger.may_come_again([b"b"])
    assert [ledger.is_committed(identity) for identity in (b"a", b"a", b"a", b"b", b"b", None)] == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
