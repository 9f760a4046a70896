"""Devices that speak HTTP: telemetry, events, responses to commands and inquiries, as Hono's HTTP adapter has them.

``POST /telemetry``, ``/event``, ``/command/res/ID`` and ``/inquiry/NAME`` are of the device itself, ``PUT`` with
``/TENANT/DEVICE`` behind the first word of a device for which a gateway acts; the tenant may be left empty.

Rules:
1. 202 says that an application has the message, or that it is stored. With ``hono-ttd`` the answer waits so many
   seconds for a command, and then is 200 with the command.
2. A command is accepted as its answer is written; one whose device is gone by then is released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.node.devices.messages import (
    OCTETS,
    Command,
    DeviceError,
    Downstream,
    Sent,
    check_payload,
    inquiry_of,
    response_of,
    seconds_of,
)
from enmasse.node.devices.tenants import COMMAND, EVENT, HTTP, INQUIRY, TELEMETRY, Device
from enmasse.node.http.links import Post
from enmasse.node.http.request_reply import Asking, Headers
from enmasse.node.http.routes import RETRY, Route, decoded, query_of
from enmasse.wire.http.answers import HttpError, head

# A connection, and what a device asks over it, know each other.
if TYPE_CHECKING:
    from enmasse.message.sections import Sections
    from enmasse.node.devices.devices import Devices
    from enmasse.node.http.connection import HttpConnection
    from enmasse.node.http.links import Sender
    from enmasse.wire.http.heads import Request


DEVICE: Final = "device"
"""The action of a request from a device."""

DEVICE_METHODS: Final = ("POST", "PUT")
WAIT_S: Final = 1.0
"""The time that a message waits for an application's credit."""

MAX_TTD_S: Final = 60
ANSWER_S: Final = 30.0

_FIRST: Final = {
    "telemetry": TELEMETRY,
    "event": EVENT,
    "command": COMMAND,
    "inquiry": INQUIRY,
}
_OWN_PARAMETERS: Final = ("hono-", "qos-level")
"""How parameters begin that are for the node."""

_ACCEPTED: Final = head(202)


class _Path:
    """The path of a request, read.

    Attributes:
        kind: ``telemetry``, ``event``, ``command`` for a response, or ``inquiry``.
        tenant: the tenant as it is named; empty: the device's own.
        device: for which a gateway acts; empty: the device itself.
        name: the name of the request that is answered, or of the inquiry.
    """

    __slots__ = ("device", "kind", "name", "tenant")

    def __init__(self, kind: str, tenant: str, device: str, name: str) -> None:
        self.kind = kind
        self.tenant = tenant
        self.device = device
        self.name = name


def device_route_of(request: Request) -> Route | None:
    """Return what a request of a device asks for; None: it is none of a device.

    Raises:
        HttpError: there is nothing at its path, or it does not know the method.
    """
    words = request.path.split("/")
    kind = _FIRST.get(words[1] if len(words) > 1 else "")
    if kind is None:
        return None
    if request.method not in (*DEVICE_METHODS, "OPTIONS"):
        allow = ", ".join((*DEVICE_METHODS, "OPTIONS"))
        raise HttpError(405, f"devices use POST and PUT, not {request.method}", headers=(("Allow", allow),))
    rest = words[2:]
    if kind == COMMAND:
        if not rest or rest[0] != "res":
            raise _nothing_at(request)
        rest = rest[1:]
    needed = kind in (COMMAND, INQUIRY)
    if len(rest) not in ((1, 3) if needed else (0, 2)) or (needed and not rest[-1]):
        raise _nothing_at(request)
    tenant, device = (decoded(rest[0], "tenant"), decoded(rest[1], "device")) if len(rest) > 1 else ("", "")
    route = Route("", "", DEVICE, query_of(request.query), request.headers.get("authorization", ""))
    route.made = _Path(kind, tenant, device, decoded(rest[-1], "name") if needed else "")
    return route


def _nothing_at(request: Request) -> HttpError:
    return HttpError(
        404,
        f"there is nothing at {request.path:.200}: devices use /telemetry, /event, /command/res/ID and "
        "/inquiry/NAME; gateways put /TENANT/DEVICE before ID and NAME, and behind the others",
    )


def _no_device() -> HttpError:
    return HttpError(
        403,
        "this path is for devices, which send Basic with AUTH-ID@TENANT and the password; all others use the "
        "paths of /v1/spaces",
        "amqp:not-allowed",
    )


def enter_device(connection: HttpConnection) -> None:
    """Register the connection of a device that has logged in.

    Raises:
        HttpError: it is no device, or its tenant does not allow HTTP.
    """
    device, devices = connection.admission.device, connection.admission.devices
    if device is None or devices is None:
        raise _no_device()
    try:
        devices.enter(connection, device, HTTP, lasts=False)
    except DeviceError as error:
        raise _http_error(error) from None


