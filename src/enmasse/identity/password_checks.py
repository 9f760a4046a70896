"""Checks of passwords against what is stored of them, and their form between a node and the process that does them.

A check of a password is slow on purpose, so a node has it done beside its own thread. It goes there as a frame: its
length, its kind, a number, and what the kind needs. The answer is of one size: what became of it, and the number.
A further kind of stored password is a value of ``CheckKind`` and a class like ``ScramCheck``.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

import bcrypt

from enmasse.wire.sasl.scram import client_key, h, saslprep

_HEAD = struct.Struct("<IBQ")
"""Bytes that follow the length itself, kind, number."""

_LENGTH_BYTES = 4
_ANSWER = struct.Struct("<BQ")
_SCRAM = struct.Struct("<IIII")
"""Iterations, bytes of the hash function's name, of the key and of the salt; the stored key is the rest."""


class CheckKind(IntEnum):
    """The kinds of secrets that a password is compared with."""

    SCRAM = 1
    """Stored keys of SCRAM."""
    DIGEST = 2
    """A salted hash, or one of bcrypt, as registries of devices have them."""


class CheckResult(IntEnum):
    """The outcomes of a check; ``READY`` is the first answer of the process itself."""

    WRONG = 0
    RIGHT = 1
    FAILED = 2
    """It could not be done."""
    READY = 3
    """The process has started; the number is that of its threads."""


class PasswordCheck(Protocol):
    """A password and what it is to be compared with."""

    @property
    def kind(self) -> CheckKind:
        """The kind of what is stored."""

    def is_right(self) -> bool:
        """Return whether the password is the stored one; slow on purpose."""

    def encode(self) -> bytes:
        """Return the check without its number and kind."""


class ScramCheck(NamedTuple):
    """A password beside stored keys of SCRAM [RFC 5802 3].

    Attributes:
        name: the hash function.
        key: the password as the key of an HMAC.
        salt: the salt of the stored keys.
        iterations: the iterations of the stored keys.
        stored: the hash of the client's key.
    """

    name: str
    key: bytes
    salt: bytes
    iterations: int
    stored: bytes

    @property
    def kind(self) -> CheckKind:
        """The kind of what is stored."""
        return CheckKind.SCRAM

    def is_right(self) -> bool:
        """Return whether the password is the stored one; others may run meanwhile."""
        salted = hashlib.pbkdf2_hmac(self.name, self.key, self.salt, self.iterations)
        return hmac.compare_digest(h(self.name, client_key(self.name, salted)), self.stored)

    def encode(self) -> bytes:
        """Return the check without its number and kind."""
        name = self.name.encode()
        sizes = _SCRAM.pack(self.iterations, len(name), len(self.key), len(self.salt))
        return b"".join((sizes, name, self.key, self.salt, self.stored))

    @classmethod
    def decode(cls, data: bytes) -> ScramCheck:
        """Read what ``encode`` has written."""
        iterations, *sizes = _SCRAM.unpack_from(data)
        at = _SCRAM.size
        parts = []
        for size in sizes:
            parts.append(data[at : at + size])
            at += size
        name, key, salt = parts
        return cls(name.decode(), key, salt, iterations, data[at:])


def scram_check(name: str, password: str, salt: bytes, iterations: int, stored: bytes) -> ScramCheck:
    """Return the check of a password, which is of bounded size however long the password is.

    Raises:
        RemoteError: the password contains a forbidden character.
    """
    key = saslprep(password).encode()
    if len(key) > hashlib.new(name).block_size:
        # HMAC itself takes the hash of a key that is longer than its block [RFC 2104 2].
        key = h(name, key)
    return ScramCheck(name, key, salt, iterations, stored)


class DigestCheck(NamedTuple):
    """A password beside its hash, as Hono's registries of devices store it.

    Attributes:
        function: ``bcrypt``, ``sha-256`` or ``sha-512``; the latter hash the salt, and the password behind it.
        password: in UTF-8.
        salt: the salt of the hash; that of bcrypt has its own.
        stored: the hash; of bcrypt in its written form.
    """

    function: str
    password: bytes
    salt: bytes
    stored: bytes

    @property
    def kind(self) -> CheckKind:
        """The kind of what is stored."""
        return CheckKind.DIGEST

    def is_right(self) -> bool:
        """Return whether the password is the stored one; others may run meanwhile."""
        if self.function == "bcrypt":
            return bcrypt.checkpw(self.password, self.stored)
        found = hashlib.new(self.function.replace("-", ""), self.salt + self.password).digest()
        return hmac.compare_digest(found, self.stored)

    def encode(self) -> bytes:
        """Return the check without its number and kind."""
        name = self.function.encode()
        sizes = _SCRAM.pack(0, len(name), len(self.password), len(self.salt))
        return b"".join((sizes, name, self.password, self.salt, self.stored))

    @classmethod
    def decode(cls, data: bytes) -> DigestCheck:
        """Read what ``encode`` has written."""
        found = ScramCheck.decode(data)
        return cls(found.name, found.key, found.salt, found.stored)


_KINDS: dict[int, Callable[[bytes], PasswordCheck]] = {
    CheckKind.SCRAM: ScramCheck.decode,
    CheckKind.DIGEST: DigestCheck.decode,
}


def encode_check(number: int, check: PasswordCheck) -> bytes:
    """Return a check as a frame."""
    body = check.encode()
    return _HEAD.pack(_HEAD.size - _LENGTH_BYTES + len(body), check.kind, number) + body


def split_checks(data: bytes) -> tuple[list[tuple[int, PasswordCheck | None]], bytes]:
    """Cut complete checks, with their numbers, off the front of what was received; also return the rest.

    A check of a kind that is not known here is None.
    """
    checks: list[tuple[int, PasswordCheck | None]] = []
    at, end = 0, len(data)
    while end - at >= _HEAD.size:
        size, kind, number = _HEAD.unpack_from(data, at)
        stop = at + _LENGTH_BYTES + size
        if stop > end:
            break
        decode = _KINDS.get(kind)
        checks.append((number, None if decode is None else decode(data[at + _HEAD.size : stop])))
        at = stop
    return checks, data[at:]


def encode_answer(result: CheckResult, number: int) -> bytes:
    """Return what is said of a check."""
    return _ANSWER.pack(result, number)


def split_answers(data: bytes) -> tuple[list[tuple[CheckResult, int]], bytes]:
    """Cut complete answers, with the numbers of their checks, off the front of what was received, and the rest."""
    whole = len(data) - len(data) % _ANSWER.size
    answers = [(CheckResult(result), number) for result, number in _ANSWER.iter_unpack(data[:whole])]
    return answers, data[whole:]
