"""Foreign programs and libraries that tests need: is one here, and which command brings what is not.

A test says ``require("rhea")``, in its body, in a fixture or at the top of its file. Where the tool is missing
the test skips, and the end of the run names it; with ``CI=true`` the test fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.session import require_spark

__all__ = [
    "HAPROXY",
    "MOSQUITTO",
    "PROMETHEUS",
    "TELEGRAF",
    "TOOLS",
    "as_nobody",
    "bring",
    "is_here",
    "missing_tool",
    "require",
]

IS_CI = os.environ.get("CI") == "true"
HERE = Path(__file__).parents[1] / "tools"
"""Where ``tests/install-tools`` puts what does not come from apt."""

HAPROXY = HERE / "haproxy"
TELEGRAF = HERE / "telegraf"
"""The folders of their commands."""

PROMETHEUS = HERE / "prometheus/usr/bin/prometheus"

EXAMPLES = Path("/usr/share/proton/examples")
HEADERS = Path("/usr/include/proton")
MOSQUITTO = Path("/usr/sbin/mosquitto")
"""In a folder of commands that only root searches."""

_REASON = "missing tool: "

Look = Callable[[], bool]


def _commands(*names: str) -> Look:
    return lambda: all(shutil.which(name) for name in names)


def _files(*paths: Path) -> Look:
    return lambda: all(path.exists() for path in paths)


def _jars(*patterns: str) -> Look:
    return lambda: all(any((HERE / "java").glob(f"{pattern}.jar")) for pattern in patterns)


def _module(name: str) -> Look:
    return lambda: find_spec(name) is not None


@cache
def _proton() -> bool:
    if find_spec("proton") is None:
        return False
    from proton import _reactor

    # Each container makes settings for TLS, of which no test here changes any: a tenth of a second of work.
    setattr(_reactor, "SSLConfig", cache(_reactor.SSLConfig))  # noqa: B010  it is a class, and is to be a function
    return True


def _secure_proton() -> bool:
    """Without the headers of OpenSSL and Cyrus SASL it is built nevertheless, and lacks TLS and SCRAM."""
    if not _proton():
        return False
    from proton import SASL, SSL

    return bool(SASL.extended() and SSL.present())


def _spark() -> bool:
    try:
        require_spark()
    except SparkMissingError:
        return False
    return True


class Tool(NamedTuple):
    """What must be here: what only root can install, and what comes from elsewhere."""

    as_root: tuple[Look, ...]
    elsewhere: Look = lambda: True


TOOLS = {
    "a C compiler": Tool((_commands("cc"),)),
    "a JDK": Tool((_commands("javac", "keytool"),)),
    "aiomqtt": Tool((), _module("aiomqtt")),
    "an S3 server": Tool((_commands("go"),), _files(HERE / "versitygw")),
    "Artemis": Tool((_commands("java", "mvn"),), _files(HERE / "artemis.version")),
    "atheris": Tool((), _module("atheris")),
    "chromium": Tool((_commands("chromium"),)),
    "CloudEvents' library for Node.js": Tool(
        (_commands("node", "npm"),), _files(HERE / "node_modules/cloudevents", HERE / "node_modules/mqtt")
    ),
    "curl": Tool((_commands("curl"),)),
    "Grafana's schema": Tool((_commands("node", "npm"),), _files(HERE / "node_modules/@grafana/schema")),
    "HAProxy": Tool((), _files(HAPROXY / "haproxy")),
    "Java 17 for Spark": Tool((_spark,)),
    "Eclipse Paho and HiveMQ's client for Java": Tool(
        (_commands("javac", "mvn"),), _jars("org.eclipse.paho.mqttv5.client-*", "hivemq-mqtt-client-*")
    ),
    "fe2o3-amqp": Tool((_commands("cargo"),), _files(HERE / "rust-client")),
    "go-amqp": Tool((_commands("go"),), _files(HERE / "go-client")),
    "Eclipse Hono's client": Tool((_commands("javac", "mvn"),), _files(HERE / "hono/pom.xml")),
    "Keycloak": Tool((_commands("java", "mvn"),), _files(HERE / "keycloak.version")),
    "kubectl": Tool((), _files(HERE / "kubectl/usr/bin/kubectl")),
    "mosquitto": Tool((_files(MOSQUITTO),)),
    "mosquitto_pub and mosquitto_sub": Tool((_commands("mosquitto_pub", "mosquitto_sub"),)),
    "MQTT.js": Tool((_commands("node", "npm"),), _files(HERE / "node_modules/mqtt")),
    "Node-RED": Tool((_commands("node", "npm"),), _files(HERE / "node-red/node_modules/node-red")),
    "Node.js": Tool((_commands("node", "npm"),)),
    "openssl": Tool((_commands("openssl"),)),
    "paho-mqtt": Tool((), _module("paho")),
    "Proton for C, and its examples": Tool(
        (_commands("gcc"), _files(EXAMPLES / "c/send.c", HEADERS / "proactor.h")),
    ),
    "Proton for C++": Tool((_commands("g++"), _files(HEADERS / "container.hpp"))),
    "Proton's examples for Python": Tool((_files(EXAMPLES / "python/simple_send.py"),)),
    "PostgreSQL": Tool((lambda: any(Path("/usr/lib/postgresql").glob("*/bin/initdb")),)),
    "Prometheus": Tool((), _files(PROMETHEUS)),
    "ps": Tool((_commands("ps"),)),
    "python-qpid-proton": Tool((_proton,)),
    "python-qpid-proton with SASL and TLS": Tool((_secure_proton,)),
    "Qpid JMS and ProtonJ2": Tool((_commands("javac", "mvn"),), _files(HERE / "java/pom.xml")),
    "RabbitMQ": Tool((), _files(HERE / "rabbitmq.version")),
    "rhea": Tool((_commands("node", "npm"),), _files(HERE / "node_modules/rhea", HERE / "node_modules/ws")),
    "stompjs": Tool(
        (_commands("node", "npm"),), _files(HERE / "node_modules/@stomp/stompjs", HERE / "node_modules/ws")
    ),
    "Telegraf": Tool((_commands("go"),), _files(TELEGRAF / "telegraf")),
    "tshark": Tool((_commands("tshark"),)),
}
"""By the name that a run says at its end; ``tests/install-tools`` brings all of them."""


@cache
def is_here(name: str) -> bool:
    """Say whether a tool can be used."""
    tool = TOOLS[name]
    return tool.elsewhere() and all(look() for look in tool.as_root)


def bring(names: Iterable[str]) -> str:
    """The one command that brings all of these."""
    as_root = (look for name in names for look in TOOLS[name].as_root)
    return "make test-tools" if os.geteuid() == 0 or all(look() for look in as_root) else "sudo make test-tools"


def require(*names: str) -> None:
    """Skip the test, or the file that is being read, unless all of these are here; with ``CI=true`` fail."""
    __tracebackhide__ = True  # a report names the line that asks
    for name in names:
        if not is_here(name):
            if IS_CI:
                pytest.fail(f"{_REASON}{name}; `{bring([name])}` brings it", pytrace=False)
            pytest.skip(f"{_REASON}{name}", allow_module_level=True)


def as_nobody() -> list[str]:
    """The words that run a command as nobody; skips the test where other users cannot read this program."""
    words = ["setpriv", "--reuid", "65534", "--clear-groups"]
    try:
        # Only what it starts in its turn has lost all that root may.
        script = (
            "import subprocess, sys, enmasse; subprocess.run([sys.executable, '-c', 'import enmasse'], check=True)"
        )
        subprocess.run([*words, sys.executable, "-c", script], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs setpriv, and a program that other users can read: not one below /root, say")
    return words


def missing_tool(reason: str) -> str | None:
    """The tool that a test was skipped for; None if it was for another reason."""
    return reason.removeprefix(_REASON) if reason.startswith(_REASON) else None
