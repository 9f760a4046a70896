"""A second node before each node of the tests, for the same suites: clients come to it, and it is nobody's home.

Whatever is declared on a node (spaces, users) is declared on its front, too, where the spaces have the node as their
home. So a suite that passes shows that a client cannot tell where its connection has come to.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from enmasse.client import connect
from enmasse.client.management import Management

__all__ = ["IS_WANTED", "arguments_of", "mirror"]

IS_WANTED: Final = "ENMASSE_TEST_FRONT" in os.environ

HOME: Final = "node-0"
SPACE: Final = "io.enmasse.space"
MIRRORED: Final = (SPACE, "io.enmasse.user", "io.enmasse.installation")

_fronts: dict[str, str] = {}
"""The administrators' sockets of fronts, by those of the nodes behind them."""


def arguments_of(directory: Path, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments of a node, and those of its front, which alone has further ports."""
    secret = directory / "secret"
    secret.write_text(secrets.token_hex(32))
    peers = ("--peers", str(directory / "peers"), "--peers-secret", str(secret))
    own = list(arguments)
    while "--listen" in own:
        at = own.index("--listen")
        del own[at : at + 2]
    return (*own, *peers), (*arguments, *peers, "--name", "front")


def mirror(node: str, front: str) -> None:
    """Have what is declared on a node declared on its front."""
    if not _fronts:
        _watch()
    _fronts[node] = front


def _watch() -> None:
    ask = Management._ask

    async def asked(management: Management, operation: str, which: Mapping[str, Any], body: Any) -> dict[str, Any]:
        front = _fronts.get(_url_of(management))
        kind = which.get("type")
        if front is None or kind not in MIRRORED or operation not in ("CREATE", "UPDATE", "DELETE"):
            return await ask(management, operation, which, body)
        if kind == SPACE and operation == "CREATE":
            body = {"home": HOME, "homeGeneration": 1, **(body or {})}
        found = await ask(management, operation, which, body)
        if kind == SPACE and operation == "CREATE":
            body = {**body, "uid": found["uid"]}
        async with await connect(front, timeout=30, patience=30) as admin:
            await ask(Management(admin), operation, which, body)
        return found

    Management._ask = asked  # type: ignore[assignment,method-assign]


def _url_of(management: Management) -> str:
    place = management._connection._options.places[0]
    return f"amqp+unix://{place.path}" if place.path else ""
