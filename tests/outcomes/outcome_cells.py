"""Cells of the outcome matrix: what a test proves, said where the test is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from tests.outcomes.outcome_site import Ground, Site

__all__ = ["PROTOCOLS", "SITUATIONS", "TYPES", "Cell", "cell", "cells_of", "column", "row", "rows"]

TYPES = (
    "anycast", "multicast", "queue", "topic", "subscription", "stream", "deadletter", "dynamic", "connector",
    "anonymous terminus",
)  # fmt: skip

PROTOCOLS = {"amqp": TYPES, "stomp": TYPES[:-1], "mqtt": TYPES[:-1], "http": TYPES[:-1]}
"""And the types of addresses that its clients reach: only AMQP's name the address in each message."""

SITUATIONS = {
    "accepted": "What `accepted` means",
    "no consumer": "No consumer",
    "full": "Full",
    "unauthorised": "Unauthorised",
    "expired": "Expired",
    "deleted": "Address deleted",
    "node gone": "Node gone",
}

DEADLINE_S = 60.0

Story = Callable[..., Awaitable[None]]


class Cell(NamedTuple):
    """One cell, and the test that proves it."""

    protocol: str
    address_type: str
    situation: str
    text: str
    test: str


def cell(
    address_type: str, situation: str, text: str, *, protocol: str = "amqp"
) -> Callable[[Story], Callable[..., None]]:
    """Have a story about one address type in one situation prove what a cell says."""

    def prove(story: Story) -> Callable[..., None]:
        def test(ground: Ground) -> None:
            _play(story, ground)

        return _named(test, story, {address_type: text}, situation, protocol)

    return prove


def row(situation: str, texts: dict[str, str], *, protocol: str = "amqp") -> Callable[[Story], Callable[..., None]]:
    """Have a story be told of several address types, each of which proves a cell."""

    def prove(story: Story) -> Callable[..., None]:
        @pytest.mark.parametrize("address_type", list(texts))
        def test(ground: Ground, address_type: str) -> None:
            _play(story, ground, address_type)

        return _named(test, story, texts, situation, protocol)

    return prove


def rows(situation: str, texts: dict[str, str], *, protocol: str = "amqp") -> Callable[[Story], Callable[..., None]]:
    """Have one story be told of all these address types at once, as what it tells takes long."""

    def prove(story: Story) -> Callable[..., None]:
        def test(ground: Ground) -> None:
            _play(story, ground, list(texts))

        return _named(test, story, texts, situation, protocol)

    return prove


def column(address_type: str, situation: str, texts: dict[str, str]) -> Callable[[Story], Callable[..., None]]:
    """Have a story about one address type be told by several protocols, each of which proves a cell."""

    def prove(story: Story) -> Callable[..., None]:
        @pytest.mark.parametrize("protocol", list(texts))
        def test(ground: Ground, protocol: str) -> None:
            _play(story, ground, protocol)

        made = _named(test, story, {}, situation, "amqp")
        name = test.__name__
        test.outcome_cells = [  # type: ignore[attr-defined]
            Cell(protocol, address_type, situation, text, name) for protocol, text in texts.items()
        ]
        return made

    return prove


def _play(story: Story, ground: Ground, *arguments: Any) -> None:
    async def body() -> None:
        async with asyncio.timeout(DEADLINE_S), Site(ground) as site:
            await story(site, *arguments)

    asyncio.run(body())


def _named(test: Any, story: Story, texts: dict[str, str], situation: str, protocol: str) -> Callable[..., None]:
    assert situation in SITUATIONS, situation
    assert set(texts) <= set(PROTOCOLS[protocol]), texts
    test.__name__ = test.__qualname__ = getattr(story, "__name__", "story")
    test.__doc__ = story.__doc__
    test.outcome_cells = [
        Cell(protocol, address_type, situation, text, test.__name__) for address_type, text in texts.items()
    ]
    made: Callable[..., None] = test
    return made


def cells_of(module: object) -> list[Cell]:
    """The cells that a module's tests prove."""
    return [found for thing in vars(module).values() for found in getattr(thing, "outcome_cells", ())]
