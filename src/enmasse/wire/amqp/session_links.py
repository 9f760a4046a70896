"""The links of a session: names, handles, attach and detach [AMQP 2.6.1 - 2.6.6]."""

from __future__ import annotations

from collections import deque
from typing import Any

from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.errors import FramingError, LocalError, SessionError
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Coordinator, Detach, Source, Target
from enmasse.wire.amqp.session_output import SessionOutput


class SessionLinks(SessionOutput):
    """The links of a session, of both peers."""

    __slots__ = ()

    # What the peer does

    def on_attach(self, attach: Attach) -> None:
        """The peer's attach: the answer to ours, or a link that it wants."""
        is_sender = attach.role
        if attach.handle in self.receivers or attach.handle in self.senders:
            raise SessionError("amqp:session:handle-in-use", f"handle {attach.handle} is attached already")
        if attach.handle > self.connection.handle_max:
            raise FramingError(f"handle {attach.handle} is above the handle-max of {self.connection.handle_max}")
        if attach.snd_settle_mode > 2 or attach.rcv_settle_mode > 1:
            modes = f"{attach.snd_settle_mode} and {attach.rcv_settle_mode}"
            raise SessionError("amqp:invalid-field", f"settle modes are 0 to 2 and 0 to 1, not {modes}")
        link = self.by_name.get((is_sender, attach.name))
        if link is not None and link.remote_attach is not None:
            link.detach(AmqpError("amqp:link:stolen", "the link was attached again under its name"))
            del self.by_name[is_sender, attach.name]
            link.is_detached = True
            self.connection.handler.on_detached(link, None, False)
            link = None
        answers = link is not None
        if link is None:
            link = self._new_link(is_sender, attach.name)
        link.remote_attach = attach
        link.remote_handle = attach.handle
        if isinstance(link, SendingLink):
            link.limit_messages(attach.max_message_size)
            self.senders[attach.handle] = link
        elif isinstance(link, ReceivingLink):
            link.initial = attach.initial_delivery_count or 0
            self.receivers[attach.handle] = link
        if answers:
            self.connection.handler.on_attached(link)
            link.tell_blocked()
        else:
            self.connection.handler.on_attach(link, attach)

    def on_detach(self, detach: Detach) -> None:
        """The peer's detach: the answer to ours, or of its own accord."""
        link: Link | None = self.receivers.get(detach.handle) or self.senders.get(detach.handle)
        if link is None:
            raise self._unknown_handle(detach.handle)
        link.detach(closed=detach.closed)
        self.forget(link)
        if link.is_detached:
            return
        link.is_detached = True
        self.connection.handler.on_detached(link, detach.error, detach.closed)
        self.on_room()

    def forget(self, link: Link) -> None:
        """Free the link's name and handles."""
        if isinstance(link, ReceivingLink):
            link.forget_parts()
            if self.awaited:
                self.awaited = {at: one for at, one in self.awaited.items() if one[0] is not link}
        if link.remote_handle is not None:
            self.receivers.pop(link.remote_handle, None)
            self.senders.pop(link.remote_handle, None)
        self.handles.pop(link.handle, None)
        key = (link.is_sender, link.name)
        if self.by_name.get(key) is link:
            del self.by_name[key]

    @staticmethod
    def _unknown_handle(handle: int) -> SessionError:
        return SessionError("amqp:session:unattached-handle", f"no link is attached to handle {handle}")

    # What we do

    def _new_link(self, is_sender: bool, name: str) -> Link:
        handle = len(self.handles)
        if handle in self.handles:
            handle = 0
            while handle in self.handles:
                handle += 1
        if handle > min(self.remote_handle_max, self.connection.handle_max):
            raise SessionError("amqp:resource-limit-exceeded", "the session has no free handle")
        link: Link = SendingLink(self, name, handle) if is_sender else ReceivingLink(self, name, handle)
        self.handles[handle] = link
        self.by_name[is_sender, name] = link
        return link

    def attach_sender(
        self,
        name: str,
        sink: Any,
        target: Target | Coordinator | None,
        *,
        source: Source | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        desired_capabilities: tuple[str, ...] | None = None,
        properties: dict[Any, Any] | None = None,
        unsettled: dict[Any, Any] | None = None,
    ) -> SendingLink:
        """Attach a link on which we send; ``on_attached`` or ``on_detached`` of the handler follows.

        What is ``unsettled`` of an earlier attachment of the link is listed by delivery tag [AMQP 2.6.13].
        """
        link = self._own_link(True, name)
        assert isinstance(link, SendingLink)
        link.sink = sink
        link._send_attach(  # noqa: SLF001
            Attach(
                name=name,
                handle=link.handle,
                role=False,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source or Source(),
                target=target,
                initial_delivery_count=0,
                desired_capabilities=desired_capabilities,
                properties=properties,
                unsettled=unsettled,
            )
        )
        return link

    def attach_receiver(
        self,
        name: str,
        sink: Any,
        source: Source,
        *,
        target: Target | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> ReceivingLink:
        """Attach a link on which we receive; ``on_attached`` or ``on_detached`` of the handler follows."""
        link = self._own_link(False, name)
        assert isinstance(link, ReceivingLink)
        link.sink = sink
        link.limit_messages(max_message_size)
        link.settle_as(rcv_settle_mode)
        link._send_attach(  # noqa: SLF001
            Attach(
                name=name,
                handle=link.handle,
                role=True,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source,
                target=target or Target(),
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        return link

    def _own_link(self, is_sender: bool, name: str) -> Link:
        if self.is_end_sent or self.is_ended:
            raise LocalError("the session has ended")
        if (is_sender, name) in self.by_name:
            raise LocalError(f"a link named {name!r} is attached already")
        return self._new_link(is_sender, name)

    def drop_links(self, error: AmqpError | None) -> None:
        """Report to the handler that every link of an ended session is detached."""
        self._report_too_large()
        self.awaited.clear()
        pending, self._pending = self._pending, deque()
        self.drop_unsent(pending)
        for link in list(self.handles.values()):
            if not link.is_detached:
                link.is_detached = True
                self.connection.handler.on_detached(link, error, False)
            self.forget(link)
