"""Who a pipeline is, where only users come in.

User and password stand in the environment of the driver and the executors, and nowhere else: Spark
shows options in its plans and logs.
"""

from __future__ import annotations

import os
from typing import TypedDict

__all__ = ["Credentials", "credentials"]


class Credentials(TypedDict):
    """Arguments of ``enmasse.client.connect``."""

    user: str | None
    password: str | None


def credentials() -> Credentials:
    """What ``ENMASSE_USER`` and ``ENMASSE_PASSWORD`` say; nothing where everybody comes in."""
    return {"user": os.environ.get("ENMASSE_USER"), "password": os.environ.get("ENMASSE_PASSWORD")}
