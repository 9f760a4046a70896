"""Owners of what clients leave behind, as the node's users, spaces and providers tell of them (``messaging.owners``).

Rules:
1. An owner is known as long as it could log in again: by its uid, not by its name.
2. In a space that everybody may enter all are one owner, and no user is one; in any other, nobody is that one. So a
   change of a space's authentication between these ends what there is.
3. A provider's users are known as long as the space has that provider, and something grants the user anything. Who
   comes by the groups of its token is known for as long as that; a MessagingUser that is removed ends it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.identity.users import BY_IDENTITY
from enmasse.messaging.owners import ADMINISTRATOR, ANONYMOUS
from enmasse.node.devices.tenants import BY_DEVICE

if TYPE_CHECKING:
    from enmasse.node.users.directory import NodeUsers
    from enmasse.node.users.federation import Federation
    from enmasse.node.users.gate import Gate


class KnownOwners:
    """The owners of a node's spaces.

    Args:
        gate: knows which spaces are for everybody.
        users: the node's users.
        federation: knows the providers of spaces.
    """

    def __init__(self, gate: Gate, users: NodeUsers, federation: Federation) -> None:
        self._gate = gate
        self._users = users
        self._federation = federation

    def is_known(self, space: str, owner: str, user: str, is_removed: bool) -> bool:
        """Return true if an owner may still come in, as far as that is known.

        Args:
            space: the space.
            owner: the owner.
            user: its name.
            is_removed: true if a user of that name was just removed.
        """
        if owner == ADMINISTRATOR:
            return True
        if self._gate.is_open(space):
            return owner == ANONYMOUS or owner.startswith(BY_DEVICE)
        if owner == ANONYMOUS:
            return False
        found = self._users.all(space, user)
        is_federated = self._federation.knows(space)
        settings = self._federation.settings_of(space)
        if owner.startswith(BY_IDENTITY):
            if settings is None:
                # What is wrong with a provider's settings may be right again soon.
                return is_federated
            is_its = owner.startswith(f"{BY_IDENTITY}{settings.issuer} ")
            grants_others = settings.group_grants or bool(settings.grants)
            return is_its and (bool(found) or (grants_others and not is_removed))
        if owner.startswith(BY_DEVICE):
            return True
        its = [one for one in found if one.owner == owner]
        if is_federated and (settings is None or not settings.has_our_users):
            # Passwords of ours are not taken there.
            return any(one.certificates for one in its)
        return bool(its)

    def owner_of(self, space: str, user: str) -> str:
        """Return the owner who has a name now; empty where only the first who comes shows that."""
        if self._gate.is_open(space):
            return ANONYMOUS
        if not user:
            return ""
        if self._federation.knows(space):
            settings = self._federation.settings_of(space)
            if settings is None or not settings.has_our_users:
                return ""
        found = self._users.find(space, user)
        return f"name:{user}" if found is None else found.owner
