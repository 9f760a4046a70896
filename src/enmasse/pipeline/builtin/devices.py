"""What is remembered of each device, as one table of numbers that becomes bytes and back.

The bytes are a length, JSON with the names, and the numbers as 64-bit floats, row by row. Moments are
kept in seconds: a float has room for microseconds until the year 2255.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Devices", "name_codes"]

_LENGTH: Final = 8
_LEAST_ROOM: Final = 64

Names = tuple[str, ...]
Numbers = npt.NDArray[np.float64]


class Devices:
    """Numbers by name; a name is a device, or a device and a metric.

    Args:
        columns: how many numbers there are for each.
        kept: what ``to_bytes`` gave; None: nothing yet.
    """

    def __init__(self, columns: int, kept: bytes | None = None) -> None:
        names: list[Names] = []
        self._numbers: Numbers = np.empty((0, columns))
        if kept is not None:
            length = int.from_bytes(kept[:_LENGTH], "little")
            names = [tuple(name) for name in json.loads(kept[_LENGTH : _LENGTH + length])]
            found = np.frombuffer(kept, dtype="<f8", offset=_LENGTH + length)
            self._numbers = found.reshape(len(names), columns).copy()
        self._rows = {name: row for row, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, names: Sequence[Names], new: Sequence[float]) -> npt.NDArray[np.intp]:
        """The rows of these names; unknown ones get a row that holds ``new``."""
        rows = self._rows
        found = [rows.setdefault(name, len(rows)) for name in names]
        room = len(self._numbers)
        if len(rows) > room:
            # By half more, so that devices that come one by one do not have it copied each time.
            more = max(len(rows) - room, room // 2, _LEAST_ROOM)
            self._numbers = np.vstack([self._numbers, np.tile(np.asarray(new, dtype=np.float64), (more, 1))])
        return np.asarray(found, dtype=np.intp)

    @property
    def numbers(self) -> Numbers:
        """A row for each name; written to in place."""
        return self._numbers[: len(self._rows)]

    @property
    def names(self) -> list[Names]:
        """By row."""
        return list(self._rows)

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Forget all rows but these."""
        if wanted.all():
            return
        names = [name for name, stays in zip(self._rows, wanted.tolist(), strict=True) if stays]
        self._numbers = self.numbers[wanted]
        self._rows = {name: row for row, name in enumerate(names)}

    def keep_recent(self, column: int, since: float, most: int) -> None:
        """Forget who was not heard since then, and those heard longest ago of more than ``most``.

        Args:
            column: holds when each was last heard.
            since: the same unit.
            most: how many may stay.
        """
        heard = self.numbers[:, column]
        wanted = heard >= since
        if int(wanted.sum()) > most:
            newest = np.argsort(heard, kind="stable")[len(heard) - most :]
            among = np.zeros(len(heard), dtype=np.bool_)
            among[newest] = True
            wanted &= among
        self.keep(wanted)

    def to_bytes(self) -> bytes:
        """What a new object is made of."""
        names = json.dumps(list(self._rows), separators=(",", ":")).encode()
        return len(names).to_bytes(_LENGTH, "little") + names + self.numbers.astype("<f8").tobytes()


def name_codes(*columns: Any) -> tuple[npt.NDArray[np.intp], list[Names]]:
    """For each row of these columns, the number of its name; and the names in the order they first appear."""
    import pandas as pd  # noqa: PLC0415  # only workers need it

    codes: npt.NDArray[np.intp] = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        digits, values = pd.factorize(column)
        codes = codes * len(values) + digits
    numbers, found = pd.factorize(codes)
    firsts = pd.Series(numbers).drop_duplicates().index
    names = list(zip(*[column.iloc[firsts] for column in columns], strict=True))
    assert len(names) == len(found)
    return numbers, names
