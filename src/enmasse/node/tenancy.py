"""Which space a connection belongs to.

In this order a connection may name one: the host for TLS (SNI), the host of sasl-init, the realm of its
user, the host of open. A host names a space if it is ``<space>.<namespace>`` or
``<space>.<namespace>.<domain>``, or one of those that the space's endpoints were given; an IP address,
``localhost`` and any other host name nothing. When nothing names one, the listener's default is meant, or
else the only space that exists. Two different names are refused, and so is an unknown name below the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from enmasse.node.errors import TenancyError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space

__all__ = ["DOMAIN", "Names", "choose_space", "named_space"]

DOMAIN = "enmasse.local"


class Names(NamedTuple):
    """What host names mean.

    Attributes:
        hosts: those of the spaces' endpoints, in lower case, to the names of their spaces.
        domain: names below it always mean a space.
    """

    hosts: Mapping[str, str] = {}
    domain: str = DOMAIN


OURS = Names()


def _named(
    host: str | None, spaces: Mapping[str, Space], is_open: Callable[[str], bool], names: Names
) -> Space | None:
    """The space that a host or realm names, if it names one."""
    if not host:
        return None
    name = (host.rpartition(":")[0] if host.count(":") == 1 else host).lower().removesuffix(".")
    domain = "." + names.domain
    is_ours = name.endswith(domain)
    words = name.removesuffix(domain).split(".")
    # The own name of a space goes first: no endpoint of another can claim it.
    found = spaces.get(f"{words[1]}/{words[0]}") if len(words) == 2 else None
    if found is None and name in names.hosts:
        return spaces.get(names.hosts[name])
    if found is None and is_ours:
        raise TenancyError("amqp:not-found", f"host {name!r} names no space; {_how(spaces, is_open)}")
    return found


def _how(spaces: Mapping[str, Space], is_open: Callable[[str], bool]) -> str:
    if not spaces:
        return "no space exists yet: create one with `enmasse create space NAME`"
    # Strangers are not told whose spaces there are.
    hosts = sorted(".".join(reversed(name.split("/"))) for name in spaces if is_open(name))
    some = ", ".join(hosts[:5]) + (", ..." if len(hosts) > 5 else "")
    how = "name one by the host in open or sasl-init, or by the user's realm (user@space.namespace)"
    return f"{how}: {some}" if hosts else how


def _everybody(_space: str) -> bool:
    return True


def named_space(
    spaces: Mapping[str, Space],
    *hosts: str | None,
    is_open: Callable[[str], bool] = _everybody,
    names: Names = OURS,
) -> Space | None:
    """The one space that hosts or realms name, if any of them names one.

    Args:
        spaces: every space, by ``<namespace>/<space>``.
        hosts: hosts and realms, or nothing where none was given.
        is_open: whether a space may be told to everybody.
        names: what host names mean.

    Raises:
        TenancyError: two of them differ, or one below the domain does not exist.
    """
    chosen: Space | None = None
    for host in hosts:
        named = _named(host, spaces, is_open, names)
        if named is None:
            continue
        if chosen is not None and named is not chosen:
            raise TenancyError(
                "amqp:not-allowed", f"the connection names two spaces, {chosen.name!r} and {named.name!r}"
            )
        chosen = named
    return chosen


def choose_space(
    spaces: Mapping[str, Space],
    *,
    sasl_host: str | None,
    user: str | None,
    open_host: str | None,
    default: str | None = None,
    server_name: str | None = None,
    is_open: Callable[[str], bool] = _everybody,
    names: Names = OURS,
) -> Space:
    """The space that a connection means.

    Args:
        spaces: every space, by ``<namespace>/<space>``.
        sasl_host: the host of sasl-init.
        user: the user's name; a realm follows its last ``@``.
        open_host: the host of open.
        default: the listener's default space.
        server_name: the host that was named for TLS.
        is_open: whether a space may be told to everybody.
        names: what host names mean.

    Raises:
        TenancyError: nothing names a space that exists and there is not exactly one, or two names differ.
    """
    realm = user.rpartition("@")[2] if user and "@" in user else None
    chosen = named_space(spaces, server_name, sasl_host, realm, open_host, is_open=is_open, names=names)
    if chosen is not None:
        return chosen
    if default is not None:
        if default not in spaces:
            raise TenancyError("amqp:not-found", f"the listener's default space {default!r} does not exist (yet)")
        return spaces[default]
    if len(spaces) == 1:
        return next(iter(spaces.values()))
    raise TenancyError("amqp:not-found", f"the connection names no space; {_how(spaces, is_open)}")
