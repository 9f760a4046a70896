"""Whether users' Python may run: it can do all that its process can. Pure."""

from __future__ import annotations

from enmasse.pipeline.host.separation import Separation
from enmasse.pipeline.host.verdict import Rule

__all__ = ["python_rule"]

_INSTEAD = "SQL and built-in pipelines run"


def python_rule(separation: Separation, spaces: int, *, is_api_open: bool) -> Rule:
    """Return what counts for all pipelines with Python of their own.

    Args:
        separation: whether processes of spaces can be kept from each other.
        spaces: how many there are.
        is_api_open: whether whoever reaches the API may do everything.
    """
    if spaces <= 1:
        return Rule(True, "OneSpace")
    if not separation.is_possible:
        return Rule(
            False,
            "NotSeparated",
            "Python of pipelines does not run where there are several spaces whose processes cannot be kept from "
            f"each other: {separation.reason}; run EnMasse as root, where every user may read it. {_INSTEAD}",
        )
    if is_api_open:
        return Rule(
            False,
            "ApiOpen",
            "Python of pipelines does not run where there are several spaces and the API is open: whoever reaches "
            f"it may do everything, and Python would; start with --api-auth required. {_INSTEAD}",
        )
    return Rule(True, "Separated")
