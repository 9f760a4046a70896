"""The test of a connector's server: what each step finds, and what is said when one fails."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from enmasse.message.outcomes import AmqpError
from enmasse.message.types import Symbol, UInt
from enmasse.net import egress
from enmasse.net.egress import CONNECTORS, Reach
from enmasse.node.errors import EntityError
from enmasse.node.uplinks import testing
from enmasse.node.uplinks.testing import MAX_LOOKUPS, MAX_TESTS, MAX_TESTS_OF_SPACE, ConnectorTests
from tests.unit.client.authorities import DAY, Authority
from tests.unit.client.conftest import Server, serving

NAMES = {
    "mq.example.com": ["127.0.0.1"],
    "inner.example.com": ["93.184.215.14", "10.0.0.7"],
    "two.example.com": ["127.0.0.2", "127.0.0.1"],
}
HERE = (ip_network("127.0.0.0/8"),)


async def lookup(host: str, _port: int) -> Sequence[str]:
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[host]


def allowing(*networks: Any) -> ConnectorTests:
    return ConnectorTests(Reach(CONNECTORS, networks, has_public=False, lookup=lookup), "node-0")


async def steps_of(given: dict[str, Any], tests: ConnectorTests | None = None) -> list[dict[str, Any]]:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    (tests or allowing(*HERE)).start("default/shop", {"host": "mq.example.com"} | given, answered.set_result)
    async with asyncio.timeout(60):
        found = await answered
    steps: list[dict[str, Any]] = found["steps"]
    assert all(step["milliseconds"] >= 0 for step in steps)
    assert all(step["succeeded"] for step in steps[:-1])
    return steps


def failed(steps: list[dict[str, Any]], step: str) -> str:
    """Return why the last step, which has to be a certain one, has failed."""
    assert (steps[-1]["step"], steps[-1]["succeeded"]) == (step, False), steps
    return str(steps[-1]["message"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


def trusting(authority: Authority, server: Server, **given: Any) -> dict[str, Any]:
    return {"tls": True, "port": server.port, "authorities": authority.ca_file.read_text()} | given


LOGIN = {"username": "ann", "password": "secret"}


def test_every_step_of_a_server_that_lets_us_in_is_told(authority: Authority) -> None:
    async def scene() -> None:
        async with serving(tls=authority.server("mq.example.com")) as server:
            server.messages["orders"].append(None)  # type: ignore[arg-type]
            steps = await steps_of(trusting(authority, server, **LOGIN, address="orders"))
            assert [step["step"] for step in steps] == ["DNS", "TCP", "TLS", "SASL", "open", "attach"]
            assert all(step["succeeded"] for step in steps), steps
            _, _, tls, sasl, opened, attached = (step["message"] for step in steps)
            assert tls.startswith("TLSv1.")
            assert "CN=mq.example.com for mq.example.com (from CN=ours, ends 20" in tls
            assert ", in " in tls, "it ends within two weeks"
            assert sasl == "let in as 'ann' by PLAIN"
            assert "container 'server'" in opened
            assert "frames up to 1048576 bytes, 256 sessions" in opened
            assert attached.startswith("a receiver of 'orders' is attached")
            assert len(server.messages["orders"]) == 1, "a test takes nothing"
            (attach,) = server.attaches
            assert attach.source is not None
            assert attach.source.address == "orders"
            # Without TLS, and as nobody.
        async with serving() as server:
            steps = await steps_of({"port": server.port})
            assert [step["step"] for step in steps] == ["DNS", "TCP", "SASL", "open"]
            assert all(step["succeeded"] for step in steps), steps
            assert steps[2]["message"] == "let in as nobody in particular by ANONYMOUS"
            # The next address is tried when one takes no connection.
            assert (await steps_of({"port": server.port, "host": "two.example.com"}))[-1]["succeeded"]

    asyncio.run(scene())


def test_a_certificate_that_is_not_trusted_is_shown_and_sent_nothing(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "theirs")

    async def scene() -> None:
        past = {"begins": -3 * DAY, "ends": -DAY}
        for given, trust, expected in (
            ({"name": "mq.example.com"} | past, authority, ("has expired", "ended 20")),
            ({"name": "other.example.com"}, authority, ("is not for 'mq.example.com'", "for other.example.com")),
            (
                {"name": "mq.example.com"},
                other,
                ("is not known here: give tls.caCert", "from CN=ours"),
            ),
        ):
            async with serving(tls=authority.server(**given)) as server:
                steps = await steps_of(trusting(trust, server, **LOGIN))
                why = failed(steps, "TLS")
                assert all(each in why for each in expected), why
                assert "It shows CN=" in why
                assert "TlsOptions" not in why
                assert not server.mechanisms_used

    asyncio.run(scene())


def test_a_server_without_tls_and_one_that_wants_it_are_told_apart(authority: Authority) -> None:
    async def scene() -> None:
        async with serving() as server:
            why = failed(await steps_of({"tls": True, "port": server.port}), "TLS")
            assert "does not speak TLS: check the port, or leave tls out" in why
        async with serving(tls=authority.server("mq.example.com")) as server:
            why = failed(await steps_of({"port": server.port}), "SASL")
            assert "hung up before the connection was open" in why
            assert "give the connector tls" in why

    asyncio.run(scene())


def test_a_login_that_is_refused_is_told_without_the_password(authority: Authority) -> None:
    async def scene() -> None:
        async with serving(tls=authority.server("mq.example.com")) as server:
            wrong = trusting(authority, server, username="ann", password="wrong-and-secret")
            why = failed(await steps_of(wrong), "SASL")
            assert "refused the credentials (PLAIN)" in why
            assert "wrong-and-secret" not in why
            server.mechanisms = ["GSSAPI", "SCRAM-SHA-512"]
            why = failed(await steps_of(trusting(authority, server)), "SASL")
            assert "the server offers GSSAPI, SCRAM-SHA-512: give the connector credentials" in why
            server.mechanisms = []
            assert "the server offers no mechanism" in failed(await steps_of(trusting(authority, server)), "SASL")
        # Nothing shows a password to the network.
        async with serving() as server:
            server.mechanisms = ["PLAIN"]
            why = failed(await steps_of({"port": server.port, **LOGIN}), "SASL")
            assert "PLAIN would show your secret to the network: give the connector tls" in why
            assert not server.mechanisms_used

    asyncio.run(scene())


def test_a_certificate_of_ours_lets_us_in(authority: Authority) -> None:
    async def scene() -> None:
        context = authority.server("mq.example.com")
        context.load_verify_locations(authority.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        async with serving(tls=context) as server:
            server.mechanisms = ["PLAIN", "EXTERNAL"]
            ours = authority.sign("shop").read_text()
            both = {"certificate": ours, "key": ours}
            steps = await steps_of(trusting(authority, server, **both))
            assert steps[3]["message"] == "let in by certificate by EXTERNAL"
            assert steps[-1]["succeeded"]
            why = failed(await steps_of(trusting(authority, server)), "SASL")
            assert "tls.clientCert" in why
        stranger = authority.sign("other").read_text()
        for given in ({"certificate": ours, "key": stranger}, {"certificate": "x", "key": "y"}):
            (step,) = await steps_of({"tls": True, "port": 1, **given})
            assert "tls.clientCert and tls.clientKey: expected a certificate" in failed([step], "TLS")
        (step,) = await steps_of({"tls": True, "port": 1, "authorities": "x"})
        assert "tls.caCert: expected certificates in PEM" in failed([step], "TLS")

    asyncio.run(scene())


def test_a_connection_and_a_link_that_are_refused_are_told_with_the_servers_words() -> None:
    async def scene() -> None:
        async with serving() as server:
            why = failed(await steps_of({"port": server.port, "address": "nowhere"}), "attach")
            assert why == "a receiver of 'nowhere' is refused: amqp:not-found: there is no address 'nowhere'"
            server.denial = AmqpError("amqp:unauthorized-access", "no user null")
            why = failed(await steps_of({"port": server.port}), "open")
            assert why.endswith("no user null: give the connector credentials, or tls.clientCert with tls.clientKey")
            elsewhere = {Symbol("network-host"): "b.example.com", Symbol("port"): UInt(5673)}
            server.denial = AmqpError("amqp:connection:redirect", "go on", elsewhere)
            why = failed(await steps_of({"port": server.port}), "open")
            assert why == "the server sends clients on to amqp://b.example.com:5673: name that in endpointHosts"
            server.denial = AmqpError("amqp:resource-limit-exceeded", "too many " + "x" * 10_000)
            why = failed(await steps_of({"port": server.port}), "open")
            assert "too many x" in why
            assert len(why) <= 300

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS: give the connector tls"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer speaks HTTP"),
        (b"AMQP\0\0\x09\x01", "the peer speaks another version of AMQP (0.0.9.1)"),
        (b"220 mail\r\n", "the peer speaks another protocol"),
    ],
)
def test_what_speaks_another_protocol_is_named(answer: bytes, expected: str) -> None:
    async def scene() -> None:
        async def answer_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert expected in failed(await steps_of({"port": port}), "SASL")

    asyncio.run(scene())


def test_where_nothing_answers_the_step_says_so(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    monkeypatch.setattr(testing, "ATTACH_S", 0.3)

    async def scene() -> None:
        gone = asyncio.Event()

        async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await gone.wait()
            writer.close()

        quiet = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = quiet.sockets[0].getsockname()[1]
        async with quiet:
            monkeypatch.setattr(testing, "OPEN_S", 0.3)
            assert "does that port speak AMQP 1.0, or want TLS?" in failed(await steps_of({"port": port}), "SASL")
            why = failed(await steps_of({"port": port, "tls": True}), "TLS")
            assert why == "no answer within 0.3 s: does that port speak TLS?"
            monkeypatch.setattr(testing, "OPEN_S", 60.0)
            gone.set()
        async with serving() as server:
            why = failed(await steps_of({"port": server.port, "address": "silent"}), "attach")
            assert why == "no answer within 0.3 s to a receiver of 'silent'"
        monkeypatch.setattr(egress, "CONNECT_S", 0.3)
        async with black_hole() as port:
            assert "does a firewall drop it" in failed(await steps_of({"port": port}), "TCP")
        monkeypatch.setattr(egress, "CONNECT_S", 60.0)
        assert "nothing listens there" in failed(await steps_of({"port": port}), "TCP")
        assert "is not known" in failed(await steps_of({"port": 1, "host": "nowhere.example.com"}), "DNS")

    asyncio.run(scene())


@asynccontextmanager
async def black_hole() -> AsyncIterator[int]:
    """A port whose queue of connections is full, so that it answers no other."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
        trying = [asyncio.ensure_future(loop.sock_connect(each, ("127.0.0.1", port))) for each in waiting]
        await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield port
        finally:
            for attempt in trying:
                attempt.cancel()
            await asyncio.gather(*trying, return_exceptions=True)
            for each in waiting:
                each.close()


