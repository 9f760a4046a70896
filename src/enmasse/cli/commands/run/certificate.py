"""``enmasse ca`` and ``enmasse certificate``: what clients need to trust an installation, and to be known by it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.drivers.authority import CLIENT_DAYS, Authority
from enmasse.drivers.data_directory import Layout

certificate = typer.Typer(no_args_is_help=True, help="Certificates by which clients prove who they are.")


def ca(data: Data = DEFAULT_DATA) -> None:
    """Print the certificate (PEM) of the authority that vouches for this installation.

    Clients that are given it trust the installation's `amqps` endpoint.
    """
    sys.stdout.write(_authority(data).certificate().decode())


@certificate.command("issue")
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for; becomes the common name.")],
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where NAME.crt and NAME.key are written.")
    ] = Path(),
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it holds.")] = CLIENT_DAYS,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="For the API: of which NAME is a member there; repeatable."),
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Issue a certificate for a client, with a new key.

    The client shows it in the TLS handshake, and then chooses the SASL mechanism EXTERNAL.
    With --group it is good for the API too, where NAME is the user.
    """
    if "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} is also the name of two files: it may not hold a slash nor begin with a dot")
    written = _authority(data).issue_client(name, days, group or ()).write(directory, name)
    Writer().say("\n".join(str(path) for path in written))


@certificate.command("node")
def node(
    host: Annotated[
        list[str], typer.Option("--host", metavar="HOST", help="By which control calls the node; repeatable.")
    ],
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where the files are written; then copy it there.")
    ],
    data: Data = DEFAULT_DATA,
) -> None:
    """Certify a node on another machine, for its management by this installation's control process.

    The node is given DIR with --management-tls, and lets nobody manage it but
    the control process that has this installation's certificate.
    """
    written = _authority(data).issue_node(host, directory)
    Writer().say("\n".join(str(path) for path in written))


def _authority(data: Path) -> Authority:
    authority = Authority(Layout(data).tls)
    if not authority.path.exists():
        raise NotFoundError(
            f"{data} has no authority yet: `enmasse up --data {data}` makes it at its first start; or name another "
            "directory with --data or ENMASSE_DATA"
        )
    return authority
