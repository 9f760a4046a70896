"""Receivers that take all that an address has, and wait for nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.client.blocking import Delivery, Receiver

__all__ = ["everything"]

AT_ONCE = 500
"""Messages that a receiver asks for before it looks whether there are more."""


def everything(receiver: Receiver) -> Iterator[Delivery]:
    """All that an address has for a receiver without a window, accepted: its peer says when there is no more."""
    while True:
        receiver.grant(AT_ONCE)
        if not receiver.drain(timeout=60):
            return
        while (delivery := receiver.receive_nowait()) is not None:
            yield delivery
            delivery.accept()
