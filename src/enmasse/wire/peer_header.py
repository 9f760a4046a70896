"""Reads and writes the header by which a node hands a client's connection over to the home of the client's space.

It is one of the PROXY protocol's second version (``proxy_header``), with extensions of our own from 0xE0 on. After it
come the client's bytes from its login on. The home answers it with one byte (``Answer``), and then with its own.

Rules:
1. A header is whole, or an error, within ``MAX_BYTES``.
2. It is strict, as both ends are of one version: an extension of ours that is not known, is missing or comes twice is
   an error. What tells of the client's socket and TLS is that of the PROXY protocol.
3. What it asserts holds by the secret in it, which is for whoever reads it to compare.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from enmasse.wire.proxy_header import (
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    each_extension,
    extension,
    read_binary,
    write_binary,
)

VERSION: Final = 1
"""Nodes of one installation speak one version: they are started together."""

MAX_BYTES: Final = 16 + 0xFFFF
"""The longest header: the most that the PROXY protocol can say. Chains of certificates take some KiB."""

_VERSION, _SECRET, _INSTALLATION, _FRONT, _SPACE, _GENERATION, _PROTOCOL = range(0xE0, 0xE7)
_CONTAINER, _MECHANISM, _NAME, _CERTIFICATE, _FINAL, _USER, _DEVICE = range(0xE7, 0xEE)
_REQUIRED: Final = (_VERSION, _SECRET, _INSTALLATION, _FRONT, _SPACE, _GENERATION, _PROTOCOL, _CONTAINER, _MECHANISM)
_SEVERAL: Final = frozenset((_NAME, _CERTIFICATE))

_IN_WEBSOCKET, _HERE = 1, 2

_U_NAME, _U_OWNER, _U_CREDENTIAL, _U_ISSUER, _U_SUBJECT, _U_GROUP, _U_SCOPE, _U_ENDS, _U_LISTED = range(1, 10)
_D_TENANT, _D_DEVICE, _D_KIND, _D_AUTH_ID, _D_MATERIAL, _D_UNTIL, _D_AUTHORITY = range(1, 8)

_NUMBER = struct.Struct("!Q")
_TIME = struct.Struct("!d")


class Answer(IntEnum):
    """A home's answer to a header."""

    TAKEN = 0
    """The connection is the home's now."""
    GENERATION = 1
    """The space is at home somewhere else by now, or not yet here."""
    IDENTITY = 2
    """The client may not come in: what it has proved does not hold here."""
    LATER = 3
    """Nothing can be said of the client now."""


class PeerToken(NamedTuple):
    """The identity of a user, as its provider states it; see ``identity.oidc.Identity``.

    Attributes:
        issuer: the provider.
        subject: the permanent id of the user there.
        groups: in the token.
        scopes: the scopes of the token.
        ends_at: the end of the token, in seconds since 1970 UTC; None: it was a password.
        is_listed: true if the rights are those of a user who is declared.
    """

    issuer: str
    subject: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    ends_at: float | None = None
    is_listed: bool = False


class PeerUser(NamedTuple):
    """The user that a client has logged in as.

    Attributes:
        name: its name in the space.
        owner: tells it from a former user of its name.
        credential: a digest of the keys by which its password was right; empty: it was no password of ours.
        token: its identity at a provider; None: it has none.
    """

    name: str
    owner: str
    credential: bytes = b""
    token: PeerToken | None = None


class PeerDevice(NamedTuple):
    """The device that a client has logged in as.

    Attributes:
        tenant: its tenant.
        device: its id.
        kind: the type of the credentials that were right.
        auth_id: their name.
        material: what the secret is known again by.
        until: the end of the proof, in seconds since 1970 UTC; None: it has none.
        authority: the public key of the tenant's authority that has vouched for it; empty: none was needed.
    """

    tenant: str
    device: str
    kind: str
    auth_id: str
    material: bytes
    until: float | None = None
    authority: str = ""


