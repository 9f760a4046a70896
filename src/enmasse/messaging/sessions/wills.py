"""Wills: messages that are sent when a client is gone without a goodbye.

Rules:
1. A will is on disk before its client is told that it is connected (or, of a link, that it was stored).
2. It is sent once: the message and the end of the will are on disk with the same batch. To an address that stores
   nothing it goes once the end of the will is on disk, so a crash in between loses it, as it would have lost the
   message.
3. It is sent some time after its client has gone, if it says so, but not after its session is over; a client that
   comes back before that has another will, or none [MQTT-3.1.2-8, 3.1.3-9]. A goodbye cancels it [MQTT-3.1.2-10].
   Where a node has ended that the client had reached, beside this one, it waits for some seconds at least.
4. After a restart the clients that were connected have ``GRACE_S`` to come back. Then their wills are sent. A delay
   that had begun before goes on.
5. The grants of its owner must allow it when it is made, and when it is sent. Where they are not known without the
   user's token, those count that the user had last. It goes with its owner (``owners``), unsent.
6. While an address takes no more, it is tried again for a while; then the will is lost, and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from enmasse.message.errors import DecodeError
from enmasse.message.sections import check_order
from enmasse.messaging.delivery import NoPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import facts_of, known_facts
from enmasse.messaging.limits import Footprint
from enmasse.messaging.sessions import records
from enmasse.messaging.transaction import TakesMessages

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.core import Core
    from enmasse.messaging.owners import Grants
    from enmasse.messaging.sessions.delays import Delays
    from enmasse.messaging.space import Space
    from enmasse.messaging.storage import Operation


GRACE_S: Final = 30.0
"""Seconds that clients have to come back after a restart of the node, before their wills are sent: as long as the
usual client waits between two attempts, at most."""

RETRY_S: Final = 1.0
MAX_TRIES: Final = 60
"""Attempts to send a will, and the seconds between two."""

MAX_WILLS: Final = 100_000
"""Wills of links in one space; those of sessions are bounded with these."""


class WillMessage(NamedTuple):
    """A will as its client gives it.

    Attributes:
        name: the name that it is sent to.
        payload: the message as AMQP has it.
        delay_s: the seconds after its client has gone until it is sent.
    """

    name: str
    payload: bytes
    delay_s: float = 0.0


class WillState(Enum):
    """The state of a will."""

    ARMED = "armed"
    """Its client is connected."""
    WAITING = "waiting"
    """Its client is gone, or may come back after a restart."""
    SENDING = "sending"
    OVER = "over"


class LinkKey(NamedTuple):
    """Identifies the will of an AMQP link."""

    owner: str
    container: str
    link: str


class Will:
    """A will that is stored.

    Args:
        wills: those of its space.
        log_id: its number in the journal.
        owner: as whom it is sent.
        user: the owner's name.
        message: the message to send.
        client: the client's name for itself.
        session: the number of its session in the journal; 0 if that is in memory alone, or if it is of a link.
        link: the name of the link, if it is of one.
    """

    __slots__ = ("_wills", "client", "left_us", "link", "log_id", "message", "owner", "session", "state", "tries",
                 "user")  # fmt: skip

    def __init__(
        self,
        wills: Wills,
        log_id: int,
        owner: str,
        user: str,
        message: WillMessage,
        *,
        client: str,
        session: int = 0,
        link: str | None = None,
    ) -> None:
        self._wills = wills
        self.log_id = log_id
        self.owner = owner
        self.user = user
        self.message = message
        self.client = client
        self.session = session
        self.link = link
        self.state = WillState.ARMED
        self.left_us = 0
        """The time at which its client went, by the wall clock; 0 while it is there."""
        self.tries = 0

    @property
    def footprint(self) -> Footprint:
        """The cost to its space."""
        return Footprint(0, len(self.message.payload))

    def operation(self) -> Operation:
        """Return the operation that writes it."""
        space = self._wills.space
        description = {
            "space": space.name,
            "spaceUid": space.uid,
            "owner": self.owner,
            "user": self.user,
            "client": self.client,
            "name": self.message.name,
            "delay": self.message.delay_s,
            "session": self.session,
            "link": self.link,
            "left": self.left_us,
        }
        return records.put_will(self.log_id, description, self.message.payload)

    def adopted(self) -> Operation | None:
        """Return the operation that writes it with its owner; ``None`` if it is over."""
        return None if self.state is WillState.OVER else self.operation()

    def disown(self) -> None:
        """Forget it unsent, as its owner is gone."""
        if self.state is not WillState.SENDING:
            self._wills.refuse(self)

    def cancel(self) -> Operation:
        """Cancel it; return the operation that forgets it."""
        self._wills.forget(self)
        return records.remove(self.log_id, records.WILL)

    def lost(self, most_s: float, *, is_allowed: bool = True, grace_s: float = 0.0) -> None:
        """Send it after its delay, as its client is gone.

        Args:
            most_s: the longest delay: what is left of its session.
            is_allowed: false if the user's grants do not allow it any more.
            grace_s: the time that its client has to come back in any case, as it was not its doing.
        """
        if self.state is not WillState.ARMED:
            return
        if not is_allowed:
            self._wills.refuse(self)
            return
        self.state = WillState.WAITING
        delay_s = min(self.message.delay_s, most_s)
        if grace_s > delay_s:
            # After a restart it is as that of a client that was there.
            self._wills.delays.wait(self, grace_s)
        elif delay_s > 0:
            self.left_us = self._wills.core.wall_us
            self._wills.core.store_in_time([self.operation()], lambda: self._wills.written(self))
            self._wills.delays.wait(self, delay_s)
        else:
            self.on_waited()

    def hasten(self) -> None:
        """Send it now if it waits, as its session is over [MQTT-3.1.3-9]."""
        if self.state is WillState.WAITING:
            self._wills.delays.cancel(self)
            self.on_waited()

    def on_waited(self) -> None:
        """Send it."""
        self._wills.send(self)


class _Removal:
    """The log that forgets a will with the batch that stores its message."""

    __slots__ = ("_done", "_operation", "name")

    def __init__(self, operation: Operation, done: Callable[[str | None], None]) -> None:
        self.name = "a will"
        self._operation = operation
        self._done = done

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Return the operation."""
        return [self._operation], self._done

    def committed(self, token: Callable[[str | None], None]) -> None:
        """Report that it is on disk."""
        token(None)

    def failed(self, token: Callable[[str | None], None], reason: str) -> None:
        """Report that it is not on disk."""
        token(reason)


