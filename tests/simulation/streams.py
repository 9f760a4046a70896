"""What a stream must hold, and clients that send to it again until they know that it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["StreamAccount", "Unanswered"]


@dataclass(slots=True)
class Unanswered:
    """Something that an idempotent sender has no accepted for."""

    sequence: int
    numbers: list[int]
    payload: bytes


class StreamAccount:
    """The account of one stream.

    Args:
        name: the address.
        partitions: how many it has.
        report: hears what does not fit.
    """

    def __init__(self, name: str, partitions: int, report: Callable[[str], None]) -> None:
        self.name = name
        self.known: list[dict[int, int]] = [{} for _ in range(partitions)]
        """By partition: which number lies at which offset, for ever."""
        self.places: dict[int, tuple[int, int]] = {}
        """Partition and offset of each number that anybody has seen."""
        self.sent: dict[int, tuple[int, int]] = {}
        """Who sent a number, and its place among that sender's."""
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        """What is stored nowhere, unless it is sent again."""
        self.low = [0] * partitions
        """Below these offsets rows are gone."""
        self.sent_at: dict[int, float] = {}
        self.keep_s = 0.0
        """For how long rows are kept; 0 is for ever, as far as this goes."""
        self.can_delete = False
        """Whether there is any bound to what is kept."""
        self._report = report

    def problem(self, text: str) -> None:
        """Something does not fit."""
        self._report(f"{self.name}: {text}")

    def read(self, partition: int, offset: int, number: int) -> None:
        """Somebody read a row, so it is committed, and stays what and where it is."""
        if number not in self.sent:
            self.problem(f"row {offset} of partition {partition} is message {number}, which was never sent here")
        if number in self.refused:
            self.problem(f"row {offset} of partition {partition} is message {number}, which was refused")
        before = self.known[partition].setdefault(offset, number)
        if before != number:
            self.problem(f"row {offset} of partition {partition} was message {before} and is {number}")
        place = self.places.setdefault(number, (partition, offset))
        if place != (partition, offset):
            self.problem(f"message {number} lies at {place} and at {(partition, offset)}")

    def begins_at(self, partition: int, low: int, end: int, now: float) -> None:
        """A partition says where it begins and ends now."""
        if low < self.low[partition]:
            self.problem(f"partition {partition} began at {self.low[partition]} and begins at {low}")
        if low and not self.can_delete:
            self.problem(f"partition {partition} begins at {low}, and nothing bounds what is kept")
        if low and low >= end and not self.keep_s:
            self.problem(f"nothing is left of partition {partition} below {end}, not even its latest frame")
        for offset in range(self.low[partition], low):
            number = self.known[partition].get(offset)
            if self.keep_s and number is not None and now < self.sent_at[number] + self.keep_s - 0.002:
                self.problem(f"row {offset} of partition {partition} was deleted before its time")
        self.low[partition] = low

    def restarted(self) -> None:
        """Where partitions begin is what the journal says: the last deletions may not have been written."""
        self.low = [0] * len(self.low)

    def check_found(self, rows: list[list[tuple[int, int]]], marks: list[tuple[int, int]]) -> None:
        """Compare with what a node that starts now finds, and where it says that partitions begin and end."""
        for partition, found in enumerate(rows):
            low, end = marks[partition]
            offsets = [offset for offset, _ in found]
            if offsets != sorted(set(offsets)) or not set(range(low, end)) <= set(offsets):
                self.problem(f"partition {partition} has rows {low} to {end} and shows {found}")
            for offset, number in found:
                self.read(partition, offset, number)
            there = {offset for offset, _ in found}
            for offset, number in self.known[partition].items():
                if offset >= low and offset not in there:
                    self.problem(f"row {offset} of partition {partition}, message {number}, is missing")
            self._check_order(partition, found)
        for number in self.accepted:
            if number not in self.places and not self.can_delete:
                self.problem(f"message {number} is missing, which was accepted")

    def _check_order(self, partition: int, found: list[tuple[int, int]]) -> None:
        """What was accepted of one sender lies in the order of sending."""
        last: dict[int, int] = {}
        for _, number in found:
            sender, place = self.sent.get(number, (0, 0))
            if sender < 0 or number not in self.accepted:
                continue
            if place < last.get(sender, -1):
                self.problem(f"message {number} lies behind a later one of its sender in partition {partition}")
            last[sender] = place
