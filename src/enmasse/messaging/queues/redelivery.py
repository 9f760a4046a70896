"""Redelivery: attempts, waits and dead letters of messages that a receiver did not accept.

Rules:
1. ``released`` gives it back as it was, ``modified`` may count an attempt, keep it from this receiver and
   add annotations [AMQP 3.4.4, 3.4.5]. ``rejected`` is a failed attempt where attempts are limited;
   otherwise, as the message is called invalid, it is a dead letter at once [AMQP 3.4.3]. An option makes it the
   one or the other whatever the limit.
2. The wait before the next attempt grows with each one, up to a bound.
3. After its last attempt a message is a dead letter: it goes to the address for those, or is dropped and
   counted. It leaves its own queue only once it is stored there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import Modified, Rejected
from enmasse.message.sections import with_message_annotations
from enmasse.message.types import UInt
from enmasse.messaging.log.entry import MOVING, Entry, SpecialEntry, with_ttl

if TYPE_CHECKING:
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.queues.consumer import BacklogConsumer


ORIGIN_ANNOTATION = "x-opt-original-address"
REASON_ANNOTATION = "x-opt-dead-letter-reason"
COUNT_ANNOTATION = "x-opt-delivery-count"
CONDITION_ANNOTATION = "x-opt-dead-letter-condition"
DESCRIPTION_ANNOTATION = "x-opt-dead-letter-description"

DEAD_LETTER_ANNOTATIONS = (
    ORIGIN_ANNOTATION,
    REASON_ANNOTATION,
    COUNT_ANNOTATION,
    CONDITION_ANNOTATION,
    DESCRIPTION_ANNOTATION,
)

RETRY_S = 1.0
"""Seconds until another try to move a message to an address that had no room."""


def handle_outcome(backlog: Backlog, entry: Entry, state: Any, consumer: BacklogConsumer) -> None:
    """Handle an outcome other than accepted: give the message back, to another attempt or as a dead letter."""
    if isinstance(state, Rejected):
        details: dict[str, Any] = {}
        if state.error is not None:
            details[CONDITION_ANNOTATION] = str(state.error.condition)
            if state.error.description:
                details[DESCRIPTION_ANNOTATION] = state.error.description[:1024]
        rejects = backlog.options.reject_policy or ("retry" if backlog.options.max_attempts else "deadletter")
        if rejects == "deadletter":
            make_dead_letter(backlog, entry, "rejected", details)
            return
        _failed(backlog, entry, details)
        return
    if isinstance(state, Modified):
        if state.message_annotations:
            _replace_payload(backlog, entry, _annotated(entry.payload, dict(state.message_annotations)))
        if state.undeliverable_here:
            backlog.arrange().exclude(entry, consumer)
        if state.delivery_failed:
            _failed(backlog, entry, {})
            return
    if entry.frame is not None:
        entry.frame.give_back(entry.row)
    _again(backlog, entry, 0)


def _annotated(payload: bytes, annotations: dict[Any, Any]) -> bytes:
    try:
        return with_message_annotations(payload, annotations)
    except DecodeError:
        return payload


def _replace_payload(backlog: Backlog, entry: Entry, payload: bytes) -> None:
    change = len(payload) - len(entry.payload)
    entry.payload = payload
    entry.body_at = 0
    backlog.count_bytes(change)
    if entry.is_resident:
        backlog.resident_bytes += change


def _note_attempts(entry: Entry) -> None:
    """Have the failed deliveries of a message survive a restart."""
    ref = entry.frame
    if ref is not None:
        ref.note_attempts(entry.row, entry.attempts)
        ref.give_back(entry.row)
        ref.log.touch(ref)


def _failed(backlog: Backlog, entry: Entry, details: dict[str, Any]) -> None:
    entry.attempts += 1
    if is_spent(backlog, entry):
        make_dead_letter(backlog, entry, "attempts", details)
        return
    _note_attempts(entry)
    _again(backlog, entry, delay_us(backlog, entry.attempts))


def is_spent(backlog: Backlog, entry: Entry) -> bool:
    """Return whether a message has had its last attempt."""
    most = backlog.options.max_attempts
    return 0 < most <= entry.attempts


def delay_us(backlog: Backlog, attempts: int) -> int:
    """Return the wait after so many failed attempts, in microseconds."""
    options = backlog.options
    if not options.redelivery_delay:
        return 0
    wait = options.redelivery_delay * min(options.redelivery_delay_multiplier, 1e6) ** min(attempts - 1, 64)
    most = options.max_redelivery_delay or 10**12
    return int(min(wait, most) * 1_000)


def _again(backlog: Backlog, entry: Entry, wait_us: int) -> None:
    if entry.is_refused:
        backlog.refuse(entry)
    elif backlog.timing.is_over(entry):
        backlog.timing.expire(entry)
    elif wait_us:
        backlog.timing.hold(entry, wait_us)
    else:
        backlog.put_back(entry)


def make_dead_letter(backlog: Backlog, entry: Entry, reason: str, details: dict[str, Any]) -> None:
    """Move a message to the address for dead letters, or drop it."""
    backlog.dead_lettered += 1
    if backlog.options.deadletter:
        move(backlog, entry, backlog.options.deadletter, reason, details)
    else:
        _drop(backlog, entry, reason)


def _drop(backlog: Backlog, entry: Entry, reason: str) -> None:
    """Drop a message that goes nowhere else, count it, and tell of it."""
    backlog.dropped += 1
    space = backlog.space
    backlog.core.on_dropped(None if space is None else space.name, backlog.name, reason)
    backlog.settle(entry)


class _NoSender:
    """The sender of a message that is moved: its outcome is dealt with by the address that it leaves."""

    __slots__ = ()

    def settle(self, _id: int, _state: Any) -> None:
        """Ignore that it is stored, or could not be."""


NO_SENDER = _NoSender()


def move(backlog: Backlog, entry: Entry, target: str, reason: str, details: dict[str, Any] | None = None) -> None:
    """Move a message to another address of the space that stores; without one it is dropped and counted.

    Args:
        backlog: the messages among which it is.
        entry: the message, which is not handed out meanwhile.
        target: the address.
        reason: ``expired``, ``rejected`` or ``attempts``.
        details: further annotations.
    """
    space = backlog.space
    address = None if space is None else space.address(target)
    found = None if address is None else address.stored()
    if found is None or found is backlog:
        _drop(backlog, entry, reason)
        return
    annotations = {
        ORIGIN_ANNOTATION: backlog.name,
        REASON_ANNOTATION: reason,
        COUNT_ANNOTATION: UInt(entry.attempts),
        **(details or {}),
    }
    payload = _annotated(with_ttl(entry.payload, None), annotations)

    def decided(problem: str | None) -> None:
        if problem is not None and not backlog.is_closed:
            backlog.core.call_later(RETRY_S, try_again)

    def try_again() -> None:
        if entry.state == MOVING and not backlog.is_closed:
            move(backlog, entry, target, reason, details)

    move_payload(backlog, entry, found, payload, decided)


def move_payload(
    backlog: Backlog, entry: Entry, target: Backlog, payload: bytes, done: Callable[[str | None], None]
) -> None:
    """Store a message in another address, and settle it here with the same batch.

    Args:
        backlog: the messages among which it is.
        entry: the message, which is not handed out meanwhile.
        target: the messages to which it goes.
        payload: the message as it is to be stored there.
        done: called once it is there, or with the reason why it is not; it is still held then.
    """
    entry.state = MOVING
    if isinstance(entry, SpecialEntry):
        entry.expires_us = 0
    if target.is_closed:
        done(f"{target.name!r} was deleted")
    elif target.free_bytes < len(payload) + target.overhead:
        done(f"{target.name!r} is full")
    elif target.writes(payload):
        leaving = backlog.enlist_settlement(entry, done)
        target.take(payload, NO_SENDER, is_staged=True)
        assert target.log is not None
        assert leaving is not None
        backlog.core.write_together([leaving, target.log])
    else:
        target.take(payload, None)
        backlog.settle(entry)
        done(None)
