"""Writes the heads of answers, and the JSON bodies of errors [RFC 9457]."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

SECURITY = (
    b"X-Content-Type-Options: nosniff\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
    b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
    b"Referrer-Policy: no-referrer\r\n"
    b"Cache-Control: no-store\r\n"
)
"""Headers of every answer: no page of another origin can show, run or guess at it, and no cache keeps it."""

PROBLEM_TYPE = "application/problem+json"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpError(Exception):
    """Raised where a request is answered with an error.

    Args:
        status: the status of the answer.
        detail: a sentence that says what is wrong, what was expected, and what to do.
        condition: the condition of AMQP that says the same.
        headers: further headers of the answer.
        more: further members of the body.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        condition: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.condition = condition
        self.headers = headers
        self.more = more


def head(status: int, content_type: str = "", headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the head of an answer up to its length, which the connection adds.

    Header values with line ends, which would end the header, lose them.
    """
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode("ascii"), SECURITY]
    named = (("Content-Type", content_type), *headers) if content_type else headers
    for name, value in named:
        plain = value.replace("\r", " ").replace("\n", " ").replace("\0", " ")
        lines.append(f"{name}: {plain}\r\n".encode("latin-1", "replace"))
    return b"".join(lines)


def problem(error: HttpError) -> dict[str, Any]:
    """Return the body of an error as JSON has it."""
    found: dict[str, Any] = {"title": HTTPStatus(error.status).phrase, "status": error.status, "detail": error.detail}
    if error.condition:
        found["condition"] = error.condition
    return found | error.more


def answer_of(error: HttpError) -> tuple[bytes, bytes]:
    """Return head and body of the answer to a request that has failed."""
    return head(error.status, PROBLEM_TYPE, error.headers), json.dumps(problem(error)).encode() + b"\n"
