"""Many clients that connect at once, as after a restart of their node, and try again until they are in.

python benchmarks/storming.py --port 5672 --protocol stomp --count 5000 [--password P] [--host guarded.default]

With a password, client number N is the user ``device-N``. Prints one line of JSON once all are in: seconds, attempts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any

import uvloop

from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import Open, SaslInit
from enmasse.wire.sasl.mechanisms import Plain
from enmasse.wire.stomp.frames import encode_frame

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 4.0
GIVE_UP_S = 10.0
"""Seconds without an answer after which a client tries anew, as most libraries do."""

LIMIT_S = 300.0


class Talk:
    """What a client says: first, and after each of the server's answers."""

    def __init__(self, *steps: tuple[bytes, bytes]) -> None:
        self.steps = steps
        """What is said, and what the answer to it contains."""


def stomp_talk(number: int, host: str, password: str | None) -> Talk:
    headers = [("accept-version", "1.2"), ("host", host)]
    if password is not None:
        headers += [("login", f"device-{number}"), ("passcode", password)]
    return Talk((encode_frame("CONNECT", headers), b"CONNECTED"))


def amqp_talk(number: int, host: str, password: str | None) -> Talk:
    opening = amqp_frame(0, Open(container_id=f"device-{number}", hostname=host))
    if password is None:
        init = SaslInit("ANONYMOUS", b"", host)
    else:
        init = SaslInit("PLAIN", Plain(f"device-{number}", password).response(), host)
    # The outcome is described by 0x44 and its code is 0, the open by 0x10.
    return Talk(
        (SASL_HEADER, b"\x53\x40"),
        (sasl_frame(init), b"\x53\x44\xc0\x03\x01\x50\x00"),
        (AMQP_HEADER + opening, b"\x53\x10"),
    )


TALKS: dict[str, Callable[[int, str, str | None], Talk]] = {"stomp": stomp_talk, "amqp": amqp_talk}


class Client(asyncio.Protocol):
    """One connection of one client."""

    def __init__(self, talk: Talk, done: asyncio.Future[bool]) -> None:
        self._steps = iter(talk.steps)
        self._wanted = b""
        self._heard = b""
        self._done = done
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._say()

    def _say(self) -> None:
        step = next(self._steps, None)
        if step is None:
            if not self._done.done():
                self._done.set_result(True)
            return
        said, self._wanted = step
        self._heard = b""
        self._transport.write(said)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self._wanted in self._heard:
            self._say()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(False)


async def storm(port: int, protocol: str, count: int, host: str, password: str | None) -> dict[str, Any]:
    """Connect all, and hold the connections until the last is in."""
    loop = asyncio.get_running_loop()
    talks = [TALKS[protocol](number, host, password) for number in range(count)]
    attempts = 0
    held: list[asyncio.BaseTransport] = []
    took: list[float] = []
    random.seed(1)
    began = time.perf_counter()

    async def come(talk: Talk) -> None:
        nonlocal attempts
        retry_s = FIRST_RETRY_S
        while True:
            attempts += 1
            done: asyncio.Future[bool] = loop.create_future()
            transport: asyncio.BaseTransport | None = None
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    transport, _ = await loop.create_connection(lambda: Client(talk, done), "127.0.0.1", port)  # noqa: B023
                    if await done:
                        held.append(transport)
                        took.append(time.perf_counter() - began)
                        return
            except OSError:
                pass
            if transport is not None:
                transport.close()
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.5))
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*map(come, talks))
    percentiles = quantiles(took, n=100)
    return {
        "seconds": max(took),
        "p50": percentiles[49],
        "p90": percentiles[89],
        "p99": percentiles[98],
        "attempts": attempts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", choices=TALKS, default="stomp")
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--host", default="")
    parser.add_argument("--password")
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(uvloop.run(storm(given.port, given.protocol, given.count, given.host, given.password))))


if __name__ == "__main__":
    main()
