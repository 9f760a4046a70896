from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.messaging.log.frame import encode_frame
from enmasse.pipeline.source.frames_client import first_row_since


def frame(first: int, *times: int) -> bytes:
    rows = len(times)
    return encode_frame(first, list(times), [b""] * rows, [b"h"] * rows, [b"b"] * rows)


FRAMES = [frame(10, 5, 5, 8), frame(13, 8, 8), frame(20, 9)]


@pytest.mark.parametrize(("since", "offset"), [(0, 10), (5, 10), (6, 12), (8, 12), (9, 20), (10, 21)])
def test_the_first_row_of_a_time_or_later(since: int, offset: int) -> None:
    assert first_row_since(FRAMES, since, 21) == offset


def test_nothing_lies_beyond_the_end() -> None:
    assert first_row_since(FRAMES, 9, 18) == 18
    assert first_row_since([], 1, 7) == 7


def test_no_frame_is_taken_that_is_not_needed() -> None:
    taken: list[int] = []

    def frames() -> Iterator[bytes]:
        for number, data in enumerate(FRAMES):
            taken.append(number)
            yield data

    assert first_row_since(frames(), 6, 21) == 12
    assert taken == [0]
