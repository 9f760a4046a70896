from __future__ import annotations

import socket
import subprocess
import sys

from enmasse.pipeline.host.reach import Place, Reach
from tests.support.keepalive import keepalive_due_s
from tests.support.polling import until

RELAY = """
import socket
from enmasse.pipeline.host.reach import Place, Reach
from enmasse.pipeline.host.relay import carry
carry(socket.socket(fileno={}), Reach([Place("localhost", {}, is_ours=True)]))
"""


def test_a_place_that_vanishes_is_noticed_outside() -> None:
    runner, relay = socket.socketpair()
    with runner, relay, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        inside = str(Reach([Place("localhost", port, is_ours=True)]).names["localhost"])
        with socket.create_server((inside, port)) as listening:
            command = [sys.executable, "-c", RELAY.format(relay.fileno(), port)]
            process = subprocess.Popen(command, pass_fds=[relay.fileno()])
            relay.close()
            socket.send_fds(runner, [b"."], [listening.fileno()])
        with socket.create_connection((inside, port)) as client:
            client.sendall(b"question")
            outside, _ = server.accept()
            with outside:
                assert outside.recv(8) == b"question"
                assert until(lambda: keepalive_due_s(port)) <= 10
    runner.close()
    assert process.wait(30) == 0