def test_a_connector_goes_nowhere_that_the_operator_has_not_allowed() -> None:
    async def scene() -> None:
        async with serving() as server:
            for tests in (allowing(), allowing(ip_network("10.0.0.0/8"))):
                why = failed(await steps_of({"port": server.port}, tests), "DNS")
                assert why == (
                    "mq.example.com has an address that is not allowed, or none; the operator allows it by "
                    "--connector-network"
                )
            # Of a name with one address that is not allowed, none is connected to.
            public = ConnectorTests(Reach(CONNECTORS, lookup=lookup), "node-0")
            for host in ("inner.example.com", "mq.example.com"):
                assert "not public" in failed(await steps_of({"port": server.port, "host": host}, public), "DNS")
            assert not server.opens

    asyncio.run(scene())


def test_only_so_many_tests_run_at_a_time_and_of_one_space_fewer() -> None:
    async def scene() -> None:
        async def never(_host: str, _port: int) -> Sequence[str]:
            await asyncio.Event().wait()
            return ()

        tests = ConnectorTests(Reach(CONNECTORS, lookup=never), "node-0")
        answers: list[Any] = []
        server = {"host": "mq.example.com", "port": 1}
        spaces = [f"default/s{number // MAX_TESTS_OF_SPACE}" for number in range(MAX_TESTS)]
        for number, space in enumerate(spaces):
            tests.start(space, server, answers.append)
            if number == MAX_TESTS_OF_SPACE - 1:
                with pytest.raises(EntityError, match="already") as caught:
                    tests.start(space, server, answers.append)
                assert caught.value.status == 503
        with pytest.raises(EntityError, match="already"):
            tests.start("default/other", server, answers.append)
        await tests.stop()
        tests.start("default/other", server, answers.append)
        await tests.stop()
        assert answers == []

    asyncio.run(scene())


