"""Users, their proofs and permissions: foreign clients against a node with a file of users."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from enmasse.cli.commands.declare.user import user as user_commands
from enmasse.client import ConnectionDeniedError, Message, Outcome, blocking
from enmasse.errors import UnavailableError
from enmasse.pipeline.errors import AccessError
from enmasse.pipeline.source.frames_client import StreamConnection
from enmasse.pipeline.source.options import SourceOptions
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
PASSWORD = "correct horse"
PATIENCE_S = 60.0


def run_user(*arguments: str, password: str = PASSWORD) -> None:
    """``enmasse user`` with a password on its standard input, without another process."""
    done = CliRunner().invoke(user_commands, arguments, input=f"{password}\n", catch_exceptions=False)
    assert done.exit_code == 0, done.output


class Place(NamedTuple):
    """A node, its file of users, and its management."""

    node: NodeProcess
    users: Path
    management: Any

    def url(self, scheme: str = "amqp") -> str:
        return f"{scheme}://127.0.0.1:{self.node.port}"

    def connected_users(self) -> list[str]:
        return [entity["user"] for entity in self.management.query("io.enmasse.connection")]


def declare(management: Any) -> None:
    for space, authentication in (("shop", "standard"), ("factory", "standard"), ("open", "none")):
        management.create("io.enmasse.space", f"default/{space}", {"authentication": authentication})
        for address in ("orders", "stock", "other"):
            management.create(
                "io.enmasse.address",
                f"default/{space}.{address}",
                {"space": f"default/{space}", "address": address, "addressType": "queue"},
            )
        management.create(
            "io.enmasse.address",
            f"default/{space}.log",
            {"space": f"default/{space}", "address": "log", "addressType": "stream"},
        )


@pytest.fixture(scope="module")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users of two spaces, one of whom may do much, the others less."""
    path = tmp_path_factory.mktemp("users") / "users.yaml"
    both = ("--send", "orders", "--recv", "orders", "--send", "stock", "--recv", "stock")
    run_user("add", "jo", "--space", "shop", "--users", str(path), "--scram-sha-1", *both)
    run_user("add", "reader", "--space", "shop", "--users", str(path), "--recv", "orders")
    run_user("add", "mute", "--space", "shop", "--users", str(path))
    run_user("add", "flo", "--space", "factory", "--users", str(path), "--send", "#", "--recv", "#")
    return path


def serving(data: Path, users: Path, *arguments: str) -> Iterator[Place]:
    with NodeProcess(data, "--users", str(users), *arguments) as node:
        connection = blocking.connect(node.admin_url, timeout=30, patience=30)
        try:
            management = connection.management()
            declare(management)
            yield Place(node, users, management)
        finally:
            connection.close()
        assert "Traceback" not in node.log, node.log
        assert PASSWORD not in node.log


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, users_file: Path) -> Iterator[Place]:
    """A node that takes no passwords over plain TCP."""
    yield from serving(tmp_path_factory.mktemp("strict"), users_file)


@pytest.fixture(scope="module")
def lax(tmp_path_factory: pytest.TempPathFactory, users_file: Path) -> Iterator[Place]:
    """A node that does."""
    yield from serving(tmp_path_factory.mktemp("lax"), users_file, "--allow-insecure-plain")


# python-qpid-proton


@pytest.fixture(scope="module")
def proton_connect() -> Callable[..., Any]:
    """Connects python-qpid-proton."""
    require("python-qpid-proton with SASL and TLS")
    from proton.utils import BlockingConnection

    def connect(place: Place, user: str | None = None, password: str = PASSWORD, **options: Any) -> Any:
        # Without TLS proton names no host before open, so the user's realm names the space.
        named = user if user is None or "@" in user else f"{user}@shop.default"
        return BlockingConnection(place.url(), timeout=PATIENCE_S, user=named, password=password, **options)

    return connect


MECHANISMS = ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_proton_logs_in_and_does_what_its_user_may(
    strict: Place, proton_connect: Callable[..., Any], mechanism: str
) -> None:
    from proton import Message

    connection = proton_connect(strict, "jo", allowed_mechs=mechanism)
    try:
        assert "jo" in strict.connected_users()
        connection.create_sender("orders").send(Message(body=mechanism))
        receiver = connection.create_receiver("orders", credit=1)
        assert receiver.receive(timeout=PATIENCE_S).body == mechanism
        receiver.accept()
    finally:
        connection.close()


def test_proton_sends_its_password_where_that_was_allowed(lax: Place, proton_connect: Callable[..., Any]) -> None:
    proton_connect(lax, "jo", allowed_mechs="PLAIN", allow_insecure_mechs=True).close()


