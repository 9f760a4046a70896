"""What a probe tells of a node that serves, of one that does not, and of another program in its place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, Process
from enmasse.drivers.supervisor.probes import failed_probes

READY = "[+] journal\nnode-0: readyz passed\n"
OURS = (Process("node", "node-0", 1), Process("node", "node-1", 2))


def http(status: str, text: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A port whose every client is sent this, and then the end; None: nothing is sent, nor the end."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # it is closed
                while True:
                    client, _ = listening.accept()
                    kept.append(client)
                    if answer is not None:
                        client.recv(65_536)
                        client.sendall(answer)
                        client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(20)
    for client in kept:
        client.close()


NODES = {
    "a node that is ready": (http("200 OK", READY), ""),
    "a node that is not": (
        http("503 Service Unavailable", "[+] listeners\n[-] journal: lost\nnode-0: readyz failed\n"),
        "status 503: [-] journal: lost",
    ),
    "the other node that is ready": (http("200 OK", READY.replace("node-0", "node-1")), ""),
    "another node": (http("200 OK", READY.replace("node-0", "node-7")), "another node answers there"),
    "another program of HTTP": (http("200 OK", "hello"), "what answers there is another program (status 200)"),
    "a program of another protocol": (b"220 mail.example.com\r\n", "what answers there is another program"),
    "one that hangs up": (b"", "the connection was closed without an answer"),
    "one that accepts and never answers": (None, "no answer in 0.2 s"),
}
APIS = {
    "a request without a login": (http("401 Unauthorized", "log in"), ""),
    "an API that fails": (http("503 Service Unavailable", "store"), "status 503"),
}


@pytest.mark.parametrize(
    ("protocol", "scheme", "answer", "problem"),
    [
        *[("mqtt", "mqtt", *case) for case in NODES.values()],
        *[("registry", "http", *case) for case in APIS.values()],
    ],
    ids=[*NODES, *APIS],
)
def test_an_endpoint_serves_or_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, protocol: str, scheme: str, answer: bytes | None, problem: str
) -> None:
    monkeypatch.setattr("enmasse.drivers.supervisor.probes.TIMEOUT_S", 0.2 if answer is None else 20.0)
    with answering(answer) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        assert failed_probes(Endpoints((Endpoint(protocol, url),), OURS)) == (
            [f"{url}: {problem}"] if problem else []
        )


def test_endpoints_with_the_same_problem_are_one_sentence() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens
        urls = [f"{scheme}://127.0.0.1:{held.getsockname()[1]}" for scheme in ("amqp", "stomps", "https")]
        found = failed_probes(Endpoints(tuple(Endpoint(url.partition(":")[0], url) for url in urls), OURS))
    assert found == [f"{', '.join(urls)}: Connection refused"]
