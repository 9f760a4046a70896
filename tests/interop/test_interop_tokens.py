"""Bearer tokens instead of passwords: a node that is given an authority, against rhea and the Python client."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import ConnectionDeniedError, Message, Outcome, connect
from enmasse.identity.login import Judged, Judgement
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User
from enmasse.net.loop import run
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.patterns import matcher_of
from enmasse.node.server import Server
from enmasse.node.users.gate import GateOptions
from tests.support.foreign_tools import require

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"


class Authority:
    """Knows one token, good for one space, for as long as whoever has shown it wants to stay."""

    def knows(self, space: str) -> bool:
        return space == "default/shop"

    def takes_passwords(self, space: str) -> bool:
        return False

    def judge_token(self, token: str, space: str) -> Judged:
        if (token, space) != ("token-of-ida", "default/shop"):
            return Judgement()
        return Judgement(User("ida", space, Permissions([Grant(("all",), ("orders",))], matcher_of)))

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        return Judgement()

    def judge_again(self, user: User) -> User | None:
        return user


async def started(directory: Path) -> tuple[Server, int]:
    """A node with a queue ``orders`` in a space for users, and its port."""
    gate = GateOptions(allow_insecure_plain=True)
    server = Server(directory, "node", gate=gate, tokens=Authority())
    await server.load()
    queue = {"space": "default/shop", "address": "orders", "addressType": "queue"}
    for kind, name, attributes in (
        (SPACE_TYPE, "default/shop", {"authentication": "standard"}),
        (ADDRESS_TYPE, "default/shop.orders", queue),
    ):
        stored: asyncio.Future[EntityError | None] = asyncio.get_running_loop().create_future()
        server.entities.create(kind, name, attributes, stored.set_result)
        assert await asyncio.wait_for(stored, 30) is None
    return server, await server.listen("127.0.0.1", 0)


def serve(directory: Path, talk: Any) -> None:
    """Have somebody talk to a node that lives in this process."""

    async def main() -> None:
        server, port = await started(directory)
        try:
            async with asyncio.timeout(60):
                await talk(port)
        finally:
            await server.stop()

    run(main())


def test_rhea_comes_in_by_a_token(tmp_path: Path) -> None:
    require("rhea")

    async def login(port: int, token: str) -> dict[str, Any]:
        options = {"username": "ida", "token": token, "sasl_init_hostname": "shop.default"}
        process = await asyncio.create_subprocess_exec(
            "node", str(HERE / "rhea_login.js"),
            json.dumps({"port": port, "address": "orders", "options": options}),
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        report: dict[str, Any] = json.loads(out)
        return report

    async def talk(port: int) -> None:
        good = await login(port, "token-of-ida")
        assert (good["opened"], good["outcome"], good["received"]) == (True, "accepted", "hello")
        assert not (await login(port, "another"))["opened"]

    serve(tmp_path, talk)


def test_the_python_client_comes_in_by_a_token(tmp_path: Path) -> None:
    async def talk(port: int) -> None:
        common: dict[str, Any] = {"hostname": "shop.default", "reconnect": False, "allow_insecure_plain": True}
        for mechanism, user in (("OAUTHBEARER", None), ("XOAUTH2", "ida")):
            async with connect(
                f"amqp://127.0.0.1:{port}", token="token-of-ida", user=user, sasl=[mechanism], **common
            ) as connection:
                sender = await connection.sender("orders")
                assert await sender.send(Message(mechanism)) == Outcome.ACCEPTED
        with pytest.raises(ConnectionDeniedError):
            await connect(f"amqp://127.0.0.1:{port}", token="another", **common)

    serve(tmp_path, talk)
