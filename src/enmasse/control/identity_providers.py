"""The operator's authentication services, as spaces need them: a listener of the store's changes.

A service or a secret that changes has the spaces looked at that depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from enmasse.control.authentication import (
    Authentication,
    is_realm_missing,
    keycloak_of,
    resolve_authentication,
    service_of,
)
from enmasse.control.verdicts import ADMITTED, Verdict
from enmasse.model.authentication import AuthenticationService
from enmasse.model.core import Secret
from enmasse.model.kinds import restore
from enmasse.model.plans import PLAN_NAMESPACE
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.store import Change, ResourceStore
    from enmasse.model.spaces import AuthenticationServiceReference

__all__ = ["IdentityProviders"]

_KIND = "AuthenticationService"
_PENDING = Verdict("RealmPending", "the realm of the address space is being made")


class IdentityProviders:
    """Knows how the users of each space are known.

    Args:
        store: where services and secrets lie.
        spaces: all that are declared, by key.
        look_at_space: has a space looked at.
    """

    def __init__(
        self,
        store: ResourceStore,
        spaces: Callable[[], Mapping[str, AddressSpace]],
        look_at_space: Callable[[str], None],
    ) -> None:
        self.services: dict[str, AuthenticationService] = {}
        """By name."""
        self._states: dict[str, Verdict] = {}
        self._known: dict[str, tuple[AuthenticationServiceReference, Authentication]] = {}
        """By space, what it asked for and what came of it."""
        self._store = store
        self._spaces = spaces
        self._look_at_space = look_at_space

    def of(self, space: AddressSpace) -> Authentication:
        """Tell how the users of a space are known."""
        asked = space.spec.authentication_service
        known = self._known.get(space.key)
        if known is None or known[0] != asked:
            known = self._known[space.key] = (asked, resolve_authentication(space, self.services, self.find_secret))
        return replace(known[1], state=self._state(space))

    def kind_of(self, space: AddressSpace) -> str | None:
        """Tell the kind of a space's authentication, as a node is told it; None where it cannot be had."""
        found = self.of(space)
        return found.kind if found.verdict.is_yes else None

    def _state(self, space: AddressSpace) -> Verdict:
        service = self.service_of(space)
        if keycloak_of(service) is None:
            return ADMITTED
        return self._states.get(space.key) or (ADMITTED if space.status.is_ready else _PENDING)

    def keeps_users_in_keycloak(self, key: str) -> bool:
        """Whether the users of a space are kept in a Keycloak; of one that does not exist, whether they may be."""
        # Whoever writes asks, perhaps before changes have come round: the store knows what is.
        services = {
            service.metadata.name: service
            for service in map(restore, self._store.select(_KIND, PLAN_NAMESPACE))
            if isinstance(service, AuthenticationService)
        }
        namespace, _, name = key.partition("/")
        document = self._store.find("AddressSpace", namespace, name)
        space = None if document is None else restore(document)
        if not isinstance(space, AddressSpace):
            return any(keycloak_of(service) is not None for service in services.values())
        return keycloak_of(service_of(space, services)) is not None

    def say(self, key: str, state: Verdict | None) -> None:
        """Take how the realm of a space is; None: it has none."""
        before = self._states.pop(key, None)
        if state is not None:
            self._states[key] = state
        if before != state:
            self._look_at_space(key)

    def has_realm(self, key: str) -> bool:
        """Whether the realm of a space was found to be as it should be."""
        state = self._states.get(key)
        return state is not None and not is_realm_missing(state)

    def service_of(self, space: AddressSpace) -> AuthenticationService | None:
        """The declared service that a space asks for."""
        return service_of(space, self.services)

    def find_secret(self, namespace: str, name: str) -> Secret | None:
        """Return a secret."""
        document = self._store.find("Secret", namespace, name)
        found = None if document is None else restore(document)
        return found if isinstance(found, Secret) else None

    def load(self, store: ResourceStore) -> None:
        """Take up what the store holds."""
        self.services = {}
        self._known.clear()
        for document in store.select(_KIND, PLAN_NAMESPACE):
            self._put(restore(document))

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        kind, metadata = document["kind"], document["metadata"]
        if kind == _KIND and metadata["namespace"] == PLAN_NAMESPACE:
            before = self.services.pop(metadata["name"], None)
            if change.action != "DELETED":
                self._put(restore(document))
            now = self.services.get(metadata["name"])
            if before is None or now is None or before.spec != now.spec:
                self._look_at(lambda _space: True)
        elif kind == "Secret":
            place = metadata["namespace"], metadata["name"]
            self._look_at(lambda space: place in self._secrets_of(space))
        elif kind == "AddressSpace" and change.action == "DELETED":
            self._known.pop(f"{metadata['namespace']}/{metadata['name']}", None)

    def _put(self, service: object) -> None:
        if isinstance(service, AuthenticationService):
            self.services[service.metadata.name] = service

    def _look_at(self, is_concerned: Callable[[AddressSpace], bool]) -> None:
        # Somebody may have asked for a space that is only about to be declared.
        self._known.clear()
        for key, space in self._spaces().items():
            if is_concerned(space):
                self._look_at_space(key)

    def _secrets_of(self, space: AddressSpace) -> set[tuple[str, str]]:
        """Namespaces and names of the secrets that are asked for to tell how a space's users are known."""
        found: set[tuple[str, str]] = set()

        def find(namespace: str, name: str) -> Secret | None:
            found.add((namespace, name))
            return self.find_secret(namespace, name)

        resolve_authentication(space, self.services, find)
        return found
