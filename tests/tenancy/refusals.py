"""How an attempt is refused, and what counts as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from enmasse.client.errors import LinkRefusedError
from enmasse.errors import EnmasseError, RemoteError

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

__all__ = ["Way", "denied", "forbidden", "no_login", "not_attached"]


class Way(NamedTuple):
    """One way to try it, in words, and the attempt, which fails if it succeeds."""

    words: str
    attempt: Callable[[Tenants], None]


NOT_THERE = frozenset(
    {"amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "amqp:invalid-field", "amqp:not-implemented"}
)


def not_attached(attach: Callable[[], Any]) -> None:
    """See that a link is refused as if there were no such address."""
    with pytest.raises(LinkRefusedError) as caught:
        attach()
    assert caught.value.condition in NOT_THERE


def denied(act: Callable[[], Any], *status: int) -> None:
    """See that a request of management is refused."""
    with pytest.raises(RemoteError) as caught:
        act()
    assert not status or getattr(caught.value, "status", None) in status


def no_login(connect: Callable[[], Any]) -> None:
    """See that a connection does not come about."""
    with pytest.raises(EnmasseError):
        connect().close()


def forbidden(response: httpx.Response, *codes: int) -> None:
    """See that the API says no, and tells nothing with it."""
    assert response.status_code in (codes or (403,)), (response.status_code, response.text)
    assert "the formula of blue" not in response.text
