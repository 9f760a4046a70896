"""Logins with passwords while the process that checks them is killed, floods beside them, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client import blocking
from enmasse.identity.users import key_fields, make_keys
from tests.support.node_process import NodeProcess
from tests.support.polling import until, until_async
from tests.support.processes import is_alive
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

SPACE = "default/guarded"
HOST = "guarded.default"
SECRET = "correct horse battery"
USERS = 60
ITERATIONS = 15_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--allow-insecure-plain") as node:
        declare(node)
        yield node


def declare(node: NodeProcess) -> None:
    with blocking.connect(node.admin_url) as connection:
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"authentication": "standard", "uid": "guarded"})
        management.create("io.enmasse.space", "default/other", {"authentication": "standard", "uid": "other"})
        for number in range(USERS):
            keys = make_keys("SCRAM-SHA-256", SECRET, b"%016d" % number, ITERATIONS)
            for space in (SPACE, "default/other")[: 1 + (number == 0)]:
                management.create(
                    "io.enmasse.user",
                    f"{space}.device-{number}",
                    {
                        "space": space,
                        "spaceUid": space.rpartition("/")[2],
                        "username": f"device-{number}",
                        "uid": f"8b7f2d0e-57a4-4d4a-9c7e-{number:012d}",
                        "generation": 1,
                        "revision": f"1/{space}/{number}",
                        "authorization": [{"operations": ["send", "recv"], "addresses": ["#"]}],
                        "scram": {"SCRAM-SHA-256": key_fields(keys)},
                    },
                )


def checker_of(pid: int) -> int | None:
    """The process of a node that checks passwords."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"password_process" in (path / "cmdline").read_bytes():
                return int(path.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


async def log_in(node: NodeProcess, number: int, password: str = SECRET, host: str = HOST) -> str:
    """Log in by STOMP, and return what the node says."""
    peer = StompPeer(node.port, login=f"device-{number}", passcode=password, host=host)
    try:
        async with peer:
            return "CONNECTED"
    except AssertionError as error:
        return str(error)


def test_a_login_waits_out_the_death_of_the_process(node: NodeProcess) -> None:
    async def story() -> None:
        killed: set[int] = set()
        logins = [asyncio.create_task(log_in(node, number)) for number in range(USERS)]

        async def so_many_are_in(count: int) -> None:
            await until_async(lambda: sum(login.done() for login in logins) >= count, "logins")

        for count in (USERS // 8, USERS // 4):
            await so_many_are_in(count)
            pid = checker_of(node.pid)
            if pid is not None:
                assert pid not in killed
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                await until_async(lambda: not is_alive(pid), "the process has ended")  # noqa: B023 - called here alone
        assert await asyncio.gather(*logins) == ["CONNECTED"] * USERS
        assert killed

    asyncio.run(story())
    assert "process that checks passwords" in node.log


def test_a_flood_of_guesses_is_stopped_and_harms_no_other_space(node: NodeProcess) -> None:
    async def story() -> None:
        guesses = [asyncio.create_task(log_in(node, 1_000 + number, "a guess")) for number in range(300)]
        assert await log_in(node, 0, host="other.default") == "CONNECTED"
        said = await asyncio.gather(*guesses)
        looked_at = sum("is wrong" in answer for answer in said)
        assert 20 <= looked_at <= 100, "not many more than may fail are looked at, however many come at once"
        assert sum("try again later" in answer for answer in said) == 300 - looked_at
        assert await log_in(node, 1) == "CONNECTED", "one that came in from here lately"

    asyncio.run(story())


def test_no_password_is_where_others_can_read_it(node: NodeProcess) -> None:
    assert asyncio.run(log_in(node, 2, SECRET)) == "CONNECTED"
    assert "is wrong" in asyncio.run(log_in(node, 2, f"not {SECRET}"))
    pid = checker_of(node.pid)
    assert pid is not None
    for name in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert SECRET not in node.log


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_no_process_is_left_behind(way: str, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node", "--allow-insecure-plain").start()
    try:
        declare(node)
        assert asyncio.run(log_in(node, 0)) == "CONNECTED"
        pid = checker_of(node.pid)
        assert pid is not None
    finally:
        getattr(node, way)()
    until(lambda: not is_alive(pid), "the process has ended")
