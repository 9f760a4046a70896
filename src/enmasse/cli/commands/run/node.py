"""``enmasse node``: one data-plane process.

It is started again in the middle of traffic, so it imports nothing of the
rest of the command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.cli.node_options import (
    ALLOW_INSECURE_PLAIN,
    CONNECTOR_NETWORK,
    DRAIN_DELAY,
    HTTP_NAME,
    PROXY_CERTIFICATE_NAMES,
    PROXY_FROM,
    USERS,
    WEB_ORIGIN,
    names_of,
)
from enmasse.drivers.data_directory import Layout, make_private
from enmasse.drivers.supervisor.child import die_with_parent
from enmasse.drivers.supervisor.endpoints import machine_names, require_loopback
from enmasse.errors import ConfigError
from enmasse.messaging.transaction import TRANSACTION_TIMEOUT_S
from enmasse.net.connection_limiter import ConnectionLimits
from enmasse.net.egress import PROXIES, Reach, networks_of
from enmasse.net.logs import FORMATS
from enmasse.node.main import listening_place, run
from enmasse.node.ports import PortOptions
from enmasse.node.protocols import PROTOCOLS
from enmasse.node.tenancy import DOMAIN
from enmasse.node.users.gate import MAX_USER_CONNECTIONS, GateOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.net.shared_listener import Siblings


def run_node(arguments: Sequence[str]) -> int:
    """Run a node with the arguments of the command line; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        listen = [listening_place(text) for text in options.listen or ["127.0.0.1:5672"]]
        hosts = [place.host for place in listen]
        for host in hosts:
            if options.users is None:
                require_loopback(host)
        make_private(options.data)
        os.umask(0o077)
        names = names_of(options.http_name)
        reach = Reach.of_connectors(options.connector_network or ())
        proxies = networks_of(PROXIES, options.proxy_from or ())
        admin = options.admin
        if admin is None:
            admin = Layout(options.data).admin_socket(options.name)
            make_private(admin.parent)
    except ConfigError as error:
        print(f"enmasse node: {error}", file=sys.stderr)  # noqa: T201  # rich is not imported here
        return 1
    if (options.management is None) != (options.management_tls is None):
        print("enmasse node: --management and --management-tls go together", file=sys.stderr)  # noqa: T201  # the same
        return 1
    if options.peers is not None and options.peers_secret is None and not options.supervised:
        print("enmasse node: --peers needs --peers-secret", file=sys.stderr)  # noqa: T201  the same
        return 1
    if options.supervised:
        die_with_parent()
    return run(
        data=options.data,
        name=options.name,
        listen=listen,
        admin=admin,
        default_space=options.default_space,
        supervised=options.supervised,
        transaction_timeout_s=options.transaction_timeout,
        log_format=options.log_format,
        users=options.users,
        domain=options.domain.lower(),
        machine=machine_names(hosts),
        management=None if options.management is None else (options.management, options.management_tls),
        reach=reach,
        peers=None if options.peers is None else (options.peers, options.peers_secret),
        drain_delay_s=options.drain_delay,
        gate=GateOptions(
            allow_insecure_plain=options.allow_insecure_plain,
            allow_anonymous=options.allow_anonymous,
            max_user_connections=options.max_connections_per_user,
        ),
        ports=PortOptions(
            tls=options.tls,
            limits=ConnectionLimits(
                max_connections=options.max_connections,
                max_connections_per_host=options.max_connections_per_host,
                max_handshakes=options.max_handshakes,
                handshake_timeout_s=options.handshake_timeout,
            ),
            origins=tuple(options.web_origin or ()),
            names=names,
            proxy_from=proxies,
            proxy_certificate_names=options.proxy_certificate_names,
            siblings=options.siblings,
            has_peers=options.peers is not None,
        ),
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; seconds are expected, such as 60 or 0.5")
    return seconds


def _count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of connections; 1 or more is expected")
    return int(text)


def _siblings(text: str) -> Siblings:
    from enmasse.net.shared_listener import Siblings  # noqa: PLC0415  few nodes have some

    descriptor, _, index = text.partition(":")
    try:
        return Siblings(int(descriptor), int(index))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} names no siblings: {error}") from None


