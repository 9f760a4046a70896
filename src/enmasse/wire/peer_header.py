"""Reads and writes the header by which a node hands a client's connection over to the home of the client's space.

After it come the client's bytes from its login on. The home answers it with one byte (``Answer``), then with its own.

Rules:
1. A header is ``SIGNATURE``, ``VERSION``, a length, and so many bytes: its *fields* in their order, some of which are
   made of fields themselves. What has fields begins with their number and the length of each: this is read in a
   third of the time that extensions of the PROXY protocol take, and each connection has a header.
2. It is whole, or an error, within ``MAX_BYTES``.
3. It is strict, as both ends are of one version: a field more or less is an error.
4. What it asserts holds by the secret in it, which is for whoever reads it to compare.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from enmasse.wire.proxy_header import BalancerTls, ProxyHeader, ProxyHeaderError

SIGNATURE: Final = b"\0EnMasse"
"""No protocol begins so."""

VERSION: Final = 2
"""Nodes of one installation speak one version: they are started together."""

_BEGIN: Final = SIGNATURE + bytes((VERSION,))
_FIXED: Final = len(_BEGIN) + 2

MAX_BYTES: Final = _FIXED + 0xFFFF
"""The longest header: the most that its length can say. Chains of certificates take some KiB."""

_IN_WEBSOCKET, _HERE = 1, 2

_FACTS = struct.Struct("!QB")
"""The generation of the space's home, and flags."""
_COUNT = struct.Struct("!H")
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
    client, final, user, device = header.client, header.final_data, header.user, header.device
    flags = (_IN_WEBSOCKET if header.is_in_websocket else 0) | (_HERE if header.is_here else 0)
    fields = _join(
        (
            _FACTS.pack(header.generation, flags),
            header.secret,
            header.installation.encode(),
            header.front.encode(),
            header.space.encode(),
            header.protocol.encode(),
            header.container.encode(),
            header.mechanism.encode(),
            _write_place(client.source),
            _write_place(client.destination),
            b"" if client.tls is None else _write_tls(client.tls),
            _write_word(client.authority),
            _write_texts(header.names),
            _join(header.chain),
            b"" if final is None else _PRESENT + final,
            b"" if user is None else _write_user(user),
            b"" if device is None else _write_device(device),
        )
    )
    if len(fields) > 0xFFFF:
        raise ProxyHeaderError(f"it would have {len(fields)} bytes, and {0xFFFF} at most can be said")
    return _BEGIN + _COUNT.pack(len(fields)) + fields


_PRESENT: Final = b"\1"
"""Stands before what may be missing, and then has no byte."""


def _join(fields: Sequence[bytes]) -> bytes:
    try:
        return struct.pack(f"!{len(fields) + 1}H", len(fields), *map(len, fields)) + b"".join(fields)
    except struct.error:
        raise ProxyHeaderError(f"a part of it would have more than {0xFFFF} bytes") from None


def _write_word(word: str | None) -> bytes:
    return b"" if word is None else _PRESENT + word.encode()


def _write_texts(texts: Sequence[str]) -> bytes:
    return _join([text.encode() for text in texts])


def _write_time(time: float | None) -> bytes:
    return b"" if time is None else _TIME.pack(time)


def _write_place(place: tuple[str, int] | None) -> bytes:
    return b"" if place is None else _COUNT.pack(place[1]) + place[0].encode()


def _write_tls(tls: BalancerTls) -> bytes:
    return _join((bytes((tls.is_used,)), tls.version.encode(), tls.cipher.encode(), _write_word(tls.certified)))


def _write_user(user: PeerUser) -> bytes:
    token = b"" if user.token is None else _write_token(user.token)
    return _join((user.name.encode(), user.owner.encode(), user.credential, token))


def _write_token(token: PeerToken) -> bytes:
    return _join(
        (
            token.issuer.encode(),
            token.subject.encode(),
            _write_texts(token.groups),
            _write_texts(token.scopes),
            _write_time(token.ends_at),
            bytes((token.is_listed,)),
        )
    )


def _write_device(device: PeerDevice) -> bytes:
    texts = (device.tenant, device.device, device.kind, device.auth_id, device.authority)
    return _join((*(text.encode() for text in texts), device.material, _write_time(device.until)))


# Reading


