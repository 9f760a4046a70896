"""The meaning of the name that a client gives at login: a user of a space, a device of a tenant, or nobody.

Rules, where what follows the last ``@`` of a name is its realm:

====================  =========================  ================================================================
named by port, host   realm                      meaning
====================  =========================  ================================================================
a space               the same space             the user before the ``@``
a space               another space              refused: the connection names two
a space               its project's tenant       the device before the ``@``
a space               none, or anything else     the user of the whole name; no device's credentials, such as a token
                                                 that names a tenant, prove one
nothing               none                       the user of the listener's default space, or of the only one
nothing               a space                    the user before the ``@``
nothing               a tenant that is served    the device before the ``@``, whom the registry alone judges
nothing               anything else              refused: a misspelt space, a tenant without a project, or nobody's
====================  =========================  ================================================================

1. A tenant is meant by its id or its alias. A host that means a space is that space's, whatever a tenant is called.
2. As long as a node has not heard from the control process which tenants there are, a realm that it does not know may
   be one's: the client is asked to try again. It is never taken for a user of a space that is open to everybody,
   where it would come in as a stranger; in a space with users it may prove that it is one of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import OURS, Names, named_space, unnamed_space

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.devices.directory import Directory
    from enmasse.node.devices.tenants import Tenant


class UserMeant(NamedTuple):
    """A user.

    Attributes:
        name: in the space.
        space: the user's; None if nothing names one, and there is not exactly one.
        is_named: true if the client has named it, by port, host or realm.
        realm: the host in its name that names the space, if there is one.
        may_be_device: true if it may be a device's name, of whose tenant the node has not heard yet.
    """

    name: str
    space: Space | None
    is_named: bool = False
    realm: str | None = None
    may_be_device: bool = False


class DeviceMeant(NamedTuple):
    """A device of a tenant that the node serves, whatever the tenant's state."""

    auth_id: str
    tenant: Tenant


class NobodyMeant(NamedTuple):
    """Nobody who could be let in.

    Attributes:
        auth_id: the name before the realm.
        realm: the realm.
        reason: for the log.
        is_known: false if the realm may turn out to be a tenant's.
    """

    auth_id: str
    realm: str
    reason: str
    is_known: bool = True


Meaning = UserMeant | DeviceMeant | NobodyMeant


class Realms(NamedTuple):
    """The spaces and tenants that names are looked up in.

    Attributes:
        spaces: every space, by ``<namespace>/<space>``.
        directory: the tenants of devices; None: there are none.
        are_tenants_known: true if the directory has every tenant that is served.
        is_open: returns true if the client may enter a space without credentials.
        default: the listener's default space.
        names: the meaning of host names.
    """

    spaces: Mapping[str, Space]
    directory: Directory | None
    are_tenants_known: bool
    is_open: Callable[[str], bool]
    default: str | None = None
    names: Names = OURS

    def meaning(self, named: str, *hosts: str | None, port_of: str | None = None, is_device: bool = False) -> Meaning:
        """Return the meaning of a name that was given at login.

        Args:
            named: the name; it may be empty.
            hosts: the hosts that the client has named, or nothing where none was given.
            port_of: the space that the port belongs to, if it is one space's own.
            is_device: true if what proves the name can prove devices alone.

        Raises:
            TenancyError: port, hosts and realm name two spaces, or one is misspelt.
        """
        place = named_space(self.spaces, *hosts, port_of=port_of, names=self.names)
        before, at, realm = named.rpartition("@")
        if not at and place is not None:
            return UserMeant(named, place, is_named=True)
        if not at and "@" in unicodedata.normalize("NFKC", named):
            return NobodyMeant(named, "", "what looks like a realm follows another letter than @")
        if not at:
            return self._unnamed(named, *hosts)
        misspelt: TenancyError | None = None
        try:
            of_realm = named_space(self.spaces, realm, names=self.names)
        except TenancyError as error:
            of_realm, misspelt = None, error  # a tenant's id may look like a space that there is not
        if of_realm is not None and not is_device:
            if place not in (None, of_realm):
                named_space(self.spaces, *hosts, realm, port_of=port_of, names=self.names)  # which says what differs
            return UserMeant(before, of_realm, is_named=True, realm=realm)
        tenant = self.directory.tenant(realm) if self.directory is not None and of_realm is None else None
        if tenant is not None and (place is None or tenant.space == place.name):
            return DeviceMeant(before, tenant)
        is_unheard = self.directory is not None and of_realm is None and tenant is None and not self.are_tenants_known
        if place is not None and not is_device and not (is_unheard and self.is_open(place.name)):
            return UserMeant(named, place, is_named=True, may_be_device=is_unheard)
        if is_unheard:
            reason = "the control process has not told the node of all tenants of devices"
            return NobodyMeant(before, realm, reason, is_known=False)
        if tenant is not None and place is not None:
            return NobodyMeant(before, realm, f"the tenant's space is {tenant.space}, not {place.name}")
        if misspelt is not None and place is None:
            raise misspelt
        return NobodyMeant(before, realm, f"{realm!r:.255} is neither a space nor a tenant with a project")

    def _unnamed(self, name: str, *hosts: str | None) -> UserMeant:
        return UserMeant(name, unnamed_space(self.spaces, *hosts, default=self.default, names=self.names))
