"""Bindings of the service broker: a messaging user each.

Passwords are not stored: they are derived from a secret of the installation, the ids of space and binding, and a salt
of the binding, so that a platform that asks again gets the same one, and a binding that is made again a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from enmasse.api.broker.instances import ASIDE, is_usable, reasons
from enmasse.api.broker.requests import BrokerError
from enmasse.control.errors import ResourceExistsError
from enmasse.control.store.writes import finish
from enmasse.model.schema.kinds import MESSAGING_USER, NAMESPACE
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from enmasse.api.broker.instances import Caller, Instance
    from enmasse.api.broker.requests import BindRequest
    from enmasse.control.store.registry import Registry

BINDING_ANNOTATION: Final = "enmasse.io/service-binding-id"
"""Informative; the broker itself does not read it."""

READY_S: Final = 20.0
"""The time that a request of a platform that does not poll waits for the user."""

_KEY: Final = "service-broker-key"
_KEY_BYTES = 32
_PASSWORD_LETTERS = 32
_SALT_BYTES = 16
_GROUP, _PLURAL = "user.enmasse.io", "messagingusers"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding: its record and its user."""

    kept: Document
    user: Document

    @property
    def is_usable(self) -> bool:
        """True once the user can log in."""
        return is_usable(self.user)

    @property
    def is_being_deleted(self) -> bool:
        """True while it is being deleted."""
        return bool(self.user["metadata"].get("deletionTimestamp"))

    @property
    def reasons(self) -> str:
        """The messages in the status of the user."""
        return reasons(self.user)


