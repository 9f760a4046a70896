"""Chooses the space that a connection belongs to.

Rules:
1. A space is named by the port, where that is the space's own, by the host for TLS (SNI), the host named at login
   (in AMQP's sasl-init), the realm of the user, and the host named afterwards (in AMQP's open). A connection that
   names two spaces is refused: none of the names outranks another.
2. A host names a space if it is ``<space>.<namespace>`` or ``<space>.<namespace>.<domain>``, or one of those that
   the space's endpoints were given. This machine's own names, IP addresses, ``localhost`` and any other host name
   nothing.
3. A misspelt name is refused: an unknown one below the domain, and ``<x>.<y>`` where y is a namespace.
4. A connection that names no space belongs to the listener's default, or else to the only space that exists. A host
   ``<x>.<y>`` where x is a space is misspelt, too; and from this machine, whose names are known, any other of one or
   two labels. From elsewhere a host may be any name of DNS.
5. Errors give names of spaces only to clients who may enter them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, NamedTuple

from enmasse.identity.login import USER_AND_SPACE
from enmasse.node.errors import TenancyError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space


DOMAIN = "enmasse.local"

_LOCAL = re.compile(r"^localhost(\.|$)|(^|\.)[0-9]+$|:")
"""Hosts that are this machine, or an address."""

_SHORT = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)?")
"""Hosts that may be meant for a space, ``<space>`` or ``<space>.<namespace>``."""


def _not_called(_host: str) -> bool:
    return False


class Names(NamedTuple):
    """The meaning of host names.

    Attributes:
        hosts: the spaces' further hosts, in lower case, and the names of their spaces.
        domain: the domain below which names always mean a space.
        machine: this machine's own names, in lower case, which never mean a space.
        said: the protocol's term for the host that a client names, for errors.
        aliases: those of tenants of devices; such a word below the domain names no space, and is not misspelt.
        is_called: returns true of a host, in lower case, by which the operator has the node called.
        is_here: true if the client that names them is on this machine.
    """

    hosts: Mapping[str, str] = {}
    domain: str = DOMAIN
    machine: frozenset[str] = frozenset()
    said: str = "the host"
    aliases: Container[str] = ()
    is_called: Callable[[str], bool] = _not_called
    is_here: bool = False

    def means_nothing(self, host: str) -> bool:
        """Return true if a host without port is known to name no space, such as an address or the machine's name."""
        return (
            not _SHORT.fullmatch(host)
            or _LOCAL.search(host) is not None
            or host in self.machine
            or host == self.domain
            or host in self.hosts
            or host.partition(".")[0] in self.aliases
            or self.is_called(host)
        )

    def label(self, host: str | None) -> str:
        """Return the first label of a host, by which it may name a tenant; empty: the host is not made of labels."""
        name = _plain(host)
        if name in self.machine or name == self.domain or _LOCAL.search(name) is not None:
            return ""
        return name.partition(".")[0]


OURS = Names()


def _plain(host: str | None) -> str:
    """Return a host or realm as it is compared: without port and the dot at the end."""
    return ((host.rpartition(":")[0] if host.count(":") == 1 else host) if host else "").lower().removesuffix(".")


def _named(
    host: str | None, spaces: Mapping[str, Space], is_open: Callable[[str], bool], names: Names
) -> Space | None:
    """Return the space that a host or realm names, if it names one."""
    name = _plain(host)
    if not name or name in names.machine:
        return None
    domain = "." + names.domain
    is_ours = name.endswith(domain)
    words = name.removesuffix(domain).split(".")
    if len(words) == 2:
        # A space's own name comes first: no endpoint of another can claim it, not even before the space exists.
        found = spaces.get(f"{words[1]}/{words[0]}")
        if found is not None:
            return found
        namespace = f"{words[1]}/"
        is_ours = is_ours or any(each.startswith(namespace) for each in spaces)
    if is_ours and not (len(words) == 1 and words[0] in names.aliases):
        raise _misspelt(name, spaces, is_open, names)
    return spaces.get(names.hosts.get(name, ""))


def _misspelt(name: str, spaces: Mapping[str, Space], is_open: Callable[[str], bool], names: Names) -> TenancyError:
    return TenancyError("amqp:not-found", f"host {name!r} names no space; {_how(spaces, is_open, names)}")


