"""Messages that wait for credit, of protocols whose clients are not told how many they may send.

While they are few, the connection is read on, so that what comes behind them is served: pings, acknowledgements,
subscriptions. A connection with too many is not read.

Rules:
1. Messages to one address wait in the order in which they came; those that the address gave back come first again.
2. A message waits for ``PATIENCE_S`` in all, however often it is tried meanwhile. Where the answer is the end of the
   connection it comes once no message to the address was taken for that time, as it takes those with it that would be
   taken soon.
3. Once a connection is to end for that, no more of it is sent: what is answered so is not stored after that.
4. Each connection is assured ``ASSURED_BYTES``. Beyond, it takes bytes from a budget of the node.
5. A space takes from the budget as long as it has no more than what it leaves free: half of it alone, a third beside
   another that does the same. So nobody has to give up what waits, and no space can take all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

PATIENCE_S: Final = 30.0
"""Seconds that a message may wait for credit, that is for a receiver, for room, for a rate or for the disk."""

RETRY_S: Final = 1.0
"""Seconds until what could not be written is tried again: a full disk does not pass at once, and receivers that need
no disk get a copy each time."""

ASSURED_BYTES: Final = 1 << 20
"""The bytes that may wait of each connection, whatever others have."""

NODE_BYTES: Final = 64 << 20
"""The bytes that may wait beyond that, of all connections of a node."""

GRAIN_BYTES: Final = 64 << 10
"""The budget is given out in multiples of so many bytes."""


class Woken(Protocol):
    """A connection that takes part in turns of the core."""

    def due(self) -> None:
        """Have its part of the turn come."""


class Waker:
    """The stand-in that the core keeps of a connection until a deadline, as the connection may end long before.

    Args:
        connection: is due then, if it is still there.
    """

    __slots__ = ("_connection",)
    name = "a connection"

    def __init__(self, connection: Woken) -> None:
        self._connection = ref(connection)

    def on_deadline(self, now: float) -> None:
        """Have the connection look at what waits."""
        connection = self._connection()
        if connection is not None:
            connection.due()


class WaitingBudget:
    """The bytes that the connections of a node share.

    Args:
        max_bytes: the most bytes of all together.
    """

    __slots__ = ("_spaces", "held", "max_bytes")

    def __init__(self, max_bytes: int = NODE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held = 0
        """The bytes that are given out."""
        self._spaces: dict[str, int] = {}
        """The part of each space that has any."""

    def take(self, space: str, size: int) -> bool:
        """Give a space so many bytes more, or less than nothing back; return whether it may have them."""
        own = self._spaces.get(space, 0) + size
        if size > 0 and own > self.max_bytes - self.held - size:
            return False
        self.held += size
        if own:
            self._spaces[space] = own
        else:
            del self._spaces[space]
        return True


class WaitingRoom:
    """The place of one connection's waiting messages.

    Args:
        budget: the node's budget.
        space: the name of the connection's space.
    """

    __slots__ = ("_budget", "_held", "_space")

    def __init__(self, budget: WaitingBudget, space: str) -> None:
        self._budget = budget
        self._space = space
        self._held = 0

    def resize(self, size: int) -> bool:
        """Have room for so many bytes that wait now, and return whether there is."""
        wanted = -(-max(0, size - ASSURED_BYTES) // GRAIN_BYTES) * GRAIN_BYTES
        if wanted != self._held:
            if not self._budget.take(self._space, wanted - self._held):
                return False
            self._held = wanted
        return True


class WaitingMessage:
    """A message that waits for credit.

    Args:
        payload: the message.

    Attributes:
        deadline: the time at which it has waited too long; 0 until that is set.
        is_tried: true if the address had it, and gave it back.
    """

    __slots__ = ("deadline", "is_tried", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.deadline = 0.0
        self.is_tried = False


MessageT = TypeVar("MessageT", bound=WaitingMessage)


class WaitingSender(Generic[MessageT]):
    """The link of a connection that sends to one address, with the messages that wait for its credit.

    It is a ``ProducerPort`` but for ``settle`` and ``detach``, which answer as the protocol does.

    Args:
        core: the core whose turn it takes part in.

    Attributes:
        received: the messages that have been sent.
        limit: the number up to which they may be.
        highest: the largest limit that there was.
        most_bytes: the largest message.
        waiting: the messages that wait, those that came again first.
        is_detach_sent: true once the address takes no more.
    """

    __slots__ = (
        "_returned",
        "_taken_at",
        "core",
        "has_taken",
        "highest",
        "is_detach_sent",
        "limit",
        "most_bytes",
        "passes_from",
        "received",
        "waiting",
    )

    def __init__(self, core: Core) -> None:
        self.core = core
        self.received = self.limit = self.highest = 0
        self.most_bytes = 0
        self.passes_from = 0
        self.is_detach_sent = False
        self.waiting: deque[MessageT] = deque()
        self._returned = 0
        """The messages at the beginning of those that wait that have come again since the last turn."""
        self.has_taken = False
        """True if a message was accepted since the last turn while others waited; it may be true without such."""
        self._taken_at = -PATIENCE_S
        """The time at which that was last so."""

    @property
    def credit(self) -> int:
        """The number of messages that may be sent now."""
        return self.limit - self.received

    # What differs between protocols

    @property
    def is_ending(self) -> bool:
        """True if the connection is to end, so that no more of it is sent."""
        return False

    def due(self) -> None:
        """Have ``expire`` and ``go_on`` called before the turn of the loop ends."""
        raise NotImplementedError

    def patience(self, message: MessageT) -> float:
        """Return the seconds that a message may wait."""
        raise NotImplementedError

    def ends_all(self, message: MessageT) -> bool:
        """Return true if the answer to a message that has waited too long is the end of the connection."""
        return False

    def waited(self, message: MessageT) -> None:
        """Note that a message waits no longer."""
        raise NotImplementedError

    def give_up(self, message: MessageT) -> None:
        """Answer a message that has waited too long."""
        raise NotImplementedError

    def send_waiting(self, message: MessageT) -> None:
        """Send a message that has waited."""
        raise NotImplementedError

    # What the address says

    def count_one(self) -> None:
        """Count a message that needs no credit."""
        self.received += 1
        self.limit = max(self.limit, self.received)

    def grant(self, credit: int) -> None:
        """Set the credit; waiting messages are sent at the end of the turn."""
        self.limit = self.received + credit
        if self.limit > self.highest:
            self.highest = self.limit
        if credit and self.waiting:
            self.due()

    def stall(self, is_stalled: bool) -> None:
        """Do nothing: messages are received whole."""

    def hold_input(self, is_held: bool) -> None:
        """Do nothing: messages are received whole."""

    # Waiting

    def give_back(self, message: MessageT) -> None:
        """Have a message wait again that the address gave back: before the others, as it was sent before them."""
        message.is_tried = True
        self.waiting.insert(self._returned, message)
        self._returned += 1

    def expire(self, now: float) -> None:
        """Give up the messages that have waited too long; ``go_on`` is to follow."""
        waiting = self.waiting
        for at in range(self._returned):
            message = waiting[at]
            message.deadline = message.deadline or now + self.patience(message)
        self._returned = 0
        for message in reversed(waiting):
            if message.deadline:
                break
            message.deadline = now + self.patience(message)
        if self.has_taken:
            self.has_taken = False
            self._taken_at = now
        while waiting and not self.is_ending:
            message = waiting[0]
            has_credit = self.received < self.limit and not self.is_detach_sent
            if now < self._deadline(message) or (has_credit and not message.is_tried):
                return
            waiting.popleft()
            self.waited(message)
            self.give_up(message)

    def _deadline(self, message: MessageT) -> float:
        if self.ends_all(message):
            return max(message.deadline, self._taken_at + PATIENCE_S)
        return message.deadline

    def go_on(self, now: float) -> float | None:
        """Send waiting messages as far as there is credit; return when to come back for the rest, if there is any."""
        waiting = self.waiting
        while waiting:
            message = waiting[0]
            if self._returned or (message.is_tried and self.core.is_pausing):
                return min(now + RETRY_S, self._deadline(message))
            if self.received >= self.limit or self.is_detach_sent:
                return self._deadline(message)
            waiting.popleft()
            self.waited(message)
            self.send_waiting(message)
        return None
