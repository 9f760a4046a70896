"""Trouble by chance: how a journal gets on, step by step, under given rates of faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from enmasse.testing.simulated_storage import SimulatedStorage

__all__ = ["FaultRates", "JournalFaults"]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely what goes wrong is, each time that it could.

    Attributes:
        disk_full: a batch is not written.
        journal_death: the journal process dies.
        refusal: the journal begins to refuse, or ends refusing, what it is handed.
        short_read: a read ends where it would have ended when it was asked for.
        crash: the node dies, and with it perhaps the machine.
    """

    disk_full: float = 0.0
    journal_death: float = 0.0
    refusal: float = 0.0
    short_read: float = 0.0
    crash: float = 0.0


class JournalFaults:
    """What befalls a simulated journal.

    Args:
        random: decides.
        rates: how likely what goes wrong is.
    """

    def __init__(self, random: Random, rates: FaultRates) -> None:
        self._random = random
        self._rates = rates

    def step(self, storage: SimulatedStorage) -> None:
        """Let one thing happen: a commit, an answer, a read, or trouble."""
        chance = self._random.random
        rates = self._rates
        if not storage.is_alive:
            if chance() < 0.3:
                storage.revive()
            return
        if rates.refusal and chance() < (0.3 if storage.is_refusing else rates.refusal):
            storage.is_refusing = not storage.is_refusing
        if rates.journal_death and chance() < rates.journal_death:
            storage.kill()
            return
        if storage.reads and chance() < 0.5:
            storage.finish_read(is_short=chance() < rates.short_read)
            return
        waiting = len(storage.open)
        if waiting and (not storage.unanswered or chance() < 0.4):
            if chance() < rates.disk_full:
                storage.fail()
            else:
                storage.commit(self._random.randint(1, waiting))
        elif storage.unanswered:
            storage.answer()

    def crash(self, storage: SimulatedStorage) -> SimulatedStorage:
        """The node dies: of what the journal was handed, a part from the start still reaches the disk."""
        through = self._random.choice([0, *storage.open]) if storage.is_alive else 0
        return storage.crash(through)
