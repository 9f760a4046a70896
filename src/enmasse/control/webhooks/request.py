"""The request that a message becomes, and what its answer means. Pure.

Rules:
1. The body is the message's: bytes and text as they are, anything else as JSON.
2. Requests are signed as Standard Webhooks says: HMAC-SHA256 over id, time and body, in base64, behind ``v1,``.
3. 2xx accepts a message. 408, 425, 429 and 5xx, no answer, and answers that lead elsewhere (3xx) are tried again.
   All others, such as 410, reject it: the same request would be answered in the same way.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.client import Message

Verdict = Literal["accepted", "rejected", "again"]

AGENT: Final = "enmasse-webhook"
PREFIX: Final = "whsec_"
"""The start of keys of Standard Webhooks; base64 follows."""
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64
"""Bytes of a key, as Standard Webhooks has it."""

_AGAIN: Final = frozenset((408, 425, 429))
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_MAX_VALUE = 1_000


def body_of(message: Message) -> tuple[bytes, str]:
    """Return the body of the request for a message, and its content type."""
    body = message.body
    if body is None:
        return b"", message.content_type or "application/octet-stream"
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), message.content_type or "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), message.content_type or "text/plain; charset=utf-8"
    return json.dumps(body, default=str, ensure_ascii=False).encode(), "application/json"


def headers_of(message: Message, address: str) -> dict[str, str]:
    """Return the headers that say of a message what HTTP's clients of a node say: ``X-Subject`` and so on."""
    said: dict[str, Any] = {
        "X-Address": address,
        "X-Subject": message.subject,
        "X-To": message.to,
        "X-Reply-To": message.reply_to,
        "X-Correlation-Id": message.correlation_id,
        "X-Group-Id": message.group_id,
        "Content-Encoding": message.content_encoding,
        "X-Delivery-Count": message.delivery_count,
    }
    said |= {f"X-Property-{name}": value for name, value in message.properties.items() if _NAME.fullmatch(str(name))}
    return {
        name: as_header(value)
        for name, value in said.items()
        if isinstance(value, str | int | float | bool) and len(str(value)) <= _MAX_VALUE
    }


def as_header(value: object) -> str:
    """Return a value as headers can have it: what is not printable ASCII in percent encoding, as UTF-8."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _UNPRINTABLE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def key_of(secret: bytes) -> bytes:
    """Return the key in a secret: as it is, or behind ``whsec_`` in base64."""
    text = secret.strip()
    if text.startswith(PREFIX.encode()):
        try:
            return b64decode(text[len(PREFIX) :], validate=True)
        except Base64Error:
            pass
    return text


def key_problem(secret: bytes) -> str:
    """Return what is wrong with a secret as a key of Standard Webhooks, as a part of a sentence; empty: nothing.

    An empty key is none: whoever knows that can sign.
    """
    key, is_encoded = key_of(secret), secret.strip().startswith(PREFIX.encode())
    if is_encoded and key == secret.strip():
        return f"what follows {PREFIX} is no base64"
    if MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        return ""
    return f"the key has {len(key)} bytes; expected {MIN_KEY_BYTES} to {MAX_KEY_BYTES}, such as 32 of chance"


def signature(key: bytes, identity: str, at_s: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``."""
    signed = hmac.new(key, f"{identity}.{at_s}.".encode() + body, hashlib.sha256)
    return f"v1,{b64encode(signed.digest()).decode()}"


def signed_headers(key: bytes | None, identity: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that every request has, with a signature if there is a key."""
    found = {"webhook-id": identity, "webhook-timestamp": str(at_s), "User-Agent": AGENT}
    return found if key is None else found | {"webhook-signature": signature(key, identity, at_s, body)}


def verdict_of(status: int) -> Verdict:
    """Return what the status of an answer means for the message."""
    if 200 <= status < 300:
        return "accepted"
    if status in _AGAIN or status >= 500 or 300 <= status < 400:
        return "again"
    return "rejected"


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that an answer asks to wait; 0 where it says none."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def backoff_s(failures: int, delay_s: float, max_delay_s: float, asked_s: float = 0.0) -> float:
    """Return how long to wait after so many failures, the last of them included."""
    grown = delay_s * float(2 ** min(failures - 1, 30))
    return max(min(grown, max_delay_s), min(asked_s, max_delay_s))