def leave_device(connection: HttpConnection) -> None:
    """Forget the connection of a device."""
    if connection.admission.devices is not None:
        connection.admission.devices.leave(connection)


def _http_error(error: RemoteError) -> HttpError:
    status = error.status if isinstance(error, DeviceError) else 503
    return HttpError(status, error.description, error.condition, RETRY if status in (429, 503) else ())


def serve_device(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Do what a device asks for.

    Raises:
        HttpError: that is not possible.
    """
    device, devices = connection.admission.device, connection.admission.devices
    if device is None or devices is None:
        raise _no_device()
    path: _Path = request.route.made
    if path.tenant not in ("", device.tenant.id, device.tenant.alias):
        raise HttpError(403, f"the device is of another tenant than {path.tenant!r:.200}", "amqp:not-allowed")
    connection.begin(_Finding(connection, devices, device, request, body))


class _Finding:
    """A request of a device, which goes on once it is known for which device."""

    def __init__(
        self, connection: HttpConnection, devices: Devices, gateway: Device, request: Request, body: bytes
    ) -> None:
        self._connection = connection
        self._devices = devices
        self._gateway = gateway
        self._request = request
        self._body = body
        self._is_over = False

    def start(self) -> None:
        """Find the device."""
        self._devices.act_for(self._gateway, self._request.route.made.device, self._found)

    def cancel(self) -> None:
        """Do nothing more: the client is gone."""
        self._is_over = True

    def _found(self, device: Device | DeviceError) -> None:
        if self._is_over:
            return
        self._is_over = True
        connection = self._connection
        if isinstance(device, DeviceError):
            connection.finish_with(_http_error(device))
            return
        try:
            connection.begin(self._operation(device))
        except HttpError as error:
            connection.finish_with(error)
        except RemoteError as error:
            connection.finish_with(_http_error(error))

    def _operation(self, device: Device) -> Any:
        connection, request, body = self._connection, self._request, self._body
        path: _Path = request.route.made
        asked = {**request.headers, **request.route.query}
        content_type = request.headers.get("content-type", "")
        now_ms = self._devices.now_ms()
        if path.kind == COMMAND:
            status = _status_of(asked)
            to, correlation_id = self._devices.request_ids.read(device.tenant, device.id, path.name)
            payload = response_of(device, status, content_type, body, to, correlation_id, now_ms)
            return _Sending(connection, connection.sender(to), payload)
        if path.kind == INQUIRY:
            return _Inquiring(connection, device, path.name, request, body)
        check_payload(content_type, body)
        quality = asked.get("qos-level", "1" if path.kind == EVENT else "0")
        if quality not in ("0", "1"):
            raise DeviceError(400, f"qos-level is 0 or 1, not {quality!r:.40}")
        ttd_s = seconds_of(asked, "hono-ttd")
        if ttd_s is not None and ttd_s < 0:
            raise DeviceError(400, f"hono-ttd is a number of seconds, not {ttd_s}")
        sent = Sent(
            kind=path.kind,
            device=device,
            adapter=HTTP,
            orig_address=request.path,
            gateway=self._gateway.id if device.id != self._gateway.id else "",
            content_type=content_type,
            ttl_s=seconds_of(asked, "hono-ttl"),
            ttd_s=None if ttd_s is None else min(ttd_s, MAX_TTD_S),
            is_once=path.kind == EVENT or quality == "1",
        )
        space = connection.open_space
        if space.takes_query_properties:
            query = request.route.query
            sent.properties.update(item for item in query.items() if not item[0].startswith(_OWN_PARAMETERS))
        address = space.find(sent.address)
        payload = Downstream(sent, is_partitioned=address.is_read_by_offset).message(body, now_ms)
        sender = connection.sender(sent.address)
        if sent.ttd_s:
            return WaitingDevice(connection, sender, payload, self._devices, device, sent)
        return _Sending(connection, sender, payload, is_settled=not sent.is_once)


class _Sending:
    """A request that brings one message."""

    def __init__(
        self, connection: HttpConnection, sender: Sender, payload: bytes, *, is_settled: bool = False
    ) -> None:
        sender.check(len(payload))
        self._connection = connection
        self._sender = sender
        self._payload = payload
        self._is_settled = is_settled
        self._post: Post | None = None
        """The message, until it is done or given up: it knows this request."""

    def start(self) -> None:
        """Send the message."""
        self._post = post = Post(self._payload, WAIT_S, self._done, is_settled=self._is_settled)
        self._sender.send(post)

    def cancel(self) -> None:
        """Leave the message unsent, if it is: the client is gone."""
        post, self._post = self._post, None
        if post is not None:
            post.is_given_up = True
        self._sender.forget_given_up()

    def _done(self, error: HttpError | None) -> None:
        self._post = None
        if error is None:
            self._accepted()
        else:
            self._failed(error)

    def _accepted(self) -> None:
        self._connection.finish(_ACCEPTED)

    def _failed(self, error: HttpError) -> None:
        # Hono's adapters say so of everything that nobody has taken.
        status = {429: 503, 422: 400}.get(error.status, error.status)
        self._connection.finish_with(HttpError(status, error.detail, error.condition, error.headers, **error.more))


class WaitingDevice(_Sending):
    """A request that brings one message, and then waits for a command.

    Args:
        connection: the device's.
        sender: takes the message.
        payload: the message.
        devices: the devices of the node.
        device: for which a command is waited.
        sent: the facts of the message.
    """

    def __init__(
        self,
        connection: HttpConnection,
        sender: Sender,
        payload: bytes,
        devices: Devices,
        device: Device,
        sent: Sent,
    ) -> None:
        super().__init__(connection, sender, payload, is_settled=not sent.is_once)
        self._devices = devices
        self._device = device
        self._ttd_s = sent.ttd_s or 0
        self._end: Callable[[], None] | None = None
        self._command: tuple[Command, Callable[[Any], None]] | None = None
        self._is_accepted = False

    def start(self) -> None:
        """Listen, as an application answers at once, and send the message."""
        connected = self._connection.admission.device
        assert connected is not None

        def gateway() -> Device:
            # The request is short: which device is connected does not change.
            return self._connection.admission.device or connected

        commands = self._devices.commands
        if self._device.id == connected.id:
            self._end = commands.listen_as(connected, self)
        else:
            self._end = commands.listen(self._device, self, gateway)
        super().start()

    def offer(self, command: Command, done: Callable[[Any], None]) -> bool:
        """Take a command, if there is none yet."""
        if self._end is None or self._command is not None:
            return False
        self._command = command, done
        if self._is_accepted:
            self._answer()
        return True

    def wait_no_longer(self) -> None:
        """Take no command that has not come yet: the client says nothing more, and may be gone."""
        self._ttd_s = 0
        if self._is_accepted:
            self._late()

    def cancel(self) -> None:
        """Take no command: the client is gone."""
        self._leave()
        if self._command is not None:
            self._command[1](RELEASED)
            self._command = None
        super().cancel()

    def refuse(self, error: DeviceError) -> None:
        """Take no command, and answer with the reason: the gateway may not act for the device any more."""
        self._leave()
        if self._command is None:
            self._connection.finish_with(_http_error(error))

    def _leave(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def _failed(self, error: HttpError) -> None:
        self._leave()
        if self._command is not None:
            self._command[1](RELEASED)
            self._command = None
        super()._failed(error)

    def _accepted(self) -> None:
        self._is_accepted = True
        if self._command is not None:
            self._answer()
            return

        # Most have their command, or are gone, long before.
        late = WeakMethod(self._late)

        def over() -> None:
            call = late()
            if call is not None:
                call()

        self._connection.open_space.core.call_later(self._ttd_s, over)

    def _late(self) -> None:
        if self._end is not None:
            self._leave()
            self._connection.finish(_ACCEPTED)

    def _answer(self) -> None:
        assert self._command is not None
        command, done = self._command
        self._leave()
        headers: Headers = (("hono-command", command.name),)
        if not command.is_one_way:
            headers += (("hono-cmd-req-id", command.request_id),)
        acting = self._connection.admission.device
        if acting is not None and acting.id != command.device:
            headers += (("hono-cmd-target-device", command.device),)
        self._connection.finish(head(200, command.content_type or OCTETS, headers), command.payload)
        done(ACCEPTED)


class _Inquiring(Asking):
    """A request of a device that a service answers."""

    __slots__ = ("_device", "_name")

    def __init__(self, connection: HttpConnection, device: Device, name: str, request: Request, body: bytes) -> None:
        self._device = device
        self._name = name
        super().__init__(connection, device.tenant.address(INQUIRY), ANSWER_S, request, body)

    def _question(self, reply_to: str) -> bytes:
        return inquiry_of(self._device, self._name, self._headers.get("content-type", ""), self._body, reply_to)

    def _finish(self, sections: Sections, kind: str, headers: Headers, body: bytes) -> None:
        status = sections.application_properties.get("status")
        found = int(status) if isinstance(status, int) and 200 <= status < 600 else 200
        self._connection.finish(head(found, kind), body)


def _status_of(asked: Mapping[str, str]) -> int:
    text = asked.get("hono-cmd-status", "")
    status = int(text) if text.isascii() and text.isdigit() and len(text) == 3 else 0
    if not 200 <= status < 600:
        raise DeviceError(400, f"hono-cmd-status is a number from 200 to 599, not {text!r:.20}")
    return status
