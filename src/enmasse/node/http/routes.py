"""The routes of HTTP: space, address and action of a request's path, and the parameters of its query.

The table of paths is in docs/reference/http.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from enmasse.errors import RemoteError
from enmasse.wire.http.answers import HttpError
from enmasse.wire.http.heads import Request

ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": ("POST", "GET", "HEAD"),
    "receive": ("POST",),
    "events": ("GET", "HEAD"),
    "settle": ("POST",),
    "renew": ("POST",),
    "request": ("POST",),
}
"""The actions of an address, the last part of a path, and their methods."""

PARAMETERS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("messages", "POST"): ("wait",),
    ("messages", "GET"): ("max", "wait", "after", "offset", "partition", "selector"),
    ("receive", "POST"): ("max", "wait", "lease", "auto", "selector"),
    ("events", "GET"): ("max", "lease", "selector", "offset", "partition"),
    ("settle", "POST"): (),
    ("renew", "POST"): (),
    ("request", "POST"): ("wait",),
}
"""The parameters that an action knows in a query."""

PATH: Final = "/v1/spaces/{space}.{namespace}/addresses/{address}/{action}"

_SPACE = re.compile(r"[A-Za-z0-9-]+\.[A-Za-z0-9-]+", re.ASCII)
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.ASCII)

RETRY: Final = (("Retry-After", "1"),)
"""Seconds after which what could not be done now may be possible."""

STATUSES: Final = {
    "amqp:not-found": 404,
    "amqp:resource-deleted": 410,
    "amqp:unauthorized-access": 403,
    "amqp:not-allowed": 409,
    "amqp:resource-locked": 409,
    "amqp:resource-limit-exceeded": 429,
    "amqp:link:message-size-exceeded": 413,
    "amqp:link:redirect": 421,
    "amqp:not-implemented": 501,
    "amqp:internal-error": 500,
    "amqp:connection:forced": 503,
    "amqp:link:detach-forced": 503,
}
"""The status of each condition; others are mistakes in the request, 400."""


def http_error(error: RemoteError) -> HttpError:
    """Return the answer that an error of an address or space is for HTTP's clients."""
    status = STATUSES.get(error.condition, 400)
    return HttpError(status, error.description, error.condition, RETRY if status in (429, 503) else ())


class Route:
    """The route that the head of a request asks for.

    Attributes:
        space: the space as the path names it, ``<space>.<namespace>``.
        address: the address.
        action: one of ``ACTIONS``.
        query: the parameters.
        proof: the header ``Authorization``; empty without one.
        identity: with what the space is entered: another one is another client.
        made: the result that the action makes of the head, for it alone.
    """

    __slots__ = ("action", "address", "identity", "made", "proof", "query", "space")

    def __init__(self, space: str, address: str, action: str, query: dict[str, str], proof: str) -> None:
        self.space = space
        self.address = address
        self.action = action
        self.query = query
        self.proof = proof
        self.identity = space, proof
        self.made: Any = None


def route_of(request: Request) -> Route:
    """Return what a request asks for.

    Raises:
        HttpError: there is nothing of that name, or it does not know the method.
    """
    parts = request.path.split("/")
    if len(parts) < 7 or parts[:3] != ["", "v1", "spaces"] or parts[4] != "addresses" or parts[-1] not in ACTIONS:
        raise HttpError(
            404, f"there is nothing at {request.path:.200}: paths are {PATH}, actions {', '.join(ACTIONS)}"
        )
    action = parts[-1]
    methods = ACTIONS[action]
    if request.method not in (*methods, "OPTIONS"):
        raise HttpError(
            405,
            f"{action} takes {' or '.join(methods)}, not {request.method}",
            headers=(("Allow", ", ".join((*methods, "OPTIONS"))),),
        )
    space = decoded(parts[3], "space")
    if _SPACE.fullmatch(space) is None:
        raise HttpError(404, f"{space!r:.100} names no space: name it as <space>.<namespace>")
    address = decoded("/".join(parts[5:-1]), "address")
    if not address:
        raise HttpError(404, f"the path names no address: paths are {PATH}")
    return Route(space.lower(), address, action, query_of(request.query), request.headers.get("authorization", ""))


def decoded(text: str, what: str) -> str:
    """Return a part of a path without percent-encoding.

    Raises:
        HttpError: it is not encoded so.
    """
    if _ESCAPES.fullmatch(text) is None:
        raise HttpError(400, f"the {what} in the path has a % that is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise HttpError(400, f"the {what} in the path is not UTF-8: encode each byte of its UTF-8 by %") from None


def query_of(text: str) -> dict[str, str]:
    """Return the parameters of a query.

    Raises:
        HttpError: it is none.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=20, errors="strict")
    except ValueError:
        raise HttpError(400, "the query of a target is up to 20 parameters, as name=value with & between") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise HttpError(400, "the query of a target has a parameter twice")
    return found


def check_query(route: Route, method: str) -> None:
    """Check that there are no parameters but those that the action knows.

    Raises:
        HttpError: there is another one.
    """
    if name := next(iter(unknown_parameters(route, method)), ""):
        known = ", ".join(PARAMETERS[route.action, method]) or "none"
        raise HttpError(400, f"there is no parameter {name!r:.60} here; there are {known}")


def unknown_parameters(route: Route, method: str) -> dict[str, str]:
    """Return the parameters that the action does not know."""
    known = PARAMETERS[route.action, method]
    return {name: value for name, value in route.query.items() if name not in known}


def seconds(query: Mapping[str, str], name: str, default: float, most: float) -> float:
    """Return a parameter that is a number of seconds.

    Raises:
        HttpError: it is no such number.
    """
    text = query.get(name)
    if text is None:
        return default
    found = float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text, re.ASCII) else -1.0
    if not 0 <= found <= most:
        raise HttpError(400, f"{name} is a number of seconds from 0 to {most:g}, not {text!r:.60}")
    return found


def number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Return a parameter that is a whole number.

    Raises:
        HttpError: it is no such number.
    """
    text = query.get(name)
    if text is None:
        return default
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else least - 1
    if not least <= found <= most:
        raise HttpError(400, f"{name} is a whole number from {least} to {most}, not {text!r:.60}")
    return found


def switch(query: Mapping[str, str], name: str) -> bool:
    """Return a parameter that is ``true`` or ``false``, which it is if it is left out.

    Raises:
        HttpError: it is neither.
    """
    text = query.get(name, "false").lower()
    if text not in ("true", "false"):
        raise HttpError(400, f"{name} is true or false, not {text!r:.60}")
    return text == "true"
