"""``python -m enmasse.pipeline host``: the process that runs the pipelines of an installation."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from enmasse.engines.embedded.paths import Layout
from enmasse.engines.supervisor.parent import die_with_parent
from enmasse.net.logs import set_up_logging
from enmasse.pipeline.host.api import api_client
from enmasse.pipeline.host.door import serve_door
from enmasse.pipeline.host.host import Host
from enmasse.pipeline.host.settings import HostSettings

__all__ = ["add_arguments", "run", "run_host"]

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command line may say."""
    parser.add_argument("--data", required=True, type=Path, help="data directory of the installation")
    parser.add_argument("--api", required=True, help="URL of the API, on this machine")
    parser.add_argument("--amqp", required=True, help="URL of the node, amqp://HOST:PORT")
    parser.add_argument("--api-auth", choices=["open", "required"], default="open", help="whether it asks who one is")
    parser.add_argument("--quick", action="store_true", help="start Spark sooner, run slower")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--supervised", action="store_true", help="die with the supervisor that started it")


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Do what the command line says; the exit status."""
    settings = HostSettings(
        data=options.data.absolute(),
        api=options.api,
        amqp=options.amqp,
        is_api_open=options.api_auth == "open",
        supervised=options.supervised,
        quick=options.quick,
        log_format=options.log_format,
    )
    if settings.supervised:
        die_with_parent()
    set_up_logging(settings.log_format)
    # Each request would be a line.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return asyncio.run(run_host(settings))


async def run_host(settings: HostSettings) -> int:
    """Run the host until a signal, or until the supervisor ends; the exit status.

    Raises:
        ConfigError: something of the data directory cannot be used.
    """
    layout = Layout(settings.data)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with api_client(settings.api, layout.pipelines_token) as http:
        host = Host(settings, http)
        work = asyncio.create_task(host.run(), name="host")
        door = asyncio.create_task(serve_door(host, layout.pipelines_socket, stop), name="door")
        tasks = [work, door]
        if settings.supervised:
            tasks.append(asyncio.create_task(_end_of_input(), name="supervisor"))
        tasks.append(asyncio.create_task(stop.wait(), name="stop"))  # type: ignore[arg-type]  # its result is not used
        print(json.dumps({"event": "listening", "pid": os.getpid()}), flush=True)  # noqa: T201  # for whoever started us
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        for task in tasks:
            if task is not door:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
    _log.info("stopped")
    return 0


async def _end_of_input() -> None:
    """Wait until the supervisor has died."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(4096):
            pass
    finally:
        transport.close()
