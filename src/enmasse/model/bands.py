"""Bands of values that are as they should be, as people write them: ``10:35``, ``:80``, ``-25:``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

__all__ = ["Band", "limits"]


def limits(text: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a band; an end left empty is infinite.

    Raises:
        ValueError: the text is no band.
    """
    low_text, colon, high_text = text.partition(":")
    low, high = float(low_text or "-inf"), float(high_text or "inf")
    # A NaN is in no order with anything, so it is refused here too.
    if not colon or not low <= high:
        raise ValueError(f"{text!r} is no band")
    return low, high


def _check(text: str) -> str:
    try:
        limits(text)
    except ValueError:
        raise PydanticCustomError("band", "expected a band as LOW:HIGH, such as 10:35 or :80") from None
    return text


Band = Annotated[str, AfterValidator(_check)]
"""A field that holds a band."""
