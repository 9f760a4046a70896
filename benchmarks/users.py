"""A hundred thousand users in one node: what a login costs, what each user takes, and a restart."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import Node
from enmasse.client import connect
from enmasse.client.management import Management
from enmasse.identity.users import key_fields, make_keys

__all__ = ["MEASUREMENTS"]

USERS = 100_000
FEW = 100
"""Users at the first logins, which the last are compared with."""

AT_ONCE = 50
LOGINS = 200
PASSWORD = "a password"
SPACE = "default/guarded"

MAX_RATIO = 1.2
MAX_BYTES_EACH = 64
"""Nothing of a user is kept in memory; this is what heaps do by themselves."""

MAX_RESTART_S = 2.0
TIMEOUT_S = 60.0

KEYS = {
    mechanism: key_fields(make_keys(mechanism, PASSWORD, b"0123456789abcdef", 4_096))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
}
"""All have the same: making them is the control process's work, and the client's."""


def many(setting: Setting) -> Iterator[Line]:
    """Log in among few, among many, and after a restart."""
    count = max(2 * FEW, setting.count(USERS))
    with setting.node() as node:
        asyncio.run(_declare(node))
        asyncio.run(_create(node, 0, FEW))
        asyncio.run(_log_in(node, FEW, LOGINS))
        among_few = asyncio.run(_log_in(node, FEW, LOGINS))
        before = asyncio.run(_memory(node))
        took = asyncio.run(_create(node, FEW, count))
        among_many = asyncio.run(_log_in(node, count, LOGINS))
        each = (asyncio.run(_memory(node)) - before) / count
        yield Line("users", count, "")
        yield Line("told of in a second", (count - FEW) / took, "")
        yield Line(f"login among {FEW}, median", among_few * 1000, "ms")
        yield Line(f"login among {count:,}, median", among_many * 1000, "ms")
        yield Line("the one to the other", among_many / among_few, "", MAX_RATIO)
        yield Line("memory of a user", each, "bytes", MAX_BYTES_EACH)
        node.kill()
        starts = [node.start()]
        for _ in range(setting.runs - 1):
            node.kill()
            starts.append(node.start())
        yield Line("restart until it listens", min(starts), "s", MAX_RESTART_S)
        yield Line("login after it, median", asyncio.run(_log_in(node, count, LOGINS)) * 1000, "ms")


async def _declare(node: Node) -> None:
    async with connect(node.admin_url) as connection:
        await Management(connection, timeout=TIMEOUT_S).create(
            "io.enmasse.space", SPACE, {"authentication": "standard", "uid": "guarded"}
        )


def user_attributes(number: int, keys: dict[str, Any] | None = None) -> dict[str, Any]:
    """A user as control tells of it."""
    return {
        "space": SPACE,
        "spaceUid": "guarded",
        "username": f"device-{number}",
        "uid": f"8b7f2d0e-57a4-4d4a-9c7e-{number:012d}",
        "generation": 1,
        "revision": f"1/guarded/{number}",
        "authorization": [{"operations": ["send", "recv"], "addresses": ["devices/${username}/#"]}],
        "scram": KEYS if keys is None else keys,
    }


async def _create(node: Node, first: int, last: int) -> float:
    """Tell the node of users; the seconds that it took."""
    began = time.perf_counter()
    async with connect(node.admin_url) as connection:
        management = Management(connection, timeout=TIMEOUT_S)
        numbers = iter(range(first, last))

        async def some() -> None:
            for number in numbers:
                await management.create("io.enmasse.user", f"{SPACE}.device-{number}", user_attributes(number))

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


async def _log_in(node: Node, count: int, times: int) -> float:
    """Log users in, one after the other, all over the range; the median of what it took."""
    took = []
    for number in range(0, count, max(1, count // times)):
        began = time.perf_counter()
        async with connect(
            node.url, user=f"device-{number}", password=PASSWORD, hostname="guarded.default", reconnect=False
        ):
            took.append(time.perf_counter() - began)
    return statistics.median(took)


async def _memory(node: Node) -> int:
    async with connect(node.admin_url) as connection:
        (found,) = await Management(connection, timeout=TIMEOUT_S).query("io.enmasse.statistics")
        return int(found["memoryBytes"])


MEASUREMENTS = (Measurement("A hundred thousand users in one node", many),)