def _ignore(_problem: str | None) -> None:
    """Ignore the outcome of a part: the batch has one for all of it."""


class Wills:
    """The wills of one space.

    Args:
        core: the core.
        space: the space.
        delays: the waits of the space's sessions and wills.
        grants: returns the grants of an owner of a name, if they are known without the user's token.

    Attributes:
        sent: wills that were sent.
        refused: those that the grants did not allow any more.
        lost: those that no address took.
    """

    __slots__ = ("_by_link", "_wills", "core", "delays", "grants", "lost", "refused", "sent", "space")

    def __init__(self, core: Core, space: Space, delays: Delays, grants: Callable[[str, str], Grants | None]) -> None:
        self.core = core
        self.space = space
        self.delays = delays
        self.grants = grants
        self.sent = 0
        self.refused = 0
        self.lost = 0
        self._wills: dict[Will, None] = {}
        self._by_link: dict[LinkKey, Will] = {}

    def __len__(self) -> int:
        """The number of wills."""
        return len(self._wills)

    @property
    def all(self) -> list[Will]:
        """The wills, in the order in which they were made."""
        return list(self._wills)

    # Making

    def make(
        self, owner: str, user: str, message: WillMessage, *, client: str, session: int = 0, link: str | None = None
    ) -> Will:
        """Return a new will; the caller writes its ``operation``, and the counter of logs.

        Raises:
            AttachError: it is no message, or there are too many.
        """
        if len(self._wills) >= MAX_WILLS:
            raise AttachError(
                "amqp:resource-limit-exceeded", f"space {self.space.name!r} has {MAX_WILLS} wills, as many as it may"
            )
        try:
            facts_of(message.payload)
            check_order(message.payload)
        except DecodeError as error:
            raise AttachError("amqp:decode-error", f"the will is no message: {error}") from None
        self.space.usage.require_room(Footprint(0, len(message.payload)))
        log_id, _ = self.core.new_log()
        will = Will(self, log_id, owner, user, message, client=client, session=session, link=link)
        self._add(will)
        return will

    def _add(self, will: Will) -> None:
        self._wills[will] = None
        self.space.usage.take(will.footprint)

    def put(self, key: LinkKey, user: str, message: WillMessage, done: Callable[[str | None], None]) -> Will:
        """Store the will of an AMQP link, in the place of the one that it had.

        Args:
            key: identifies the link.
            user: the owner's name.
            message: the will.
            done: called with nothing once it is on disk, or with the reason why it is not.

        Raises:
            AttachError: it is no message, or there are too many.
        """
        will = self.make(key.owner, user, message, client=key.container, link=key.link)
        before = self._by_link.get(key)
        operations = [self.core.log_counter(), will.operation()]
        if before is not None:
            operations.append(records.remove(before.log_id, records.WILL))
        self._by_link[key] = will

        def decided(reason: str | None) -> None:
            if reason is None:
                if before is not None:
                    self.forget(before)
            else:
                self.forget(will)
                if before is not None and before.state is WillState.ARMED:
                    self._by_link[key] = before
            done(reason)

        self.core.store(operations, decided)
        return will

    def take_over(self, key: LinkKey, user: str) -> Will | None:
        """Return the will that a link had before it came back, armed again.

        Args:
            key: identifies the link.
            user: the owner's name.
        """
        will = self._by_link.get(key)
        if will is None:
            # An older version knew its user's name alone, and that is a provider's to know.
            nobodys = self._by_link.get(key._replace(owner=""))
            if nobodys is None or nobodys.user != user:
                return None
            will = nobodys
            self._by_link[key] = self._by_link.pop(key._replace(owner=""))
            will.owner = key.owner
            self.core.store_in_time([will.operation()])
        if will.state is WillState.SENDING:
            return None
        self.delays.cancel(will)
        will.state = WillState.ARMED
        will.left_us = 0
        return will

    def load(self, log_id: int, record: dict[str, Any], payload: bytes) -> Will:
        """Take up a will of an earlier run of the node: its client has some time to come back."""
        message = WillMessage(record["name"], payload, record["delay"])
        will = Will(
            self,
            log_id,
            records.owner_in(record),
            record["user"],
            message,
            client=record["client"],
            session=record["session"],
            link=record["link"],
        )
        will.left_us = record["left"]
        if not will.owner:
            self.space.owners.adopt(will)
        self._add(will)
        if will.link is not None:
            self._by_link[LinkKey(will.owner, will.client, will.link)] = will
        return will

    def wait_after_restart(self, will: Will) -> None:
        """Have a will sent if its client does not come back in time; one that had gone before has the rest alone."""
        will.state = WillState.WAITING
        delay_s = will.message.delay_s
        if will.left_us:
            self.delays.wait(will, max(0.0, delay_s - (self.core.wall_us - will.left_us) / 1e6))
        else:
            self.delays.wait(will, max(GRACE_S, delay_s))

    def written(self, will: Will) -> None:
        """Forget a will again that was over before it was written."""
        if will.state is WillState.OVER:
            self.core.store_in_time([records.remove(will.log_id, records.WILL)])

    # The end

    def forget(self, will: Will) -> None:
        """Forget a will in memory."""
        will.state = WillState.OVER
        self.delays.cancel(will)
        if will in self._wills:
            del self._wills[will]
            self.space.usage.give_back(will.footprint)
        if will.link is not None:
            key = LinkKey(will.owner, will.client, will.link)
            if self._by_link.get(key) is will:
                del self._by_link[key]

    def _drop(self, will: Will) -> None:
        self.core.store_in_time([will.cancel()])

    def refuse(self, will: Will) -> None:
        """Forget a will that the grants do not allow any more."""
        self.refused += 1
        self._drop(will)

    def send(self, will: Will) -> None:
        """Send a will, if its user still may."""
        if will.state is WillState.OVER:
            return
        will.state = WillState.SENDING
        grants = self.grants(will.owner, will.user)
        if grants is not None and not grants.of_client(will.client).may_send(will.message.name):
            self.refuse(will)
            return
        try:
            address = self.space.find_target(will.message.name)
        except AttachError:
            self.lost += 1
            self._drop(will)
            return
        if isinstance(address, TakesMessages):
            self._store(will, address)
        else:
            self._pass_on(will, address)

    def _store(self, will: Will, address: TakesMessages) -> None:
        name, payload, _ = will.message
        try:
            payload = address.annotate(payload, name)
        except DecodeError:
            self.lost += 1
            self._drop(will)
            return
        if self.core.is_pressed or not address.has_room(len(payload)):
            self._again(will)
            return

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._again(will)
            else:
                self.sent += 1
                self.forget(will)

        if known_facts(payload).retain and address.why_not_retained(payload, name) is not None:
            self.lost += 1
            self._drop(will)
            return
        removal = _Removal(records.remove(will.log_id, records.WILL), decided)
        self.core.write_together([address.enlist_message(payload, name, _ignore), removal])

    def _pass_on(self, will: Will, address: Address) -> None:
        """Send a will to an address that stores nothing, once it cannot be sent a second time."""

        def decided(reason: str | None) -> None:
            if reason is not None:
                self._again(will)
                return
            self.forget(will)
            try:
                producer = address.make_producer(NoPort(), will.message.name)
                # Nobody has promised it credit; multicast keeps it for those of its receivers that have none.
                take = producer.on_message if address.kind == "multicast" else producer.on_crossed
                take(will.message.payload, 0, True, 0)
            except AttachError:
                self.lost += 1
            else:
                self.sent += 1

        self.core.store([records.remove(will.log_id, records.WILL)], decided)

    def _again(self, will: Will) -> None:
        will.tries += 1
        if will.tries >= MAX_TRIES:
            self.lost += 1
            self._drop(will)
        else:
            self.delays.wait(will, RETRY_S)

    def close(self) -> list[Operation]:
        """Forget all, as the space is deleted; return the operations."""
        return [will.cancel() for will in self.all]
