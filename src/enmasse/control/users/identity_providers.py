"""The operator's authentication services, as spaces need them: a listener of the store's changes.

A service or a secret that changes has the spaces reconciled that depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from enmasse.control.runtime.verdicts import ADMITTED, Verdict
from enmasse.control.users.authentication_services import (
    Authentication,
    is_realm_missing,
    keycloak_of,
    resolve_authentication,
    service_of,
)
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.core import Secret
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import is_served
from enmasse.model.schema.kinds import ADDRESS_SPACE, AUTHENTICATION_SERVICE, SECRET
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from enmasse.control.store.port import Change, Store
    from enmasse.model.kinds.spaces import AuthenticationServiceReference
    from enmasse.net.special_addresses import Network


_KIND = AUTHENTICATION_SERVICE.name
_PENDING = Verdict("RealmPending", "the realm of the address space is being made")


def services_in(store: Store) -> dict[str, AuthenticationService]:
    """Return the services that the operator has declared, by name."""
    found = map(restore, store.select(_KIND, PLAN_NAMESPACE))
    return {service.metadata.name: service for service in found if isinstance(service, AuthenticationService)}


class IdentityProviders:
    """The authentication of each space.

    Args:
        store: the store of services and secrets.
        spaces: all that are declared, by key.
        enqueue_space: enqueues a space.
        networks: the networks in which providers that spaces choose may be although that is not public.
    """

    def __init__(
        self,
        store: Store,
        spaces: Callable[[], Mapping[str, AddressSpace]],
        enqueue_space: Callable[[str], None],
        networks: Sequence[Network] = (),
    ) -> None:
        self.services: dict[str, AuthenticationService] = {}
        """The declared services, by name."""
        self._states: dict[str, Verdict] = {}
        self._known: dict[str, tuple[AuthenticationServiceReference, Authentication]] = {}
        """By space, the requested service and the resolved authentication."""
        self._store = store
        self._spaces = spaces
        self._enqueue_space = enqueue_space
        self.networks = networks

    def of(self, space: AddressSpace) -> Authentication:
        """Return the authentication of a space."""
        asked = space.spec.authentication_service
        known = self._known.get(space.key)
        if known is None or known[0] != asked:
            known = self._known[space.key] = (asked, self.resolve(space))
        return replace(known[1], state=self._state(space))

    def resolve(self, space: AddressSpace) -> Authentication:
        """Return the authentication that a space asks for."""
        return resolve_authentication(space, self.services, self.find_secret, self.networks)

    def kind_of(self, space: AddressSpace) -> str | None:
        """Return the kind of a space's authentication for nodes; None where it cannot be had."""
        found = self.of(space)
        return found.kind if found.verdict.is_yes else None

    def _state(self, space: AddressSpace) -> Verdict:
        service = self.service_of(space)
        if keycloak_of(service) is None:
            return ADMITTED
        return self._states.get(space.key) or (ADMITTED if is_served(space.status.conditions) else _PENDING)

    def keeps_users_in_keycloak(self, key: str) -> bool:
        """Return whether a Keycloak keeps the users of a space; of one that does not exist, whether it may."""
        # A write may come before earlier changes were applied here: the store is up to date.
        services = services_in(self._store)
        namespace, _, name = key.partition("/")
        document = self._store.find(ADDRESS_SPACE.name, namespace, name)
        space = None if document is None else restore(document)
        if not isinstance(space, AddressSpace):
            return any(keycloak_of(service) is not None for service in services.values())
        return keycloak_of(service_of(space, services)) is not None

    def set_state(self, key: str, state: Verdict | None) -> None:
        """Set the state of the realm of a space; None: it has none."""
        before = self._states.pop(key, None)
        if state is not None:
            self._states[key] = state
        if before != state:
            self._enqueue_space(key)

    def has_realm(self, key: str) -> bool:
        """Return whether the realm of a space was found to be as it should be."""
        state = self._states.get(key)
        return state is not None and not is_realm_missing(state)

    def service_of(self, space: AddressSpace) -> AuthenticationService | None:
        """Return the declared service that a space names."""
        return service_of(space, self.services)

    def find_secret(self, namespace: str, name: str) -> Secret | None:
        """Return a secret."""
        document = self._store.find(SECRET.name, namespace, name)
        found = None if document is None else restore(document)
        return found if isinstance(found, Secret) else None

    def load(self, store: Store) -> None:
        """Load what the store holds."""
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
                self._enqueue(lambda _space: True)
        elif kind == SECRET.name:
            place = metadata["namespace"], metadata["name"]
            self._enqueue(lambda space: place in self._secrets_of(space) or _has_connector_with(space, *place))
        elif kind == ADDRESS_SPACE.name and change.action == "DELETED":
            self._known.pop(f"{metadata['namespace']}/{metadata['name']}", None)

    def _put(self, service: object) -> None:
        if isinstance(service, AuthenticationService):
            self.services[service.metadata.name] = service

    def _enqueue(self, is_concerned: Callable[[AddressSpace], bool]) -> None:
        # A space may have been requested that is only about to be declared.
        self._known.clear()
        for key, space in self._spaces().items():
            if is_concerned(space):
                self._enqueue_space(key)

    def _secrets_of(self, space: AddressSpace) -> set[tuple[str, str]]:
        """Return the namespaces and names of the secrets that the authentication of a space depends on."""
        found: set[tuple[str, str]] = set()

        def find(namespace: str, name: str) -> Secret | None:
            found.add((namespace, name))
            return self.find_secret(namespace, name)

        resolve_authentication(space, self.services, find)
        return found


def _has_connector_with(space: AddressSpace, namespace: str, secret: str) -> bool:
    """Return whether a connector of a space has something from a secret."""
    return space.metadata.namespace == namespace and any(
        secret in connector.secrets for connector in space.spec.connectors
    )
