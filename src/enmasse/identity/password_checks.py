"""Checks of passwords against what is stored of them, and their form between a node and the process that does them.

A check of a password is slow on purpose, so a node has it done beside its own thread. It goes there as a frame: its
length, its kind, a number, and what the kind needs. The answer is of one size: what became of it, and the number.
A further kind of stored password is a value of ``CheckKind`` and a class like ``ScramCheck``.

A process that several nodes share is told a secret first, and passes on what they report of logins: a frame of
``REPORT``, and an answer of that kind whose number is that of the bytes behind it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

import bcrypt

from enmasse.identity.throttle import LoginReport
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
    REPORT = 4
    """Another node's report of a login follows; the number is that of its bytes."""


SECRET: Final = 0
"""The kind of the first frame to a shared process: what shows that a node sends it."""

REPORT: Final = 255
"""The kind of a frame with a report of a login, for the other nodes."""


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
    return _frame(check.kind, number, check.encode())


def encode_secret(secret: bytes) -> bytes:
    """Return the first frame to a shared process."""
    return _frame(SECRET, 0, secret)


def encode_report(report: LoginReport) -> bytes:
    """Return a report as a frame."""
    return _frame(REPORT, 0, report.encode())


def _frame(kind: int, number: int, body: bytes) -> bytes:
    return _HEAD.pack(_HEAD.size - _LENGTH_BYTES + len(body), kind, number) + body


class Frame(NamedTuple):
    """A frame from a node.

    Attributes:
        kind: of ``CheckKind``, ``SECRET`` or ``REPORT``, or one that is not known here.
        number: the number of a check.
        body: the rest.
    """

    kind: int
    number: int
    body: bytes

    @property
    def check(self) -> PasswordCheck | None:
        """The check; None if the kind is not known here."""
        decode = _KINDS.get(self.kind)
        return None if decode is None else decode(self.body)


def split_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """Cut complete frames off the front of what was received; also return the rest."""
    frames: list[Frame] = []
    at, end = 0, len(data)
    while end - at >= _HEAD.size:
        size, kind, number = _HEAD.unpack_from(data, at)
        stop = at + _LENGTH_BYTES + size
        if stop > end:
            break
        frames.append(Frame(kind, number, data[at + _HEAD.size : stop]))
        at = stop
    return frames, data[at:]


def encode_answer(result: CheckResult, number: int) -> bytes:
    """Return what is said of a check."""
    return _ANSWER.pack(result, number)


def encode_passed_report(report: bytes) -> bytes:
    """Return a node's report as another node receives it."""
    return _ANSWER.pack(CheckResult.REPORT, len(report)) + report


Answer = tuple[CheckResult, int] | LoginReport


def split_answers(data: bytes) -> tuple[list[Answer], bytes]:
    """Cut complete answers off the front of what was received; also return the rest.

    An answer is a result with the number of its check, or what another node reports of a login.
    """
    answers: list[Answer] = []
    at, end = 0, len(data)
    while end - at >= _ANSWER.size:
        result, number = _ANSWER.unpack_from(data, at)
        if result == CheckResult.REPORT:
            stop = at + _ANSWER.size + number
            if stop > end:
                break
            answers.append(LoginReport.decode(data[at + _ANSWER.size : stop]))
            at = stop
        else:
            answers.append((CheckResult(result), number))
            at += _ANSWER.size
    return answers, data[at:]
