"""SASLprep: names and passwords that look the same are the same [RFC 4013]."""

from __future__ import annotations

import stringprep
from unicodedata import ucd_3_2_0

from enmasse.wire.amqp.errors import RemoteError

__all__ = ["saslprep"]

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Bring a name or password into the form in which it is compared and hashed.

    Characters that Unicode 3.2 did not know pass as they are, as in every query [RFC 3454 7].

    Raises:
        RemoteError: it contains what no name or password may contain; the text itself is not told.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for letter in prepared:
        if any(is_prohibited(letter) for is_prohibited in _PROHIBITED):
            raise RemoteError(
                "amqp:unauthorized-access",
                f"a name or password contains the prohibited character U+{ord(letter):04X}",
            )
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise RemoteError(
            "amqp:unauthorized-access", "a name or password mixes directions of writing in a way that is ambiguous"
        )
    return prepared
