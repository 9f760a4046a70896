"""``enmasse user``: a file of messaging users, for nodes to read."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.output import Writer, make_table
from enmasse.cli.passwords import ask_password
from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError, RemoteError
from enmasse.identity.permissions import OPERATIONS, Grant, Permissions
from enmasse.identity.users import (
    DEFAULT_ITERATIONS,
    DEFAULT_MECHANISMS,
    SALT_BYTES,
    User,
    Users,
    make_keys,
    space_name,
    user_name,
)
from enmasse.identity.users_file import read_users, write_users
from enmasse.node.patterns import matcher_of
from enmasse.node.users.users_file import load_users

SEED_BYTES = 32

_SHA_1 = "SCRAM-SHA-1"

user = typer.Typer(no_args_is_help=True, help="Make and change the file of users that `up` and `node` read.")

UsersPath = Annotated[Path, typer.Option("--users", metavar="FILE", help="The file of users.", show_default=False)]
Space = Annotated[str, typer.Option("--space", metavar="SPACE", help="SPACE or NAMESPACE/SPACE.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Patterns = list[str]


@user.command("add")
def add(
    name: Name,
    users: UsersPath,
    space: Space,
    send: Annotated[
        Patterns | None, typer.Option("--send", metavar="PATTERN", help="Addresses to send to; repeatable.")
    ] = None,
    recv: Annotated[
        Patterns | None, typer.Option("--recv", metavar="PATTERN", help="Addresses to receive from; repeatable.")
    ] = None,
    certificate: Annotated[
        Patterns | None,
        typer.Option("--certificate", metavar="CN", help="A name in a client certificate that proves the user."),
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="A certificate is the only way in; no password is read.")
    ] = False,
    scram_sha_1: Annotated[
        bool, typer.Option("--scram-sha-1", help="Also serve clients that know nothing newer than SHA-1.")
    ] = False,
    iterations: Annotated[
        int, typer.Option("--iterations", min=4096, max=1_000_000, help="How slow a stolen key is to guess from.")
    ] = DEFAULT_ITERATIONS,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put this user in the place of the one there is.")
    ] = False,
) -> None:
    """Add a user; the password is asked for, or is the first line of standard input.

    PATTERN: `*` stands for one word between slashes, `#` for any number of
    them; `#` alone is every address. Without --send and --recv the user may
    come in, and do nothing.
    """
    if no_password and not certificate:
        raise ConfigError("--no-password needs a --certificate: there would be no way in")
    if len(name) > 0 and name.startswith("-"):
        raise ConfigError(f"{name!r} is an option, and no user's name")
    where, called = space_name(space), user_name(name)
    grants = [Grant((operation,), tuple(given)) for operation, given in (("send", send), ("recv", recv)) if given]
    if send and recv and send == recv:
        grants = [Grant(("send", "recv"), tuple(send))]
    mechanisms = () if no_password else (*DEFAULT_MECHANISMS, *((_SHA_1,) if scram_sha_1 else ()))
    password = "" if no_password else ask_password()
    try:
        keys = {
            mechanism: make_keys(mechanism, password, secrets.token_bytes(SALT_BYTES), iterations)
            for mechanism in mechanisms
        }
    except RemoteError as error:
        raise ConfigError(f"the password cannot be used: {error.description}") from None
    new = User(
        called, where, Permissions(grants, matcher_of), keys, tuple(certificate or ()), uid=secrets.token_hex(16)
    )
    with _changing(users) as kept:
        before = [item for item in kept if (item.space, item.name) == (where, called)]
        if before and not replace:
            raise ConfigError(
                f"user {called!r} of space {where!r} exists already; --replace puts this one in its place"
            )
        kept[:] = [item for item in kept if item not in before]
        # One that is replaced keeps what it has left behind; one that is removed and added does not.
        kept.append(dataclasses.replace(new, uid=before[0].uid) if before else new)
    Writer().say(f"user {called} of space {where} {'replaced' if before else 'added'} in {users}")


@user.command("remove")
def remove(name: Name, users: UsersPath, space: Space) -> None:
    """Remove a user; its connections are closed as soon as a node has seen it."""
    where, called = space_name(space), user_name(name)
    with _changing(users, must_exist=True) as kept:
        left = [item for item in kept if (item.space, item.name) != (where, called)]
        if len(left) == len(kept):
            raise ConfigError(f"there is no user {called!r} of space {where!r} in {users}")
        kept[:] = left
    Writer().say(f"user {called} of space {where} removed from {users}")


@user.command("list")
def list_users(users: UsersPath) -> None:
    """Show all users, and what they may do."""
    rows = []
    for item in load_users(users):
        granted = {
            operation: ",".join(
                pattern
                for grant in item.permissions.grants
                if operation in grant.operations
                for pattern in grant.addresses
            )
            for operation in OPERATIONS
        }
        proofs = [*item.keys, *(f"certificate {certificate}" for certificate in item.certificates)]
        both = granted["all"]
        rows.append(
            [
                item.space,
                item.name,
                ",".join(filter(None, (granted["send"], both))),
                ",".join(filter(None, (granted["recv"], both))),
                ", ".join(proofs),
            ]
        )
    Writer().out.print(make_table(["SPACE", "NAME", "SEND", "RECV", "PROOFS"], sorted(rows)))


@contextmanager
def _changing(path: Path, *, must_exist: bool = False) -> Iterator[list[User]]:
    """The users of a file, to be changed in place; written when the block has ended without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{path.parent} is no directory to keep users in: {error.strerror}") from None
    try:
        # One at a time: who reads before another has written would undo its change.
        fcntl.flock(directory, fcntl.LOCK_EX)
        before = load_users(path) if must_exist or path.exists() else Users(seed=secrets.token_bytes(SEED_BYTES))
        kept = list(before)
        yield kept
        _write(path, kept, before.seed)
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(path: Path, users: Sequence[User], seed: bytes) -> None:
    """Replace the file as a whole, readable by its owner alone, who stays the same."""
    text = write_users(users, seed)
    read_users(text, matcher_of)  # no command leaves a file behind that no node would take
    target = path.resolve()
    # Root writes it for the node's user, too, who goes on being able to read it.
    former = target.stat() if target.exists() and os.getuid() == 0 else None
    replace_file(target, text.encode(), owner=None if former is None else (former.st_uid, former.st_gid))
