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
        """Below these offsets rows may be gone."""
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

    def check_found(self, rows: list[list[tuple[int, int]]]) -> None:
        """Compare with what a node that starts now finds."""
        for partition, found in enumerate(rows):
            first = found[0][0] if found else self.low[partition]
            if [offset for offset, _ in found] != list(range(first, first + len(found))):
                self.problem(f"the offsets of partition {partition} are not consecutive: {found}")
            for offset, number in found:
                self.read(partition, offset, number)
            there = {offset for offset, _ in found}
            for offset, number in self.known[partition].items():
                if offset >= self.low[partition] and offset not in there:
                    self.problem(f"row {offset} of partition {partition}, message {number}, is missing")
            self._check_order(partition, found)
        for number in self.accepted:
            if number not in self.places:
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
