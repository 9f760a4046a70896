"""Control beside a node that holds what its store does not know: nothing is lost, and nothing is opened."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client import ConnectionDeniedError, Message, connect
from enmasse.client.management import Management
from enmasse.control.log_numbers import BLOCK, GIVEN
from tests.crash.test_control_crash import BASE, Control, address, declared, installation, on_node, space
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
USERS = "/apis/user.enmasse.io/v1beta1/namespaces/default/messagingusers"
COUNT = 20

JO = {
    "apiVersion": "user.enmasse.io/v1beta1",
    "kind": "MessagingUser",
    "metadata": {"name": "shop.jo", "namespace": "default"},
    "spec": {
        "username": "jo",
        "authentication": {"type": "password", "password": "c2VjcmV0"},
        "authorization": [{"operations": ["send", "recv"], "addresses": ["a0"]}],
    },
}


HTTP = httpx.Client(
    verify=False, trust_env=False, timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0)
)
"""One for all: to make another one each time, with its certificates, takes longer than to ask."""


def ask(control: Control, method: str, path: str, body: Any = None) -> httpx.Response:
    url = f"http://127.0.0.1:{control.port}{path}"
    return HTTP.request(method, url, json=body, headers=control.proof)


def is_user_served(control: Control) -> bool:
    return '"Served"' in ask(control, "GET", f"{USERS}/shop.jo").text


async def send(node: NodeProcess) -> None:
    async with (
        connect(node.url, user="jo", password="secret", hostname="shop.default") as jo,
        jo.sender("a0") as sender,
    ):
        for number in range(COUNT):
            await sender.send(Message(number, durable=True))


async def receive(node: NodeProcess) -> list[Any]:
    async with (
        connect(node.url, user="jo", password="secret", hostname="shop.default") as jo,
        jo.receiver("a0", credit=COUNT) as receiver,
    ):
        deliveries = [await receiver.receive() for _ in range(COUNT)]
        return [delivery.message.body for delivery in deliveries if delivery is not None]  # they go back


async def come_in(node: NodeProcess) -> None:
    async with connect(node.url, hostname="shop.default", reconnect=False):
        pass


async def give_to_another(node: NodeProcess) -> None:
    async with connect(node.admin_url) as connection:
        management = Management(connection)
        (present,) = await management.query("io.enmasse.installation", ("name",))
        await management.update("io.enmasse.installation", present["name"], {"id": "another"})


async def log_numbers(node: NodeProcess) -> dict[str, Any]:
    async with connect(node.admin_url) as connection:
        (found,) = await Management(connection).query("io.enmasse.installation")
        return {name: found[name] for name in ("nextLog", "logRanges")}


def test_a_lost_store_loses_nothing_that_the_node_holds(tmp_path: Path) -> None:
    guarded = space("shop")
    guarded["spec"]["authenticationService"] = {"type": "standard"}
    with installation(tmp_path) as (node, control):
        for path, body in (("/addressspaces", guarded), ("/addresses", address("shop", 0, 600_000))):
            assert control.insist("POST", path, body) == 201
        assert control.insist("POST", "/addresses", address("shop", 1)) == 201
        assert ask(control, "POST", USERS, JO).status_code == 201
        until(lambda: asyncio.run(on_node(node)) == declared(control))
        until(lambda: is_user_served(control))
        asyncio.run(send(node))

        # Deleted in the store, and killed at once: whatever the node was told by then, it is done later.
        assert control.insist("DELETE", "/addresses/shop.a1") == 200
        control.kill()
        control.start()
        until(lambda: "default/shop.a1" not in asyncio.run(on_node(node)))

        held = asyncio.run(on_node(node))
        until(lambda: len(asyncio.run(log_numbers(node))["logRanges"]) == 3)
        leased = asyncio.run(log_numbers(node))
        assert leased["logRanges"] == [[1, BLOCK], [BLOCK, 2 * BLOCK], [2 * BLOCK, 3 * BLOCK]]
        control.kill()
        for file in (tmp_path / "control").glob("resources.db*"):
            file.unlink()
        control.start()
        until(lambda: declared(control) == held)
        assert asyncio.run(on_node(node)) == held
        # Of the numbers of logs, too, the new store knows from the node how many were leased.
        assert asyncio.run(log_numbers(node)) == leased
        with closing(sqlite3.connect(tmp_path / "control" / "resources.db")) as database:
            assert database.execute("SELECT value FROM facts WHERE name = ?", (GIVEN,)).fetchone() == (3 * BLOCK,)
        until(lambda: is_user_served(control))
        assert asyncio.run(receive(node)) == list(range(COUNT))
        with pytest.raises(ConnectionDeniedError):
            asyncio.run(come_in(node))

        # The journal is another installation's from now on: nothing is told to the node until it is taken in.
        control.kill()
        asyncio.run(give_to_another(node))
        control.start()
        told = "[!] node node-0: the journal of node-0 belongs to installation another"
        until(lambda: told in ask(control, "GET", "/readyz?verbose").text)
        purge = ask(control, "POST", f"{BASE}/addresses/shop.a0/purge", {})
        assert (purge.status_code, "belongs to installation another" in purge.text) == (503, True)
        assert control.insist("DELETE", "/addresses/shop.a0") == 200
        assert ask(control, "POST", "/nodes/node-0/adopt", {"installation": "a third"}).status_code == 409
        assert ask(control, "POST", "/nodes/other/adopt", {"installation": "another"}).status_code == 404
        journal = ask(control, "GET", "/nodes/node-0/journal").json()
        assert (journal["installation"], journal["addresses"], journal["messages"]) == ("another", 1, COUNT)
        assert asyncio.run(on_node(node)) == held
        # Then what was deleted meanwhile is, and all else is as it was.
        taken = ask(control, "POST", "/nodes/node-0/adopt", {"installation": "another"}).json()
        assert taken["installation"] == taken["own"] == journal["own"]
        until(lambda: set(asyncio.run(on_node(node))) == {"default/shop"})
        until(lambda: "[+] node node-0" in ask(control, "GET", "/readyz?verbose").text)
        assert is_user_served(control)