def test_names_that_are_never_looked_up_take_no_more_threads_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "LOOKUP_S", 0.05)

    async def scene() -> None:
        looking: list[str] = []
        over = asyncio.Event()

        async def slow(host: str, _port: int) -> Sequence[str]:
            looking.append(host)
            await over.wait()
            return ["127.0.0.1"]

        tests = ConnectorTests(Reach(CONNECTORS, lookup=slow), "node-0")
        for number in range(MAX_LOOKUPS + 3):
            steps = await steps_of({"port": 1, "host": f"h{number}.example.com"}, tests)
            assert "was not looked up within 0.05 s" in failed(steps, "DNS")
        assert looking == [f"h{number}.example.com" for number in range(MAX_LOOKUPS)]
        monkeypatch.setattr(testing, "LOOKUP_S", 60.0)
        over.set()
        assert "not public" in failed(await steps_of({"port": 1, "host": "last.example.com"}, tests), "DNS")
        # Nobody has waited for those in between any more.
        assert looking[MAX_LOOKUPS:] == ["last.example.com"]
        await tests.stop()

    asyncio.run(scene())


def test_what_is_no_server_is_refused() -> None:
    tests = allowing()
    answers: list[Any] = []
    wrong: list[dict[str, Any]] = [{}, {"host": "a"}, {"host": 1, "port": 1}, {"host": "a", "port": "1"}]
    for given in (*wrong, {"host": "a", "port": True}, {"host": "a", "port": 1, "address": 3}):
        with pytest.raises(EntityError) as caught:
            tests.start("default/shop", given, answers.append)
        assert caught.value.status == 400, given
    assert answers == []


def test_the_operators_word_says_where_connectors_go() -> None:
    nowhere, public = Reach.of_connectors(()), Reach.of_connectors(["public"])
    inner, both = Reach.of_connectors(["10.1.0.0/16"]), Reach.of_connectors(["public", "10.1.0.0/16"])
    for address, found in (
        ("93.184.215.14", [public, both]),
        ("10.1.2.3", [inner, both]),
        ("::ffff:10.1.2.3", [inner, both]),
        ("10.2.2.3", []),
        ("127.0.0.1", []),
        ("169.254.169.254", []),
        ("::1", []),
        ("::ffff:127.0.0.1", []),
    ):
        assert [each for each in (nowhere, public, inner, both) if each.allows(address)] == found, address