class PeerHeader(NamedTuple):
    """A header.

    Attributes:
        client: the client's end of its connection, its TLS, and the host that it has named for that.
        secret: proves that a node of this start of the installation has written it.
        installation: the id of the installation.
        front: the node that has taken the connection.
        space: ``<namespace>/<space>``.
        generation: of the space's home, as the front knows it.
        protocol: the protocol that the client speaks.
        is_in_websocket: true if WebSocket carries it; not to the home.
        is_here: true if the client is on the machine of the front.
        container: the client's name for itself.
        mechanism: by which it has logged in; empty: it has not.
        names: those in the client's certificate, if it was verified.
        chain: the certificates that the client has presented, in DER, its own first.
        final_data: the last message of the login to the client, which it has not been sent; None: there is none.
        user: the user that it has logged in as.
        device: the device, if it is none.
    """

    client: ProxyHeader
    secret: bytes
    installation: str
    front: str
    space: str
    generation: int
    protocol: str
    is_in_websocket: bool = False
    is_here: bool = False
    container: str = ""
    mechanism: str = ""
    names: tuple[str, ...] = ()
    chain: tuple[bytes, ...] = ()
    final_data: bytes | None = None
    user: PeerUser | None = None
    device: PeerDevice | None = None


# Writing


def write_peer_header(header: PeerHeader) -> bytes:
    """Return the bytes of a header.

    Raises:
        ProxyHeaderError: it would be longer than any may be, as with a thousand groups of long names.
    """
    flags = (_IN_WEBSOCKET if header.is_in_websocket else 0) | (_HERE if header.is_here else 0)
    parts = [
        extension(_VERSION, bytes((VERSION,))),
        extension(_SECRET, header.secret),
        extension(_INSTALLATION, header.installation.encode()),
        extension(_FRONT, header.front.encode()),
        extension(_SPACE, header.space.encode()),
        extension(_GENERATION, _NUMBER.pack(header.generation)),
        extension(_PROTOCOL, bytes((flags,)) + header.protocol.encode()),
        extension(_CONTAINER, header.container.encode()),
        extension(_MECHANISM, header.mechanism.encode()),
        *(extension(_NAME, name.encode()) for name in header.names),
        *(extension(_CERTIFICATE, certificate) for certificate in header.chain),
    ]
    if header.final_data is not None:
        parts.append(extension(_FINAL, header.final_data))
    if header.user is not None:
        parts.append(extension(_USER, _write_user(header.user)))
    if header.device is not None:
        parts.append(extension(_DEVICE, _write_device(header.device)))
    return write_binary(header.client, b"".join(parts))


def _write_user(user: PeerUser) -> bytes:
    parts = [(_U_NAME, user.name.encode()), (_U_OWNER, user.owner.encode()), (_U_CREDENTIAL, user.credential)]
    token = user.token
    if token is not None:
        parts += [(_U_ISSUER, token.issuer.encode()), (_U_SUBJECT, token.subject.encode())]
        parts += [(_U_GROUP, group.encode()) for group in token.groups]
        parts += [(_U_SCOPE, scope.encode()) for scope in token.scopes]
        parts.append((_U_LISTED, bytes((token.is_listed,))))
        if token.ends_at is not None:
            parts.append((_U_ENDS, _TIME.pack(token.ends_at)))
    return _join(parts)


def _write_device(device: PeerDevice) -> bytes:
    parts = [
        (_D_TENANT, device.tenant.encode()),
        (_D_DEVICE, device.device.encode()),
        (_D_KIND, device.kind.encode()),
        (_D_AUTH_ID, device.auth_id.encode()),
        (_D_MATERIAL, device.material),
        (_D_AUTHORITY, device.authority.encode()),
    ]
    if device.until is not None:
        parts.append((_D_UNTIL, _TIME.pack(device.until)))
    return _join(parts)