def _how(spaces: Mapping[str, Space], is_open: Callable[[str], bool], names: Names) -> str:
    if not spaces:
        return "no space exists yet: create one with `enmasse create space NAME`"
    # Names of spaces are not given to clients who may not enter them.
    hosts = sorted(".".join(reversed(name.split("/"))) for name in spaces if is_open(name))
    some = ", ".join(hosts[:5]) + (", ..." if len(hosts) > 5 else "")
    how = f"name the space: {USER_AND_SPACE}, or by {names.said} (in full: <space>.<namespace>.{names.domain})"
    return f"{how}: {some}" if hosts else how


def _nobody(_space: str) -> bool:
    return False


def how_to_name(spaces: Mapping[str, Space], is_open: Callable[[str], bool] = _nobody, names: Names = OURS) -> str:
    """Return what a client is told that names no space."""
    return f"the connection names no space; {_how(spaces, is_open, names)}"


def named_space(
    spaces: Mapping[str, Space],
    *hosts: str | None,
    port_of: str | None = None,
    is_open: Callable[[str], bool] = _nobody,
    names: Names = OURS,
) -> Space | None:
    """Return the one space that port, hosts or realms name, if any of them names one.

    Args:
        spaces: every space, by ``<namespace>/<space>``.
        hosts: hosts and realms, or nothing where none was given.
        port_of: the space that the port belongs to, if it is one space's own.
        is_open: returns true if the client may enter a space, and see its name.
        names: the meaning of host names.

    Raises:
        TenancyError: two of them differ, or one is misspelt.
    """
    chosen: Space | None = None
    if port_of is not None:
        chosen = spaces.get(port_of)
        if chosen is None:
            raise TenancyError("amqp:not-found", "the space that this port belonged to does not exist any more")
    for host in hosts:
        named = _named(host, spaces, is_open, names)
        if named is None:
            continue
        if chosen is not None and named is not chosen:
            raise TenancyError(
                "amqp:not-allowed",
                f"the connection names two spaces, one by {host!r}: port, hosts and realm have to name the same",
            )
        chosen = named
    return chosen


def unnamed_space(
    spaces: Mapping[str, Space],
    *hosts: str | None,
    default: str | None = None,
    is_open: Callable[[str], bool] = _nobody,
    names: Names = OURS,
) -> Space | None:
    """Return the space of a connection whose hosts and realms name none, if that is clear.

    Args:
        spaces: every space, by ``<namespace>/<space>``.
        hosts: hosts and realms, or nothing where none was given.
        default: the listener's default space.
        is_open: returns true if the client may enter a space, and see its name.
        names: the meaning of host names.

    Raises:
        TenancyError: a host names a space in a namespace that does not exist, or, from this machine, none at all.
    """
    found = spaces.get(default) if default is not None else None
    if default is None and len(spaces) == 1:
        (found,) = spaces.values()
    if found is None:
        return None
    for name in map(_plain, hosts):
        space, dot, rest = name.partition(".")
        if (
            dot
            and "." not in rest
            and name not in names.machine
            and any(each.endswith(f"/{space}") for each in spaces)
        ):
            raise _misspelt(name, spaces, is_open, names)
        is_short_for_it = not dot and found.name.endswith(f"/{space}")
        if names.is_here and not is_short_for_it and not names.means_nothing(name):
            raise _misspelt(name, spaces, is_open, names)
    return found


def choose_space(
    spaces: Mapping[str, Space],
    *,
    login_host: str | None,
    user: str | None,
    open_host: str | None,
    default: str | None = None,
    server_name: str | None = None,
    port_of: str | None = None,
    is_open: Callable[[str], bool] = _nobody,
    names: Names = OURS,
) -> Space:
    """Return the space that a connection belongs to.

    Args:
        spaces: every space, by ``<namespace>/<space>``.
        login_host: the host that was named at login, such as that of sasl-init.
        user: the user's name; a realm follows its last ``@``.
        open_host: the host that is named now, such as that of open.
        default: the listener's default space.
        server_name: the host that was named for TLS.
        port_of: the space whose own the port is.
        is_open: returns true if the client may enter a space, and see its name.
        names: the meaning of host names.

    Raises:
        TenancyError: nothing names a space that exists and there is not exactly one, or two names differ.
    """
    realm = user.rpartition("@")[2] if user and "@" in user else None
    hosts = server_name, login_host, realm, open_host
    chosen = named_space(spaces, *hosts, port_of=port_of, is_open=is_open, names=names)
    if chosen is None:
        chosen = unnamed_space(spaces, *hosts, default=default, is_open=is_open, names=names)
    if chosen is not None:
        return chosen
    if default is not None:
        raise TenancyError("amqp:not-found", "the listener's default space does not exist (yet)")
    raise TenancyError("amqp:not-found", how_to_name(spaces, is_open, names))