def read_peer_header(data: bytes) -> tuple[PeerHeader, int] | None:
    """Return the header at the beginning of a connection, and its length; None if more bytes are needed.

    Raises:
        ProxyHeaderError: the connection does not begin with one.
    """
    if not data.startswith(_BEGIN):
        if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
            raise ProxyHeaderError("the connection does not begin with a header")
        if len(data) >= len(_BEGIN):
            raise ProxyHeaderError(f"it is of version {data[len(SIGNATURE)]}, and {VERSION} is spoken here")
        return None
    if len(data) < _FIXED:
        return None
    size = _FIXED + _COUNT.unpack_from(data, len(_BEGIN))[0]
    if len(data) < size:
        return None
    try:
        return _read_header(data[_FIXED:size]), size
    except UnicodeDecodeError:
        raise ProxyHeaderError("a text in it is not UTF-8") from None


def _read_header(data: bytes) -> PeerHeader:
    (
        facts, secret, installation, front, space, protocol, container, mechanism, source, destination, tls,
        authority, names, chain, final, user, device,
    ) = _split(data, 17)  # fmt: skip
    if len(facts) != _FACTS.size:
        raise ProxyHeaderError("its generation and flags have nine bytes")
    generation, flags = _FACTS.unpack(facts)
    if flags & ~(_IN_WEBSOCKET | _HERE):
        raise ProxyHeaderError("its flags are none that there are")
    client = ProxyHeader(
        True,
        _read_place(source),
        _read_place(destination),
        _read_tls(tls) if tls else None,
        _read_word(authority),
    )
    return PeerHeader(
        client,
        secret,
        installation.decode(),
        front.decode(),
        space.decode(),
        generation,
        protocol.decode(),
        bool(flags & _IN_WEBSOCKET),
        bool(flags & _HERE),
        container.decode(),
        mechanism.decode(),
        _read_texts(names),
        tuple(_split(chain)),
        _read_optional(final),
        _read_user(user) if user else None,
        _read_device(device) if device else None,
    )


def _split(data: bytes, expected: int | None = None) -> list[bytes]:
    """Return the fields that some bytes are made of, of which there are as many as expected."""
    try:
        (count,) = _COUNT.unpack_from(data)
        sizes = struct.unpack_from(f"!{count}H", data, _COUNT.size)
    except struct.error:
        raise ProxyHeaderError("a part of it goes beyond its end") from None
    if expected is not None and count != expected:
        raise ProxyHeaderError(f"a part of it has {count} fields, and {expected} are known")
    at = _COUNT.size + 2 * count
    if at + sum(sizes) != len(data):
        raise ProxyHeaderError("the fields of a part of it are not as long as it is")
    fields = []
    for size in sizes:
        fields.append(data[at : at + size])
        at += size
    return fields


def _read_optional(value: bytes) -> bytes | None:
    if value and not value.startswith(_PRESENT):
        raise ProxyHeaderError("what may be missing in it is there, or has no byte")
    return value[len(_PRESENT) :] if value else None


def _read_word(value: bytes) -> str | None:
    found = _read_optional(value)
    return None if found is None else found.decode()


def _read_texts(value: bytes) -> tuple[str, ...]:
    return tuple([text.decode() for text in _split(value)])


def _read_time(value: bytes) -> float | None:
    if not value:
        return None
    found = float(_TIME.unpack(value)[0]) if len(value) == _TIME.size else math.nan
    if not math.isfinite(found):
        raise ProxyHeaderError("a time in it is none")
    return found


def _read_truth(value: bytes) -> bool:
    if value not in (b"\0", b"\1"):
        raise ProxyHeaderError("what is true or false in it is neither")
    return value == b"\1"


def _read_place(value: bytes) -> tuple[str, int] | None:
    if not value:
        return None
    if len(value) < _COUNT.size:
        raise ProxyHeaderError("an address in it has no port")
    return value[_COUNT.size :].decode(), _COUNT.unpack_from(value)[0]


def _read_tls(value: bytes) -> BalancerTls:
    is_used, version, cipher, certified = _split(value, 4)
    return BalancerTls(_read_truth(is_used), version.decode(), cipher.decode(), _read_word(certified))


def _read_user(value: bytes) -> PeerUser:
    name, owner, credential, token = _split(value, 4)
    return PeerUser(name.decode(), owner.decode(), credential, _read_token(token) if token else None)


def _read_token(value: bytes) -> PeerToken:
    issuer, subject, groups, scopes, ends_at, is_listed = _split(value, 6)
    return PeerToken(
        issuer.decode(),
        subject.decode(),
        _read_texts(groups),
        _read_texts(scopes),
        _read_time(ends_at),
        _read_truth(is_listed),
    )


def _read_device(value: bytes) -> PeerDevice:
    *texts, material, until = _split(value, 7)
    tenant, device, kind, auth_id, authority = [text.decode() for text in texts]
    return PeerDevice(tenant, device, kind, auth_id, material, _read_time(until), authority)