@pytest.mark.parametrize(
    ("user", "password", "options"),
    [
        ("jo", "wrong", {}),
        ("nobody", PASSWORD, {}),
        ("flo", PASSWORD, {}),  # of another space
        ("jo@factory.default", PASSWORD, {}),
        ("jo@gone.default", PASSWORD, {}),
        ("jo@gone.default.enmasse.local", PASSWORD, {}),
        ("reader", PASSWORD, {"allowed_mechs": "SCRAM-SHA-1"}),  # has no keys for that
        (None, "", {"virtual_host": "shop.default"}),
    ],
)
def test_proton_does_not_come_in_otherwise(
    strict: Place, proton_connect: Callable[..., Any], user: str | None, password: str, options: dict[str, Any]
) -> None:
    from proton import ConnectionException

    with pytest.raises(ConnectionException, match="unauthorized-access"):
        proton_connect(strict, user, password, **options)


def test_nobody_is_anonymous_and_a_password_in_the_clear_is_taken_from_this_machine(
    strict: Place, proton_connect: Callable[..., Any]
) -> None:
    from proton import ConnectionException

    given: dict[str, Any] = {"allow_insecure_mechs": True}
    with pytest.raises(ConnectionException, match="unauthorized-access"):
        proton_connect(strict, "jo", allowed_mechs="ANONYMOUS", virtual_host="shop.default", **given)
    connection = proton_connect(strict, "jo@shop.default", allowed_mechs="PLAIN", **given)
    try:
        assert "jo" in strict.connected_users()
    finally:
        connection.close()


def test_a_space_for_everybody_stays_that_beside_others(strict: Place, proton_connect: Callable[..., Any]) -> None:
    proton_connect(strict, virtual_host="open.default", allowed_mechs="ANONYMOUS").close()


def test_the_users_realm_may_name_the_space(strict: Place, proton_connect: Callable[..., Any]) -> None:
    connection = proton_connect(strict, "flo@factory.default")
    try:
        assert "flo" in strict.connected_users()
    finally:
        connection.close()


def test_open_names_no_other_space_than_the_users(strict: Place, proton_connect: Callable[..., Any]) -> None:
    from proton.utils import ConnectionClosed

    with pytest.raises(ConnectionClosed, match="amqp:not-allowed"):
        proton_connect(strict, "jo", virtual_host="factory.default")


@pytest.mark.parametrize(
    ("user", "role", "address"),
    [
        ("reader", "sender", "orders"),
        ("reader", "receiver", "stock"),
        ("jo", "sender", "other"),
        ("jo", "receiver", "other"),
        ("jo", "sender", "$management"),
        ("jo", "sender", "no-such-address"),
        ("mute", "sender", "orders"),
        ("mute", "receiver", "orders"),
    ],
)
def test_a_link_that_nothing_allows_is_refused(
    strict: Place, proton_connect: Callable[..., Any], user: str, role: str, address: str
) -> None:
    from proton.utils import LinkDetached

    connection = proton_connect(strict, user)
    try:
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            (connection.create_sender if role == "sender" else connection.create_receiver)(address)
    finally:
        connection.close()


# rhea


