"""Texts as values of columns' types within Java: the rules of ``shaping`` for those formats that have texts alone.

Rules:
1. Each function gives NULL where a text is no value of the type; nothing near is taken instead.
2. A text is first held against a pattern, and only then given to Spark, which takes a year for its first day, a time
   of day for one of today, and base64 with bits that nothing holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.sql.ddl import ColumnType
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS, DATE, FIRST, LAST, LOCAL, MOMENT

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_SHOWN: Final = 60
"""Characters of a wrong value: enough to recognise it."""
_NUMBER: Final = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?\z"
_MAYBE_WHOLE: Final = r"^[+-]?[0-9]{1,40}([.][0-9]{0,9}0*)?([eE]([+]?[0-9]{1,2}|-[0-9]))?\z"
"""Numbers of which 18 digits after the point are all that are not zero."""
_SECONDS: Final = r"^[+-]?[0-9]{1,19}([.][0-9]{0,19})?([eE][+-]?[0-9]{1,2})?\z"
_SHORT: Final = len("2026-11-28T09:00")
_FOUR: Final = "[A-Za-z0-9+/]"
_BASE64: Final = f"^(?:{_FOUR}{{4}}[\r\n]*)*+(?:{_FOUR}[AQgw]==|{_FOUR}{{2}}[AEIMQUYcgkosw048]=)?[\r\n]*\\z"


def value_of_text(text: Expression, of: ColumnType) -> Expression:
    """Return a text as a value of a type; one of a number has a point, and NaN and infinity are none."""
    if of.name in INTEGERS:
        exact = F.when(text.rlike(_MAYBE_WHOLE), text.try_cast("decimal(38,18)"))
        return F.when(exact % 1 == 0, exact.try_cast(of.name.lower()))
    if of.name in ("FLOAT", "DOUBLE"):
        made = F.when(text.rlike(_NUMBER), text.try_cast(of.name.lower()))
        return F.when(F.abs(made) != F.lit(float("inf")), made)
    if of.name == "DECIMAL":
        return F.when(text.rlike(_NUMBER), text.try_cast(str(of).lower()))
    if of.name == "BOOLEAN":
        return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))
    if of.name == "BINARY":
        return F.when(text.rlike(_BASE64), F.try_to_binary(text, F.lit("base64")))
    if of.name == "DATE":
        return F.when(text.rlike(f"^{DATE}\\z"), text.try_cast("date"))
    if of.name == "TIMESTAMP":
        return moment(text)
    if of.name == "TIMESTAMP_NTZ":
        return F.when(text.rlike(f"^{LOCAL}\\z"), text.try_cast("timestamp_ntz"))
    return text


def moment(text: Expression) -> Expression:
    """Return a text, or the digits of a number, as a moment."""
    return F.when(is_seconds(text), moment_of_seconds(text)).otherwise(moment_of_text(text))


def is_seconds(text: Expression) -> Expression:
    """Return whether a text is a number that may stand for a moment."""
    return text.rlike(_SECONDS)


def moment_of_seconds(text: Expression) -> Expression:
    """Return the digits of a number (``is_seconds``) as a moment: seconds, or milliseconds where they are many."""
    number = text.cast("double")
    micros = F.round(number * F.when(F.abs(number) < F.lit(1e11), 1e6).otherwise(1e3))
    return F.when(micros.between(F.lit(FIRST), F.lit(LAST)), F.timestamp_micros(micros.cast("bigint")))


def moment_of_text(text: Expression) -> Expression:
    """Return a text in ISO 8601 as a moment."""
    zone = F.substr(text, F.lit(_SHORT + 1))
    # Spark wants seconds before a zone.
    is_short = F.substring(text, _SHORT + 1, 1).isin("Z", "+", "-")
    whole = F.when(is_short, F.concat(F.substring(text, 1, _SHORT), F.lit(":00"), zone)).otherwise(text)
    made = F.when(text.rlike(f"^{MOMENT}\\z"), F.try_to_timestamp(whole))
    return F.when(made.between(F.timestamp_micros(F.lit(FIRST)), F.timestamp_micros(F.lit(LAST))), made)


def shown_text(text: Expression) -> Expression:
    """Return the beginning of a wrong value, without what stands between problems."""
    return F.replace(F.substring(text, 1, _SHOWN), F.lit(BETWEEN_PROBLEMS), F.lit(", "))
