"""Which protocol a peer speaks, told by the first bytes that it sends.

A further protocol is one more value and its row here, and who takes it in ``net/listener.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

__all__ = ["Speech", "recognise"]


class Speech(Enum):
    """What may be spoken on a port."""

    AMQP = auto()
    AMQP_TLS = auto()
    """AMQP's own header that asks for TLS [AMQP 5.2.1]."""
    TLS = auto()
    HTTP = auto()


_BEGINNINGS: dict[Speech, tuple[bytes, ...]] = {
    Speech.AMQP: (b"AMQP\x00", b"AMQP\x03"),
    Speech.AMQP_TLS: (b"AMQP\x02\x01\x00\x00",),
    Speech.TLS: (b"\x16",),
    Speech.HTTP: (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS "),
}


def recognise(data: bytes, among: Collection[Speech]) -> Speech | None:
    """Tell what is spoken.

    Args:
        data: what has come so far.
        among: what may be spoken here; anything else is told to be AMQP, whose engine answers strangers with the
            header that it would have taken [AMQP 2.2].

    Returns:
        None if more bytes are needed.
    """
    is_open = False
    for speech in among:
        for beginning in _BEGINNINGS[speech]:
            if data.startswith(beginning):
                return speech
            is_open = is_open or beginning.startswith(data)
    return None if is_open else Speech.AMQP