@pytest.fixture(scope="module")
def rhea_login() -> Callable[..., dict[str, Any]]:
    """Logs in with rhea; what it reports."""
    require("rhea")

    def login(place: Place, address: str | None, **options: Any) -> dict[str, Any]:
        done = subprocess.run(
            [
                "node", str(HERE / "rhea_login.js"),
                json.dumps({"port": place.node.port, "address": address, "options": options}),
            ],
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return login


def test_rhea_logs_in_by_plain(lax: Place, rhea_login: Callable[..., dict[str, Any]]) -> None:
    for user, options in (("jo", {"sasl_init_hostname": "shop.default"}), ("jo@shop.default", {})):
        report = rhea_login(lax, "stock", username=user, password=PASSWORD, **options)
        assert report == {"opened": True, "outcome": "accepted", "received": "hello", "errors": [], "end": "closed"}


@pytest.mark.parametrize(
    ("user", "password"),
    [("jo@shop.default", "wrong"), ("nobody@shop.default", PASSWORD), ("jo@factory.default", PASSWORD)],
)
def test_rhea_does_not_come_in_otherwise(
    lax: Place, rhea_login: Callable[..., dict[str, Any]], user: str, password: str
) -> None:
    report = rhea_login(lax, None, username=user, password=password)
    assert not report["opened"]
    assert report["errors"]


def test_rhea_is_refused_a_link_that_nothing_allows(lax: Place, rhea_login: Callable[..., dict[str, Any]]) -> None:
    report = rhea_login(lax, "other", username="jo@shop.default", password=PASSWORD)
    assert report["opened"]
    assert [error["condition"] for error in report["errors"]] == ["amqp:unauthorized-access"]


# Pipelines


def test_a_pipeline_is_who_its_environment_says(strict: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = SourceOptions.parse({"url": strict.url(), "address": "log", "space": "factory.default"})
    with pytest.raises(AccessError, match="unauthorized-access"):
        StreamConnection(strict.url(), asked)
    monkeypatch.setenv("ENMASSE_USER", "flo")
    monkeypatch.setenv("ENMASSE_PASSWORD", PASSWORD)
    client = StreamConnection(strict.url(), asked)
    try:
        assert client.state() is not None
        assert "flo" in strict.connected_users()
    finally:
        client.close()


# Changes while clients are there


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Place]:
    """A node whose file of users a test may change."""
    users = tmp_path / "users.yaml"
    run_user("add", "jo", "--space", "shop", "--users", str(users), "--send", "orders", "--recv", "#")
    run_user("add", "bo", "--space", "shop", "--users", str(users), "--send", "#")
    yield from serving(tmp_path / "data", users)


def connect_python(place: Place, user: str) -> blocking.Connection:
    return blocking.connect(
        place.url(), user=user, password=PASSWORD, hostname="shop.default", timeout=PATIENCE_S, reconnect=False
    )


def test_a_change_of_the_file_reaches_those_that_are_there(changing: Place) -> None:
    users = changing.users

    def sends_to(address: str) -> bool:
        return any(link["address"] == address for link in changing.management.query("io.enmasse.link"))

    with connect_python(changing, "jo") as jo, connect_python(changing, "bo"):
        assert jo.sender("orders").send(Message(1)) == Outcome.ACCEPTED
        run_user("remove", "bo", "--space", "shop", "--users", str(users))
        os.kill(changing.node.pid, signal.SIGHUP)
        until(lambda: "bo" not in changing.connected_users())
        run_user("add", "new", "--space", "shop", "--users", str(users), "--send", "stock")
        until(lambda: "read again: 2 users" in changing.node.log)
        connect_python(changing, "new").close()
        text = users.read_text()
        users.write_text("users: [")
        until(lambda: "not understood" in changing.node.log)
        assert jo.sender("orders").send(Message(2)) == Outcome.ACCEPTED
        users.write_text(text.replace("- orders", "- stock"))
        until(lambda: not sends_to("orders"))
        assert jo.sender("stock").send(Message(3)) == Outcome.ACCEPTED


def test_a_space_that_asks_for_users_from_now_on_keeps_nobody_else(changing: Place) -> None:
    with blocking.connect(changing.url(), hostname="open.default", timeout=PATIENCE_S, reconnect=False):
        assert changing.connected_users().count("anonymous") == 2, "the other one is this test's management"
        changing.management.update("io.enmasse.space", "default/open", {"authentication": "standard"})
        until(lambda: changing.connected_users().count("anonymous") == 1)


def test_who_guesses_is_slowed_down_and_others_are_not(changing: Place) -> None:
    def refusal(user: str) -> str:
        with pytest.raises((ConnectionDeniedError, UnavailableError)) as refused:
            blocking.connect(
                changing.url(), user=user, password="guess", hostname="shop.default", timeout=30, reconnect=False
            )
        return str(refused.value)

    heard = [refusal("jo") for _ in range(7)]
    assert "refused the credentials" in heard[0]
    assert "try again later" in heard[-1]
    connect_python(changing, "bo").close()


def test_without_its_users_a_space_stays_closed(tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    run_user("add", "jo", "--space", "shop", "--users", str(users), "--send", "#")
    for _ in serving(tmp_path / "data", users):
        pass
    with NodeProcess(tmp_path / "data") as node:
        assert "nobody can enter" in node.log
        for user, password in ((None, None), ("jo", PASSWORD)):
            with pytest.raises(ConnectionDeniedError):
                blocking.connect(
                    node.url, user=user, password=password, hostname="shop.default", timeout=30, reconnect=False
                )


def test_without_the_file_a_node_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="enmasse user add"):
        NodeProcess(tmp_path / "data", "--users", str(tmp_path / "gone.yaml")).start()


def own_address() -> str:
    """An address of this machine that is not the loopback interface's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no other address than the loopback interface's")
        return str(probe.getsockname()[0])


def test_other_machines_come_in_with_users_only(tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    run_user("add", "jo", "--space", "shop", "--users", str(users), "--send", "#")
    address = own_address()
    for place in serving(tmp_path / "data", users, "--listen", f"{address}:0"):
        (port,) = [item["port"] for item in place.management.query("io.enmasse.listener") if item["host"] == address]
        url = f"amqp://{address}:{port}"
        blocking.connect(url, user="jo@shop.default", password=PASSWORD, timeout=30, reconnect=False).close()
        with pytest.raises(ConnectionDeniedError):
            blocking.connect(url, hostname="open.default", timeout=30, reconnect=False)
