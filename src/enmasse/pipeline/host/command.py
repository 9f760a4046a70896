"""``python -m enmasse.pipeline host``: the process that runs the pipelines of an installation."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.child import die_with_parent, end_of_input
from enmasse.net.logs import set_up_logging
from enmasse.pipeline.host.api import api_client
from enmasse.pipeline.host.host import Host
from enmasse.pipeline.host.settings import HostSettings
from enmasse.pipeline.host.socket_server import serve_socket

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command line."""
    parser.add_argument("--data", required=True, type=Path, help="data directory of the installation")
    parser.add_argument("--folder", type=Path, help="of the pipelines; default: DATA/pipelines")
    parser.add_argument("--api", required=True, help="URL of the API, on this machine")
    parser.add_argument("--amqp", required=True, help="URL of the node, amqp://HOST:PORT")
    parser.add_argument("--domain", default="enmasse.local", help="below which spaces have their hosts")
    parser.add_argument("--api-auth", choices=["token", "open", "required"], default="open", help="how it asks")
    parser.add_argument("--allow-python", action="store_true", help="run users' Python though the API is open")
    parser.add_argument("--quick", action="store_true", help="start Spark sooner, run slower")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--supervised", action="store_true", help="die with the supervisor that started it")


def read_settings(options: argparse.Namespace) -> HostSettings:
    """Return the settings that the command line gives."""
    return HostSettings(
        data=options.data.absolute(),
        api=options.api,
        amqp=options.amqp,
        folder=(options.folder or Layout(options.data).pipelines).absolute(),
        domain=options.domain,
        is_api_open=options.api_auth == "open" and not options.allow_python,
        supervised=options.supervised,
        quick=options.quick,
        log_format=options.log_format,
    )


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Run the host by the command line; return the exit status."""
    settings = read_settings(options)
    if settings.supervised:
        die_with_parent()
    set_up_logging(settings.log_format)
    # Each request would be a line.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return asyncio.run(run_host(settings))


async def run_host(settings: HostSettings) -> int:
    """Run the host until a signal, or until the supervisor ends; return the exit status.

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
        server = asyncio.create_task(serve_socket(host, layout.pipelines_socket, stop), name="socket")
        tasks: list[asyncio.Task[Any]] = [work, server]
        if settings.supervised:
            tasks.append(asyncio.create_task(end_of_input(), name="supervisor"))
        tasks.append(asyncio.create_task(stop.wait(), name="stop"))
        print(json.dumps({"event": "listening", "pid": os.getpid()}), flush=True)  # noqa: T201  # for the process that started this one
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        for task in tasks:
            if task is not server:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
    _log.info("stopped")
    return 0
