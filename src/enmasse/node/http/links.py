"""HTTP's links to addresses: senders, kept from one request to the next.

Rules:
1. A sender needs credit of its address. Messages without credit wait, in order, as long as their request allows; then
   the reason why nobody takes them is their outcome.
2. A message is sent unsettled, as its request waits for its outcome, unless it is to arrive at most once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Modified, Rejected
from enmasse.messaging.errors import AttachError
from enmasse.node.connections.waiting import WaitingMessage, WaitingSender
from enmasse.node.http.routes import RETRY, http_error
from enmasse.node.user_ids import UserIds
from enmasse.wire.http.answers import HttpError

# A connection and its links know each other.
if TYPE_CHECKING:
    from enmasse.messaging.delivery import Producer
    from enmasse.messaging.direct.metered_sink import MeteredSink
    from enmasse.node.connections.waiting import WaitingRoom
    from enmasse.node.http.connection import HttpConnection


GRACE_S: Final = 0.1
"""Seconds that a message may wait in any case: a sender that is new gets its credit in the turns that follow."""

STORING_KINDS: Final = frozenset(("queue", "topic", "subscription", "deadletter", "stream"))
"""The types of addresses whose word is that a message is stored, not that somebody has accepted it."""


class Post(WaitingMessage):
    """A message that is sent, or waits for that.

    Args:
        payload: the message.
        wait_s: the seconds for which it may wait for credit.
        done: called with nothing once it is accepted, or with the reason why it was not.
        is_settled: whether it is done as soon as it is sent.
    """

    __slots__ = ("done", "is_given_up", "is_settled", "wait_s")

    def __init__(
        self,
        payload: bytes,
        wait_s: float,
        done: Callable[[HttpError | None], None],
        *,
        is_settled: bool = False,
    ) -> None:
        super().__init__(payload)
        self.is_settled = is_settled
        self.wait_s = max(wait_s, GRACE_S)
        self.done = done
        self.is_given_up = False
        """True once its client is gone: it is not sent any more."""


class Sender(WaitingSender[Post]):
    """The link of a connection that sends to one address; a ``ProducerPort``.

    Attributes:
        sink: takes the messages: the link's end at the address, or the metering before it.
        status: the status of an accepted message: 202 if it is stored, 200 if a receiver has accepted it.
    """

    __slots__ = (
        "_connection", "_room", "_serial", "_unanswered", "_user_ids", "_waiting_bytes", "key", "sink", "status",
        "target",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, target: str, key: str) -> None:
        super().__init__(connection.open_space.core)
        self.target = target
        self.key = key
        """By which its connection finds it."""
        self.sink: Producer | MeteredSink
        self.status = 200
        self._waiting_bytes = 0
        self._room: WaitingRoom | None = None
        self._serial = 0
        self._connection = connection
        admission = connection.admission
        self._user_ids = None if admission.is_administrator else UserIds(admission.rights)
        self._unanswered: dict[int, Post] = {}

    @property
    def is_idle(self) -> bool:
        """True if no message waits to be sent or for its outcome."""
        return not (self.waiting or self._unanswered)

    # What the client sends

    def check(self, size: int) -> None:
        """Check the size of a message.

        Raises:
            HttpError: it is too large.
        """
        if size > self.most_bytes:
            raise HttpError(
                413,
                f"a message to {self.target!r:.200} may have up to {self.most_bytes} bytes with its properties, not "
                f"{size}: send less",
                "amqp:link:message-size-exceeded",
            )

    def send(self, post: Post) -> None:
        """Send a message whose size was checked, or let it wait for credit."""
        problem = None if self._user_ids is None else self._user_ids.problem(post.payload)
        if problem is not None:
            post.done(http_error(RemoteError(problem.condition, problem.description or "")))
            return
        if self.waiting or self.received >= self.limit:
            self._wait(post)
        else:
            self.send_waiting(post)

    def wait_no_longer(self, now: float) -> None:
        """Give up soon what has no credit: its client says nothing more, and may be gone."""
        for post in self.waiting:
            post.wait_s = GRACE_S
            post.deadline = min(post.deadline, now + GRACE_S)  # 0 is none yet

    def _wait(self, post: Post) -> None:
        if not self._count_waiting(len(post.payload)):
            self._count_waiting(-len(post.payload))
            post.done(_refusal(429, "too much of this space waits at the node already: send again", "no-room"))
            return
        self.waiting.append(post)
        self._connection.due()
        self.sink.on_available(len(self.waiting))

    def _count_waiting(self, change: int) -> bool:
        """Count bytes that wait, and return whether there is room for them."""
        self._waiting_bytes += change
        if self._room is None:
            self._room = self._connection.waiting_room()
        return self._room.resize(self._waiting_bytes)

    def due(self) -> None:
        """Have what waits looked at before the turn of the loop ends."""
        self._connection.due()

    def patience(self, message: Post) -> float:
        """Return the seconds that a message may wait."""
        return message.wait_s

    def waited(self, message: Post) -> None:
        """Note that a message waits no longer."""
        self._count_waiting(-len(message.payload))

    def give_up(self, message: Post) -> None:
        """Answer a message that has waited too long."""
        message.done(self._want())

    def send_waiting(self, message: Post) -> None:
        """Send a message, for which there is credit."""
        self.received += 1
        if message.is_settled:
            self.sink.on_message(message.payload, 0, True, 0)
        else:
            self._serial = number = self._serial + 1
            self._unanswered[number] = message
            self.sink.on_message(message.payload, number, False, 0)
        if self.received == self.limit:
            self.sink.on_exhausted()
        if message.is_settled:
            message.done(None)

    def _want(self) -> HttpError:
        """Return why a message found no credit."""
        link = self._connection.links.get(self)
        end = None if link is None else link.end
        if link is not None and link.is_opening:
            return _refusal(503, f"{self.target!r:.200} has not answered yet: send again", "no-answer")
        is_unattended = end is not None and end.address.is_unattended
        if is_unattended:
            return _refusal(503, f"{self.target!r:.200} has no receiver: send again once there is one", "no-consumer")
        if link is not None and link.metered is not None and link.metered.is_withheld:
            return _refusal(429, f"{self.target!r:.200} takes no more a second: send slower", "rate")
        if self.status == 202:
            return _refusal(429, f"{self.target!r:.200} has no room: send again once it was received from", "no-room")
        return _refusal(429, f"the receivers of {self.target!r:.200} take no more now: send again", "no-credit")

    def forget_given_up(self) -> None:
        """Forget the messages that wait and whose client is gone."""
        kept = [post for post in self.waiting if not post.is_given_up]
        if len(kept) < len(self.waiting):
            self.waiting.clear()
            self.waiting.extend(kept)
            self._count_waiting(sum(len(post.payload) for post in kept) - self._waiting_bytes)

    def finish(self) -> None:
        """Leave, if it is the link of one request with a key of its own."""
        if self.key != self.target:
            self._connection.drop(self)

    # What the address says

    def settle(self, delivery_id: int, state: Any) -> None:
        """Give a message its outcome."""
        self._unanswered.pop(delivery_id).done(None if state is ACCEPTED else outcome_error(state, self.target))

    def refuse(self, error: RemoteError) -> None:
        """End the link, as whoever is behind the address takes nothing of it."""
        self.detach(AmqpError(error.condition, error.description))

    def detach(self, error: Any = None) -> None:
        """End the link, as the address takes no more."""
        if self.is_detach_sent:
            return
        self.is_detach_sent = True
        problem = error if isinstance(error, AmqpError) else AmqpError("amqp:link:detach-forced")
        reason = http_error(AttachError(str(problem.condition), problem.description or "the address is gone"))
        posts = [*self._unanswered.values(), *self.waiting]
        self._unanswered.clear()
        self.waiting.clear()
        self._count_waiting(-self._waiting_bytes)
        self._connection.drop(self)
        for post in posts:
            post.done(reason)


def _refusal(status: int, detail: str, reason: str) -> HttpError:
    return HttpError(status, detail, "amqp:resource-limit-exceeded", RETRY, reason=reason)


def outcome_error(state: Any, target: str) -> HttpError:
    """Return the answer for a message that was not accepted."""
    if isinstance(state, Rejected):
        error = state.error or AmqpError("amqp:rejected")
        condition = str(error.condition)
        status = {"amqp:resource-limit-exceeded": 429, "amqp:link:message-size-exceeded": 413}.get(condition, 422)
        detail = f"{target!r:.200} rejected the message: {error.description or condition}"
        return HttpError(status, detail, condition, RETRY if status == 429 else (), outcome="rejected")
    if isinstance(state, Modified):
        detail = f"the receiver at {target!r:.200} failed, or cannot take the message; it may have seen it"
        return HttpError(502, detail, "amqp:modified", outcome="modified")
    return HttpError(
        503,
        f"nobody took the message to {target!r:.200}, or it could not be stored: send it again",
        "amqp:released",
        RETRY,
        outcome="released",
    )
