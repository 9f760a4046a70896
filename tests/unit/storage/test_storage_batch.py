"""Batches and answers across the socket pair: round trip, and what a dying writer leaves behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import (
    MAX_KEY_BYTES,
    AnswerKind,
    Batch,
    encode_answer,
    encode_batch,
    split_answers,
    split_batches,
)
from enmasse.storage.errors import BatchError

OPERATIONS = st.lists(
    st.builds(
        Operation, st.sampled_from(Table), st.binary(max_size=30), st.one_of(st.none(), st.binary(max_size=60))
    ),
    max_size=12,
)
U64 = st.integers(0, 2**64 - 1)


def plain(batch: Batch) -> list[tuple[bytes, bytes | None]]:
    return [(key, None if value is None else bytes(value)) for key, value in batch.operations()]


def stored(operations: list[Operation]) -> list[tuple[bytes, bytes | None]]:
    return [(bytes((table,)) + key, value) for table, key, value in operations]


@given(st.lists(st.tuples(U64, U64, U64, OPERATIONS), max_size=5))
def test_batches_come_back_in_order(batches: list[tuple[int, int, int, list[Operation]]]) -> None:
    data = b"".join(encode_batch(*batch) for batch in batches)
    found, used, wanted = split_batches(memoryview(data))
    assert [(batch.epoch, batch.number, batch.acknowledged, plain(batch)) for batch in found] == [
        (epoch, number, acknowledged, stored(operations)) for epoch, number, acknowledged, operations in batches
    ]
    assert (used, wanted) == (len(data), 0)


@given(OPERATIONS, OPERATIONS, st.data())
def test_a_stream_cut_anywhere_gives_the_complete_batches_only(
    first: list[Operation], second: list[Operation], data: st.DataObject
) -> None:
    one, two = encode_batch(1, 1, 0, first), encode_batch(1, 2, 0, second)
    cut = data.draw(st.integers(0, len(one + two) - 1))
    found, used, wanted = split_batches(memoryview((one + two)[:cut]))
    assert [batch.number for batch in found] == ([1] if cut >= len(one) else [])
    assert used == (len(one) if found else 0)
    assert wanted in {0, len(two if found else one)}


@given(OPERATIONS, st.data())
def test_a_changed_byte_before_the_values_is_noticed_or_waited_for(
    operations: list[Operation], data: st.DataObject
) -> None:
    encoded = encode_batch(1, 1, 0, operations)
    values = sum(len(value or b"") for _, _, value in operations)
    changed = bytearray(encoded)
    changed[data.draw(st.integers(0, len(encoded) - values - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found, _, wanted = split_batches(memoryview(changed))
    except BatchError:
        return
    # A larger size only means that more is to come.
    assert found == []
    assert wanted > len(encoded)


@given(st.binary(min_size=40, max_size=200))
def test_any_bytes_are_batches_or_a_batch_error(data: bytes) -> None:
    with pytest.raises(BatchError):
        split_batches(memoryview(data))


def test_a_value_is_not_copied_when_a_batch_is_read() -> None:
    data = memoryview(encode_batch(1, 1, 0, [Operation(Table.FRAME, b"k", b"v" * 1000)]))
    ((_, value),) = split_batches(data)[0][0].operations()
    assert value is not None
    assert value.obj is data.obj


@pytest.mark.parametrize("size", [MAX_KEY_BYTES + 1, 70_000])
def test_a_key_above_the_limit_is_refused(size: int) -> None:
    with pytest.raises(BatchError, match="key"):
        encode_batch(1, 1, 0, [Operation(Table.FRAME, b"k" * size, None)])


def test_a_batch_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.storage.batch.MAX_BATCH_BYTES", 100)
    with pytest.raises(BatchError, match="submit less at once"):
        encode_batch(1, 1, 0, [Operation(Table.FRAME, b"k", b"v" * 100)])


@given(st.lists(st.tuples(st.integers(1, 5), U64, U64, st.binary(max_size=30)), max_size=6), st.data())
def test_answers_come_back_however_they_are_cut(
    answers: list[tuple[int, int, int, bytes]], data: st.DataObject
) -> None:
    encoded = b"".join(encode_answer(*answer) for answer in answers)
    cut = data.draw(st.integers(0, len(encoded)))
    first, rest = split_answers(encoded[:cut])
    second, rest = split_answers(rest + encoded[cut:])
    assert [tuple(answer) for answer in first + second] == answers
    assert rest == b""


def test_a_hello_names_failed_batches() -> None:
    extra = (3).to_bytes(8, "little") + (2**40).to_bytes(8, "little")
    (answer,), _ = split_answers(encode_answer(AnswerKind.HELLO, 1, 2**41, extra))
    assert answer.numbers == [3, 2**40]
