"""Owners of what clients leave behind in a space: sessions, wills, durable subscriptions, dynamic addresses, leases.

Rules:
1. An owner is a text that stands for one user, device or identity at a provider for ever. Names decide nothing: the
   next bearer of a name is another owner.
2. What is left behind goes with its owner. Whether an owner may still come in is asked when users go, when a space's
   authentication changes, and at the start, as the process may have died in between. That is done in parts, between
   which others have their turn.
3. What an older version stored names a user alone. It is given to who has that name at the first start, and written
   again; where that is not known, as a provider knows the users, to the first of that name who comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.patterns import Pattern
    from enmasse.messaging.storage import Operation


ANONYMOUS: Final = "anonymous"
"""The owner of what clients have in a space that everybody may enter."""

ADMINISTRATOR: Final = "administrator"
"""The owner of what comes by a listener for administrators."""

LOOKED_AT_ONCE: Final = 500
"""Holdings that are looked at in one turn: a few milliseconds, if a user is looked up for each."""

ENDING: Final = 60
"""The work of ending one, with its connection, in looks."""

AGAIN_S: Final = 0.1
"""Seconds until a review goes on that waits for the journal."""


class Holding(Protocol):
    """Something that a client holds, or has left behind and may come back to."""

    @property
    def owner(self) -> str:
        """The owner; empty: the first user who comes."""

    @property
    def user(self) -> str:
        """The name that the owner had; empty: none."""

    def disown(self) -> None:
        """End it, as its owner is gone."""


class StoredHolding(Protocol):
    """A holding in the journal, of which an older version knew the user's name alone."""

    owner: str
    user: str

    def adopted(self) -> Operation | None:
        """Return the operation that writes it with its owner; ``None`` if it is over."""


class Grants(Protocol):
    """The grants of a user, as far as they are known while the user is not connected."""

    def of_client(self, client: str) -> Grants:
        """Return the grants as they are for a client of the user, by its name for itself."""

    def may_receive(self, name: str) -> bool:
        """Return true if the user may receive from an address, or from all that a filter stands for."""

    def parts(self, filter_: str) -> Sequence[Pattern]:
        """Return the patterns of what the user may receive of all that a filter stands for.

        Raises:
            AttachError: there are too many.
        """

    def granted(self, source: str) -> str:
        """Return what the user may receive of a receiver's source: all, or a part, which may be nothing."""

    def may_send(self, name: str) -> bool:
        """Return true if the user may send to an address."""


def is_open_to(holding: Holding, owner: str, user: str) -> bool:
    """Return true if a holding is an owner's, or nobody's yet and of the owner's name."""
    return holding.owner == owner if holding.owner else holding.user in ("", user)


class Owners:
    """Ends what is left of owners who are gone, in one space.

    Args:
        core: the core, in whose turns it takes part like an address.
        name: the name of the space.
        holdings: returns all that there is.

    Attributes:
        is_known: returns true if an owner may still come in, as far as that is known: asked with the owner, its name,
            and whether a user of that name was just removed.
        owner_of: returns the owner of a name; empty where a provider knows the users.
    """

    __slots__ = ("_core", "_holdings", "_is_everybody", "_names", "_steps", "_unwritten", "is_due", "is_known",
                 "name", "owner_of")  # fmt: skip

    def __init__(self, core: Core, name: str, holdings: Callable[[], Iterable[Holding]]) -> None:
        self.name = f"owners of {name}"
        self.is_due = False
        self.is_known: Callable[[str, str, bool], bool] = _always
        self.owner_of: Callable[[str], str] = _nobody
        self._core = core
        self._holdings = holdings
        self._names: dict[str, bool] = {}
        """Names whose holdings the next review looks at, and whether their users were removed."""
        self._is_everybody = False
        """True if the next review looks at all holdings."""
        self._steps: Iterator[int] | None = None
        """The review under way."""
        self._unwritten: list[StoredHolding] = []

    def is_gone(self, holding: Holding) -> bool:
        """Return true if the owner of a holding cannot come back."""
        return bool(holding.owner) and not self.is_known(holding.owner, holding.user, False)

    def adopt(self, holding: StoredHolding) -> None:
        """Give what an older version stored to who has its user's name now."""
        holding.owner = self.owner_of(holding.user)
        if holding.owner:
            self._unwritten.append(holding)
            self._due()

    def removed(self, user: str) -> None:
        """Review the holdings of a name whose user was removed, or is another one now."""
        self._names[user] = True
        self._due()

    def cut(self, user: str) -> None:
        """Review the holdings of a name once more, as a connection of its user was cut, which had some until now."""
        self._names.setdefault(user, False)
        self._due()

    def review(self) -> None:
        """Review all holdings, as any owner may be gone."""
        self._is_everybody = True
        self._due()

    def _due(self) -> None:
        if not self.is_due:
            self.is_due = True
            self._core.due(self)

    def on_turn(self, now: float) -> None:
        """Do a part of what is to be done."""
        if self._core.is_pressed:
            self._core.call_later(AGAIN_S, self._due)
            return
        if self._unwritten:
            written, self._unwritten = self._unwritten[:LOOKED_AT_ONCE], self._unwritten[LOOKED_AT_ONCE:]
            records = [holding.adopted() for holding in written]
            self._core.store_in_time([record for record in records if record is not None])
        if self._steps is None and (self._is_everybody or self._names):
            self._steps = self._review(self._names, is_everybody=self._is_everybody)
            self._names, self._is_everybody = {}, False
        left = LOOKED_AT_ONCE
        while self._steps is not None and left > 0:
            cost = next(self._steps, None)
            if cost is None:
                self._steps = None
            else:
                left -= cost
        if self._steps is not None or self._unwritten or self._names or self._is_everybody:
            self._due()

    def _review(self, names: dict[str, bool], *, is_everybody: bool) -> Iterator[int]:
        """Look at the holdings of now one by one, and yield what each step took."""
        known: dict[tuple[str, str], bool] = {}
        for holding in list(self._holdings()):
            owner, user = who = holding.owner, holding.user
            if not owner or not (is_everybody or user in names):
                yield 1
                continue
            if who not in known:
                known[who] = self.is_known(owner, user, names.get(user, False))
            if known[who]:
                yield 1
                continue
            try:
                holding.disown()
            except Exception as error:  # noqa: BLE001  the others must go
                self._core.report(self.name, error)
            yield ENDING


def _always(_owner: str, _user: str, _is_removed: bool) -> bool:
    return True


def _nobody(_user: str) -> str:
    return ""
