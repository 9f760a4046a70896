"""What TLS costs a server: ours, the event loop's own, and the TLS library by itself.

A server of its own process is sent bytes, sends them, or answers each chunk with one of the same size,
without TLS and with it. What TLS adds to its CPU time is compared with what the library takes for the
same records in memory. The client's CPU time is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from enmasse.drivers.authority import Authority
from enmasse.net import loop as net_loop
from enmasse.net.tls_layer import RECORD_BYTES, SLICE_BYTES, TlsLayer
from enmasse.net.transport import HIGH_WATER, LOW_WATER
from enmasse.node.main import keep_heap

SIZES = {"in": (128, 2_000, 64 << 10), "out": (128, 2_000, 64 << 10), "echo": (128, 2_000, 16_000)}
SHELLS = ("plain", "uvloop", "ours")
READ_BYTES = 256 << 10
"""What the event loop reads at once."""


def server_context(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    return context


def client_context(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "ca.crt"))


class Traffic(asyncio.Protocol):
    """Takes bytes, sends them, or answers; and says at the end what this has cost."""

    def __init__(self, mode: str, size: int, total: int, done: asyncio.Future[float]) -> None:
        self.mode, self.size, self.left, self.done = mode, size, total, done
        self.chunk = bytes(size)
        self.gathered = 0
        self.began = 0.0
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.began:  # the client's first byte says that it is ready
            self.began = time.process_time()
            if self.mode == "out":
                self.send()
            return
        self.left -= len(data)
        if self.mode == "echo":
            self.gathered += len(data)
            while self.gathered >= self.size:
                self.gathered -= self.size
                self.transport.write(self.chunk)
        if self.left <= 0:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(time.process_time() - self.began)

    def send(self) -> None:
        for _ in range(max(1, (64 << 10) // self.size)):
            if self.left <= 0:
                self.transport.close()
                return
            self.transport.write(self.chunk)
            self.left -= self.size
        if not self.is_paused:
            asyncio.get_running_loop().call_soon(self.send)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        if self.mode == "out":
            self.send()


async def serve(shell: str, mode: str, size: int, total: int, directory: Path) -> None:
    keep_heap()  # as a node does
    loop = asyncio.get_running_loop()
    done: asyncio.Future[float] = loop.create_future()
    context = server_context(directory)

    def make() -> asyncio.BaseProtocol:
        traffic = Traffic(mode, size, total, done)
        return TlsLayer(traffic, context) if shell == "ours" else traffic

    tls = context if shell == "uvloop" else None
    server = await loop.create_server(make, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    print(await done, flush=True)
    server.close()


def measure(shell: str, mode: str, size: int, total: int, directory: Path) -> float:
    """CPU seconds of a server for ``total`` bytes."""
    command = [sys.executable, __file__, "--serve", shell, mode, str(size), str(total), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if shell != "plain":
            sock = client_context(directory).wrap_socket(sock, server_hostname="localhost")
        with sock:
            sock.settimeout(60)
            sock.sendall(b"!")
            time.sleep(0.2)
            chunk, left = bytes(size), total
            while left > 0:
                if mode != "out":
                    sock.sendall(chunk)
                if mode == "in":
                    left -= size
                    continue
                wanted = size if mode == "echo" else min(left, READ_BYTES)
                while wanted > 0:
                    got = len(sock.recv(wanted))
                    if not got:
                        raise ConnectionError("the server hung up")
                    wanted -= got
                    left -= got
        return float(server.stdout.readline())


def measure_library(mode: str, size: int, total: int, directory: Path) -> float:
    """CPU seconds of the library for the same bytes in the same records, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(directory).wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context(directory).wrap_bio(to_server, to_client, server_side=True)
    waits = [client, server]
    while waits:
        try:
            waits[0].do_handshake()
            waits.pop(0)
        except ssl.SSLWantReadError:
            waits.reverse()
    spent = 0.0
    chunk = bytes(size)
    batch = 1 if mode == "echo" else max(1, SLICE_BYTES // size)
    left = total
    while left > 0:
        if mode != "out":
            for _ in range(batch):
                client.write(chunk)
            sealed = to_server.read()
            began = time.process_time()
            to_server.write(sealed)
            while to_server.pending:
                server.read(RECORD_BYTES)
            spent += time.process_time() - began
        if mode != "in":
            began = time.process_time()
            for _ in range(batch):
                server.write(chunk)
                to_client.read()
            spent += time.process_time() - began
        left -= batch * size
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, default=64, help="bytes of each run with large chunks")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--case", metavar="MODE", choices=SIZES, help="only this one of in, out and echo")
    options = parser.parse_args()
    if options.serve:
        shell, mode, size, total, directory = options.serve
        net_loop.run(serve(shell, mode, int(size), int(total), Path(directory)))
        return
    with TemporaryDirectory() as name:
        directory = Path(name)
        authority = Authority(directory)
        authority.keep_server_certificate("server", ("localhost", "127.0.0.1"))
        (directory / "ca.crt").write_bytes(authority.certificate())
        print(f"{ssl.OPENSSL_VERSION}; CPU microseconds of the server per chunk, best of {options.runs}")
        print(
            f"{'mode':5}{'bytes':>7}{'plain':>9}{'uvloop':>9}{'ours':>9}{'library':>9}"
            f"{'uvloop adds':>13}{'ours adds':>11}"
        )
        for mode in [options.case] if options.case else SIZES:
            for size in SIZES[mode]:
                total = options.megabytes << 20
                count = min(20_000 if mode == "echo" else 400_000, total // size)
                total = count * size
                best: dict[str, float] = {}
                for _ in range(options.runs):
                    for shell in SHELLS:
                        best[shell] = min(best.get(shell, 1e9), measure(shell, mode, size, total, directory))
                    best["library"] = min(best.get("library", 1e9), measure_library(mode, size, total, directory))
                each = {shell: seconds / count * 1e6 for shell, seconds in best.items()}
                added = [(each[shell] - each["plain"]) / each["library"] for shell in ("uvloop", "ours")]
                figures = "".join(f"{each[shell]:9.2f}" for shell in (*SHELLS, "library"))
                print(f"{mode:5}{size:7}{figures}{added[0]:12.2f}x{added[1]:10.2f}x", flush=True)


if __name__ == "__main__":
    main()
