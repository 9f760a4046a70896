"""SCRAM: a proof that both sides know a password, which itself is never sent [RFC 5802, RFC 7677].

Here are the formulas and the grammar that both sides share, and the client's side. Nothing is bound to a
TLS channel: of the mechanisms whose names end in ``-PLUS`` there is none.

SASLprep makes names and passwords that look the same equal before they are compared or hashed [RFC 4013].
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from unicodedata import ucd_3_2_0

from enmasse.errors import RemoteError

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Bring a name or password into the form in which it is compared and hashed.

    Characters that Unicode 3.2 did not know pass as they are, as in every query [RFC 3454 7].

    Raises:
        RemoteError: it contains what no name or password may contain; the text itself is not shown.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for letter in prepared:
        if any(is_prohibited(letter) for is_prohibited in _PROHIBITED):
            why = ": it ends in a newline, as `echo` writes one and `printf %s` does not"
            raise RemoteError(
                "amqp:unauthorized-access",
                f"a name or password contains the prohibited character U+{ord(letter):04X}"
                + (why if text.endswith(("\n", "\r")) else ""),
            )
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise RemoteError(
            "amqp:unauthorized-access", "a name or password mixes directions of writing in a way that is ambiguous"
        )
    return prepared


HASHES = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
"""Mechanism to hash function, the best first."""

MIN_ITERATIONS = 4_096
"""Fewer make a stolen key too easy to guess from [RFC 7677 4]."""

MAX_ITERATIONS = 1_000_000
"""More would let the other side keep us busy for longer than anybody waits."""

NO_BINDING = b"n,,"
"""The client's word that it binds to no channel, and wants to be nobody but itself [RFC 5801 4]."""

MAX_SALT_BYTES = 1_024


def h(name: str, data: bytes) -> bytes:
    """H(data)."""
    return hashlib.new(name, data).digest()


def sign(name: str, key: bytes, data: bytes) -> bytes:
    """HMAC(key, data)."""
    return hmac.digest(key, data, name)


def salted_password(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(Normalize(password), salt, i): slow on purpose, in proportion to the iterations.

    Raises:
        RemoteError: the password contains what no password may contain.
    """
    return hashlib.pbkdf2_hmac(name, saslprep(password).encode(), salt, iterations)


def client_key(name: str, salted: bytes) -> bytes:
    """Return the key that the client proves to know; the server keeps only its hash."""
    return sign(name, salted, b"Client Key")


def server_key(name: str, salted: bytes) -> bytes:
    """Return the key that the server proves to know."""
    return sign(name, salted, b"Server Key")


def proof_of(key: bytes, signature: bytes) -> bytes:
    """A key hidden by a signature, or brought out again by the same."""
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def to_base64(data: bytes) -> bytes:
    """Data as an attribute's value."""
    return b64encode(data)


def from_base64(text: bytes | str) -> bytes:
    """Data of an attribute's value.

    Raises:
        RemoteError: it is no base64.
    """
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise RemoteError("amqp:unauthorized-access", "a SCRAM message holds a value that is no base64") from None


def quoted(name: str) -> bytes:
    """A user's name as an attribute's value."""
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def unquoted(value: bytes) -> str:
    """A user's name of an attribute's value.

    Raises:
        RemoteError: it is malformed.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise RemoteError("amqp:unauthorized-access", "a SCRAM message holds a name that is no UTF-8") from None
    parts = text.split("=")
    if any(not part.startswith(("2C", "3D")) for part in parts[1:]):
        raise RemoteError("amqp:unauthorized-access", "a SCRAM message holds a name with a bare '='")
    return parts[0] + "".join(("," if part[0] == "2" else "=") + part[2:] for part in parts[1:])


def attributes_of(message: bytes, *wanted: bytes) -> list[bytes]:
    """The values of a message's first attributes, in the order that is laid down; further ones are ignored.

    Raises:
        RemoteError: the message does not begin with these attributes.
    """
    parts = message.split(b",")
    if len(parts) < len(wanted) or any(part[:2] != name + b"=" for part, name in zip(parts, wanted, strict=False)):
        names = b", ".join(wanted).decode()
        raise RemoteError("amqp:unauthorized-access", f"a SCRAM message does not begin with its attributes {names}")
    return [part[2:] for part, _ in zip(parts, wanted, strict=False)]


class Scram:
    """The client's side of one exchange.

    Args:
        mechanism: one of ``HASHES``.
        user: the user who wants to come in.
        password: its password.
        new_nonce: gives a fresh unguessable word, such as ``secrets.token_urlsafe``.
    """

    def __init__(self, mechanism: str, user: str, password: str, new_nonce: Callable[[], str]) -> None:
        self.name = mechanism
        self._hash = HASHES[mechanism]
        self._user = user
        self._password = password
        self._new_nonce = new_nonce
        self._first = b""
        self._nonce = b""
        self._expected: bytes | None = None
        self._is_verified = False

    def response(self) -> bytes:
        """The client-first-message."""
        self._nonce = self._new_nonce().encode()
        self._first = b"n=" + quoted(saslprep(self._user)) + b",r=" + self._nonce
        self._expected = None
        self._is_verified = False
        return NO_BINDING + self._first

    def answer(self, challenge: bytes) -> bytes:
        """The client-final-message to a server-first-message, and nothing to a server-final-message.

        Raises:
            RemoteError: the server breaks the rules, or does not know the password.
        """
        if self._expected is None:
            return self._prove(challenge)
        self._verify(challenge)
        return b""

    def _prove(self, challenge: bytes) -> bytes:
        nonce, salt_text, count = attributes_of(challenge, b"r", b"s", b"i")
        salt = from_base64(salt_text)
        iterations = int(count) if count.isdigit() and len(count) < 10 else 0
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise RemoteError("amqp:unauthorized-access", "the server's SCRAM nonce does not continue ours")
        if not 1 <= len(salt) <= MAX_SALT_BYTES:
            raise RemoteError("amqp:unauthorized-access", f"the server's SCRAM salt has {len(salt)} bytes")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise RemoteError(
                "amqp:unauthorized-access",
                f"the server asks for {count[:20].decode('ascii', 'replace')} SCRAM iterations; {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS} are safe",
            )
        name = self._hash
        salted = salted_password(name, self._password, salt, iterations)
        final = b"c=" + to_base64(NO_BINDING) + b",r=" + nonce
        whole = self._first + b"," + challenge + b"," + final
        key = client_key(name, salted)
        self._expected = sign(name, server_key(name, salted), whole)
        return final + b",p=" + to_base64(proof_of(key, sign(name, h(name, key), whole)))

    def _verify(self, message: bytes) -> None:
        (signature,) = attributes_of(message, b"v")
        if self._expected is None or not hmac.compare_digest(from_base64(signature), self._expected):
            raise RemoteError("amqp:unauthorized-access", "the server has not proved that it knows the password")
        self._is_verified = True

    def finish(self, additional_data: bytes | None) -> None:
        """The server has let us in: see that it has proved itself, now or before.

        Raises:
            RemoteError: it has not.
        """
        if not self._is_verified:
            self._verify(additional_data or b"")
