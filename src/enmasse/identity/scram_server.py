"""The server's side of SCRAM [RFC 5802 5, RFC 7677].

Rules:
1. An unknown user gets the same challenges as a known one, and fails at the same step.
2. Proofs are compared in constant time.
"""

from __future__ import annotations

import hmac
import string
from collections.abc import Callable

from enmasse.errors import RemoteError
from enmasse.identity.users import ScramKeys
from enmasse.wire.sasl.mechanisms import Admitted, Verdict
from enmasse.wire.sasl.scram import (
    HASHES,
    attributes_of,
    from_base64,
    h,
    proof_of,
    saslprep,
    sign,
    to_base64,
    unquoted,
)

MAX_NONCE_BYTES = 512
MAX_NAME_BYTES = 1_024

_NONCE_BYTES = frozenset(string.printable.encode()) - frozenset(string.whitespace.encode()) - {ord(",")}


class ClientFirst:
    """The client-first-message: the name of the user, and the client's half of the nonce."""

    __slots__ = ("bare", "header", "nonce", "user")

    def __init__(self, header: bytes, bare: bytes, user: str, nonce: bytes) -> None:
        self.header = header
        self.bare = bare
        self.user = user
        self.nonce = nonce


def read_client_first(message: bytes) -> ClientFirst:
    """Read a client-first-message.

    Raises:
        RemoteError: it is malformed, asks for channel binding, or names another user to act as.
    """
    flag, _, rest = message.partition(b",")
    authzid, comma, bare = rest.partition(b",")
    if flag not in (b"n", b"y") or not comma:
        raise RemoteError("amqp:unauthorized-access", "a SCRAM message asks for channel binding, or has no header")
    name, nonce = attributes_of(bare, b"n", b"r")
    if not 1 <= len(nonce) <= MAX_NONCE_BYTES or not _NONCE_BYTES.issuperset(nonce):
        raise RemoteError("amqp:unauthorized-access", "a SCRAM nonce is too long, or has forbidden characters")
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        raise RemoteError("amqp:unauthorized-access", "a SCRAM message names no user")
    user = saslprep(unquoted(name))
    if authzid and (not authzid.startswith(b"a=") or saslprep(unquoted(authzid[2:])) != user):
        raise RemoteError("amqp:unauthorized-access", "acting as another user is not supported")
    return ClientFirst(flag + b"," + authzid + b",", bare, user, nonce)


class Proof:
    """The challenge that asks for the client's proof.

    Args:
        mechanism: of ``HASHES``.
        first: the client-first-message.
        keys: to check the proof with.
        nonce: a fresh random text.
        decide: called with whether the proof is right; returns the result.
    """

    __slots__ = ("_client_first", "_decide", "_hash", "_keys", "_nonce", "challenge")

    def __init__(
        self, mechanism: str, first: ClientFirst, keys: ScramKeys, nonce: str, decide: Callable[[bool], bool]
    ) -> None:
        self._hash = HASHES[mechanism]
        self._client_first = first
        self._keys = keys
        self._nonce = first.nonce + nonce.encode()
        self._decide = decide
        self.challenge = b"r=%b,s=%b,i=%d" % (self._nonce, to_base64(keys.salt), keys.iterations)

    def answer(self, response: bytes) -> Verdict:
        """Check a client-final-message."""
        without_proof, _, proof_text = response.rpartition(b",p=")
        binding, nonce = attributes_of(without_proof, b"c", b"r")
        proof = from_base64(proof_text)
        name = self._hash
        whole = b",".join((self._client_first.bare, self.challenge, without_proof))
        signature = sign(name, self._keys.stored, whole)
        is_sound = from_base64(binding) == self._client_first.header and nonce == self._nonce
        if len(proof) != len(signature):
            proof, is_sound = signature, False
        is_proved = hmac.compare_digest(h(name, proof_of(proof, signature)), self._keys.stored)
        if not self._decide(is_sound and is_proved):
            return False
        # As the client has nothing to answer to this, it comes with the outcome, not as one more challenge.
        return Admitted(b"v=" + to_base64(sign(name, self._keys.server, whole)))