def _add_port_options(parser: argparse.ArgumentParser) -> None:
    limits = ConnectionLimits()
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help="certificates: NAME.crt with NAME.key (PEM), default.crt for clients that name no host, clients-ca.crt "
        "for client certificates; read again when they change",
    )
    parser.add_argument(
        "--max-connections",
        type=_count,
        default=limits.max_connections,
        metavar="N",
        help=f"refuse connections beyond so many (default: {limits.max_connections})",
    )
    parser.add_argument(
        "--max-connections-per-host",
        type=int,
        default=limits.max_connections_per_host,
        metavar="N",
        help="refuse an IP address's connections beyond so many; 0 is without limit (default: 0)",
    )
    parser.add_argument(
        "--max-handshakes",
        type=_count,
        default=limits.max_handshakes,
        metavar="N",
        help=f"how many connections may be about to open at once (default: {limits.max_handshakes})",
    )
    parser.add_argument(
        "--handshake-timeout",
        type=_seconds,
        default=limits.handshake_timeout_s,
        metavar="SECONDS",
        help=f"end a connection that has not opened by then (default: {limits.handshake_timeout_s:g})",
    )
    parser.add_argument(
        "--siblings",
        type=_siblings,
        metavar="FD:INDEX",
        help="memory, inherited as descriptor FD, in which nodes that listen on the same inherited sockets tell each "
        "other how many connections they have; this one is number INDEX",
    )
    WEB_ORIGIN.add_to(parser, action="append")
    HTTP_NAME.add_to(parser, action="append")
    CONNECTOR_NETWORK.add_to(parser, action="append")
    PROXY_FROM.add_to(parser, action="append")
    PROXY_CERTIFICATE_NAMES.add_to(parser)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enmasse node",
        description="Run one data-plane node: AMQP listeners, messaging core and journal. "
        "It serves what a control process has configured last, until one configures something else.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("ENMASSE_DATA", ".enmasse")),
        metavar="DIR",
        help="data directory; the node's files lie in DIR/nodes/NAME (default: $ENMASSE_DATA or .enmasse)",
    )
    parser.add_argument("--name", default="node-0", help="the node's name (default: node-0)")
    parser.add_argument(
        "--listen",
        action="append",
        metavar="[PROTOCOL=]HOST:PORT",
        help="where clients connect; may be given more than once (default: 127.0.0.1:5672). All protocols are spoken "
        f"there; who is not recognised speaks PROTOCOL ({', '.join(PROTOCOLS)}). fd:N in the place of HOST:PORT is "
        "the inherited descriptor N, a socket that is bound",
    )
    parser.add_argument(
        "--default-space",
        metavar="NAMESPACE/SPACE",
        help="whose clients are that name no space (default: the only one)",
    )
    parser.add_argument(
        "--domain",
        default=DOMAIN,
        metavar="DOMAIN",
        help=f"spaces have hosts below it: SPACE.NAMESPACE.DOMAIN (default: {DOMAIN})",
    )
    USERS.add_to(parser, type=Path)
    ALLOW_INSECURE_PLAIN.add_to(parser)
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="let clients on other machines into spaces with authentication `none`, where they may do everything",
    )
    parser.add_argument(
        "--max-connections-per-user",
        type=int,
        default=MAX_USER_CONNECTIONS,
        metavar="N",
        help=f"refuse a user's connections beyond so many; 0 is without limit (default: {MAX_USER_CONNECTIONS})",
    )
    _add_port_options(parser)
    parser.add_argument(
        "--management",
        metavar="HOST:PORT",
        help="where the control process on another machine manages this node, by TLS with certificates on both sides",
    )
    parser.add_argument(
        "--management-tls",
        type=Path,
        metavar="DIR",
        help="certificates for --management, as `enmasse certificate node` writes them; read again when they change",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="DIR",
        help="where nodes of one installation hand connections over to each other: each has a socket there, DIR/NAME"
        ".sock; a directory of this user alone",
    )
    parser.add_argument(
        "--peers-secret",
        type=Path,
        metavar="FILE",
        help="the secret of these nodes in hexadecimal, 16 bytes or more; with --supervised it is in the "
        "supervisor's word",
    )
    parser.add_argument("--admin", type=Path, metavar="PATH", help="unix socket for management (default: its own)")
    parser.add_argument(
        "--transaction-timeout",
        type=_seconds,
        default=TRANSACTION_TIMEOUT_S,
        metavar="SECONDS",
        help="roll a transaction back that is not discharged by then; 0 waits for ever (default: 60)",
    )
    DRAIN_DELAY.add_to(parser, type=_seconds, default=0.0)
    parser.add_argument(
        "--log-format", choices=FORMATS, default="text", help="how each line on standard error is written"
    )
    parser.add_argument(
        "--supervised", action="store_true", help="report to a supervisor and die with it; see the reference"
    )
    return parser