class Bindings:
    """All bindings.

    Args:
        registry: the registry of their users.
        ready_s: the seconds to wait for a user.
    """

    def __init__(self, registry: Registry, ready_s: float = READY_S) -> None:
        self._registry = registry
        self._store = registry.store
        self._ready_s = ready_s

    def find(self, instance: Instance, identity: str) -> Binding | None:
        """Return a binding, None when there is none."""
        user = self._store.find(MESSAGING_USER.name, instance.namespace, _object_name(instance, identity))
        kept = None if user is None else self._store.aside(user["metadata"]["uid"], ASIDE)
        if user is None or kept is None:
            return None
        found: Document = json.loads(kept)
        return Binding(found, user) if found["binding"] == identity else None

    async def bind(
        self, instance: Instance, identity: str, wanted: BindRequest, caller: Caller
    ) -> tuple[Binding, bool]:
        """Return a binding, and whether it was made now.

        Raises:
            BrokerError: 409 when there is another binding of this id, 422 when the instance is not ready.
            ForbiddenError: when the caller may not have users there.
        """
        caller.require("create", _GROUP, _PLURAL, instance.namespace)
        kept = {
            "binding": identity,
            "instance": instance.kept.instance,
            "service": wanted.service,
            "plan": wanted.plan,
            "parameters": wanted.parameters,
            "salt": secrets.token_urlsafe(_SALT_BYTES),
        }
        if (known := self._known(instance, identity, kept)) is not None:
            return known, False
        if instance.is_being_deleted or not is_usable(instance.space):
            raise BrokerError(422, f"the instance is not ready: {reasons(instance.space)}", "ConcurrencyError")
        if (wanted.service, wanted.plan) != (instance.kept.service, instance.kept.plan):
            raise BrokerError(400, "service_id and plan_id: expected those of the instance")
        password = b64encode(self._password(instance, kept).encode()).decode()
        user = decode(
            {
                "apiVersion": "user.enmasse.io/v1beta1",
                "kind": MESSAGING_USER.name,
                "metadata": {
                    "name": _object_name(instance, identity),
                    "namespace": instance.namespace,
                    "annotations": {BINDING_ANNOTATION: identity},
                },
                "spec": {
                    "username": _username(identity),
                    "authentication": {"type": "password", "password": password},
                    "authorization": _authorization(wanted),
                },
            }
        )

        def write() -> Document:
            with self._store.transaction():
                # The keys of the password were derived meanwhile, in which time the space may have been deleted.
                if self._store.find_uid(instance.space["metadata"]["uid"]) is None:
                    raise BrokerError(422, "the instance was deleted meanwhile", "ConcurrencyError")
                created = self._registry.create(user, user=caller.requester)
                self._store.put_aside(created["metadata"]["uid"], ASIDE, json.dumps(kept).encode())
                return created

        try:
            return Binding(kept, await finish(write)), True
        except ResourceExistsError as error:
            if (known := self._known(instance, identity, kept)) is not None:
                return known, False
            raise BrokerError(409, f"{error}, and does not belong to this binding") from None

    async def until_usable(self, instance: Instance, identity: str) -> Binding:
        """Wait until the user of a binding can log in.

        Raises:
            BrokerError: 504 when that takes too long; the platform can ask again.
        """
        changed = asyncio.Event()
        with self._store.listening(changed.set):
            try:
                async with asyncio.timeout(self._ready_s):
                    while True:
                        changed.clear()
                        found = self.find(instance, identity)
                        if found is None:
                            raise BrokerError(410, f"the binding '{identity}' was deleted meanwhile")
                        if found.is_usable:
                            return found
                        await changed.wait()
            except TimeoutError:
                found = self.find(instance, identity)
                why = found.reasons if found else "it was deleted"
                raise BrokerError(504, f"the user of the binding is not ready yet: {why}") from None

    def _known(self, instance: Instance, identity: str, kept: Document) -> Binding | None:
        """Return a binding with this record, None when there is none.

        Raises:
            BrokerError: 409 when it differs.
        """
        known = self.find(instance, identity)
        if known is not None and (_asked(known.kept) != _asked(kept) or known.is_being_deleted):
            raise BrokerError(409, f"there is a binding '{identity}' already, which differs or is being deleted")
        return known

    def unbind(self, instance: Instance, identity: str, caller: Caller) -> None:
        """Delete the user of a binding.

        Raises:
            BrokerError: 410 when there is none.
            ForbiddenError: when the caller may not delete users there.
        """
        caller.require("delete", _GROUP, _PLURAL, instance.namespace)
        known = self.find(instance, identity)
        if known is None:
            raise BrokerError(410, f"there is no binding '{identity:.100}'")
        name = known.user["metadata"]["name"]
        self._registry.delete(MESSAGING_USER.name, instance.namespace, name, user=caller.requester)

    def credentials(self, instance: Instance, binding: Binding) -> Document:
        """Return what an application needs to connect."""
        status = instance.space.get("status") or {}
        user, password = _username(binding.kept["binding"]), self._password(instance, binding.kept)
        found: Document = {
            "username": user,
            "password": password,
            "addressSpace": instance.name,
            "namespace": instance.namespace,
        }
        if status.get("caCert"):
            found["caCert"] = status["caCert"]
        endpoints = [_endpoint(item) for item in status.get("endpointStatuses") or ()]
        if endpoints:
            first = endpoints[0]
            host, ports = first["host"], first["ports"]
            found |= {"endpoints": endpoints, "host": host, "messagingHost": host}
            found |= {f"messaging{_title(name)}Port": port for name, port in ports.items()}
            if "cert" in first:
                found["messagingCert.pem"] = first["cert"]
            if "externalHost" in first:
                found["externalMessagingHost"] = first["externalHost"]
                for port in first["externalPorts"].values():
                    found["externalMessagingPort"] = port
            if "amqps" in ports:
                found |= {"port": ports["amqps"], "uri": f"amqps://{user}:{password}@{host}:{ports['amqps']}"}
        return found

    def _password(self, instance: Instance, kept: Document) -> str:
        # Bindings of earlier versions have no salt, and keep the password that they have.
        salt = [kept["salt"]] if "salt" in kept else []
        text = "\0".join((instance.space["metadata"]["uid"], instance.kept.instance, kept["binding"], *salt)).encode()
        digest = hmac.digest(self._secret(), text, hashlib.sha256)
        return urlsafe_b64encode(digest).decode()[:_PASSWORD_LETTERS]

    def _secret(self) -> bytes:
        """Return the secret of the installation, which is created on first use."""
        with self._store.transaction():
            if self._store.find(NAMESPACE.name, "", PLAN_NAMESPACE) is None:
                self._registry.create_namespaces()
            owner = self._store.get(NAMESPACE.name, "", PLAN_NAMESPACE)["metadata"]["uid"]
            found = self._store.aside(owner, _KEY)
            if found is None:
                found = secrets.token_bytes(_KEY_BYTES)
                self._store.put_aside(owner, _KEY, found)
            return found


def _asked(kept: Document) -> Document:
    """Return what was asked for, of the record of a binding."""
    return {name: value for name, value in kept.items() if name != "salt"}


def _username(identity: str) -> str:
    return f"user-{hashlib.sha256(identity.encode()).hexdigest()[:20]}"


def _object_name(instance: Instance, identity: str) -> str:
    return f"{instance.name}.{_username(identity)}"


def _authorization(wanted: BindRequest) -> list[Document]:
    found: list[Document] = [
        {"operations": [operation], "addresses": list(patterns)}
        for operation, patterns in (("send", wanted.send), ("recv", wanted.receive))
        if patterns
    ]
    whole = [name for name, may in (("view", wanted.can_view), ("manage", wanted.can_manage)) if may]
    return [*found, {"operations": whole}] if whole else found


def _endpoint(status: Document) -> Document:
    found = {
        "name": status["name"],
        "host": status.get("serviceHost") or "",
        "ports": status.get("servicePorts") or {},
    }
    if status.get("externalHost"):
        found |= {"externalHost": status["externalHost"], "externalPorts": status.get("externalPorts") or {}}
    return found | ({"cert": status["cert"]} if status.get("cert") else {})


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))