def _join(parts: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(extension(kind, value) for kind, value in parts)


# Reading


def read_peer_header(data: bytes) -> tuple[PeerHeader, int] | None:
    """Return the header at the beginning of a connection, and its length; None if more bytes are needed.

    Raises:
        ProxyHeaderError: the connection does not begin with one.
    """
    if not data.startswith(SIGNATURE[: len(data)]):
        raise ProxyHeaderError("the connection does not begin with a header")
    found = read_binary(data, MAX_BYTES)
    if found is None:
        return None
    client, size, at = found
    if not client.has_client:
        raise ProxyHeaderError("it is of no client")
    ours = _read(data[:size], at, range(_VERSION, 0xF0), _SEVERAL)
    if any(kind > _DEVICE for kind in ours):
        raise ProxyHeaderError("it has more extensions of ours than are known")
    missing = [f"0x{kind:02x}" for kind in _REQUIRED if kind not in ours]
    if missing:
        raise ProxyHeaderError(f"it lacks the extensions {', '.join(missing)}")
    (version,) = ours[_VERSION]
    if version != bytes((VERSION,)):
        raise ProxyHeaderError(f"it is of version {version.hex()}, and {VERSION} is spoken here")
    (said,) = ours[_PROTOCOL]
    protocol, flags = _text(said[1:]), said[:1]
    if len(flags) != 1 or flags[0] & ~(_IN_WEBSOCKET | _HERE):
        raise ProxyHeaderError("the flags of its protocol are none that there are")
    return (
        PeerHeader(
            client,
            ours[_SECRET][0],
            _text(*ours[_INSTALLATION]),
            _text(*ours[_FRONT]),
            _text(*ours[_SPACE]),
            _number(*ours[_GENERATION]),
            protocol,
            bool(flags[0] & _IN_WEBSOCKET),
            bool(flags[0] & _HERE),
            _text(*ours[_CONTAINER]),
            _text(*ours[_MECHANISM]),
            tuple(map(_text, ours.get(_NAME, ()))),
            tuple(ours.get(_CERTIFICATE, ())),
            ours[_FINAL][0] if _FINAL in ours else None,
            _read_user(*ours[_USER]) if _USER in ours else None,
            _read_device(*ours[_DEVICE]) if _DEVICE in ours else None,
        ),
        size,
    )


def _read(data: bytes, at: int, known: range, several: frozenset[int]) -> dict[int, list[bytes]]:
    """Return the values of the extensions from a place on, as far as they are of a range, by their kinds."""
    found: dict[int, list[bytes]] = {}
    for kind, begin, end in each_extension(data, at):
        if kind not in known:
            continue
        values = found.setdefault(kind, [])
        if values and kind not in several:
            raise ProxyHeaderError(f"extension 0x{kind:02x} comes twice")
        values.append(data[begin:end])
    return found


def _read_user(value: bytes) -> PeerUser:
    found = _read(value, 0, range(256), frozenset((_U_GROUP, _U_SCOPE)))
    _require(found, "user", {_U_NAME, _U_OWNER, _U_CREDENTIAL}, _U_LISTED)
    token = None
    if _U_ISSUER in found:
        _require(found, "token", {_U_SUBJECT, _U_LISTED}, _U_LISTED)
        token = PeerToken(
            _text(*found[_U_ISSUER]),
            _text(*found[_U_SUBJECT]),
            tuple(map(_text, found.get(_U_GROUP, ()))),
            tuple(map(_text, found.get(_U_SCOPE, ()))),
            _time(*found[_U_ENDS]) if _U_ENDS in found else None,
            found[_U_LISTED] == [b"\1"],
        )
    return PeerUser(_text(*found[_U_NAME]), _text(*found[_U_OWNER]), found[_U_CREDENTIAL][0], token)


def _read_device(value: bytes) -> PeerDevice:
    found = _read(value, 0, range(256), frozenset())
    _require(found, "device", {_D_TENANT, _D_DEVICE, _D_KIND, _D_AUTH_ID, _D_MATERIAL, _D_AUTHORITY}, _D_AUTHORITY)
    return PeerDevice(
        _text(*found[_D_TENANT]),
        _text(*found[_D_DEVICE]),
        _text(*found[_D_KIND]),
        _text(*found[_D_AUTH_ID]),
        found[_D_MATERIAL][0],
        _time(*found[_D_UNTIL]) if _D_UNTIL in found else None,
        _text(*found[_D_AUTHORITY]),
    )


def _require(found: Mapping[int, object], what: str, needed: set[int], last: int) -> None:
    """Require that a part has all that it needs, and nothing that is not known."""
    if not needed <= found.keys():
        raise ProxyHeaderError(f"what it says of the {what} lacks something")
    if any(kind > last or not kind for kind in found):
        raise ProxyHeaderError(f"what it says of the {what} has more than is known")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ProxyHeaderError("a text in it is not UTF-8") from None


def _number(value: bytes) -> int:
    if len(value) != _NUMBER.size:
        raise ProxyHeaderError("a number in it has eight bytes")
    return int(_NUMBER.unpack(value)[0])


def _time(value: bytes) -> float:
    found = float(_TIME.unpack(value)[0]) if len(value) == _TIME.size else math.nan
    if not math.isfinite(found):
        raise ProxyHeaderError("a time in it is none")
    return found
