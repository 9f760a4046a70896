"""Realms of spaces and their users, in a Keycloak that is in memory and may be away."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enmasse.control.context import Context
from enmasse.control.errors import UnfinishedWriteError
from enmasse.control.ports import RealmConflictError, RealmUnavailableError, RealmUser
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.users.passwords import REALM_ASIDE, RealmPassword, RealmPasswords
from enmasse.control.users.realm_controller import RealmController
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import decode, restore
from tests.support.polling import until_async
from tests.unit.control.stage import running

GROUPS = frozenset({"send_orders", "recv_orders"})


class MemoryKeycloak:
    """Realms in memory; a ``RealmAdmin``."""

    def __init__(self) -> None:
        self.owners: dict[str, tuple[str, str]] = {}
        self.people: dict[str, dict[str, RealmUser]] = {}
        self.passwords: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        self.is_away = False
        self.credentials: tuple[str, ...] = ()
        self.writes = 0

    def connect(self, *credentials: str) -> MemoryKeycloak:
        self.credentials = credentials
        return self

    def _check(self) -> None:
        if self.is_away:
            raise RealmUnavailableError("Keycloak does not answer")

    async def realms(self, owner: str) -> dict[str, str]:
        self._check()
        return {name: uid for name, (whose, uid) in self.owners.items() if whose == owner}

    async def ensure_realm(self, name: str, owner: str, space_uid: str) -> None:
        self._check()
        if self.owners.setdefault(name, (owner, space_uid))[0] != owner:
            raise RealmConflictError(f"realm {name!r} is another's")
        self.people.setdefault(name, {})

    async def delete_realm(self, name: str) -> None:
        self._check()
        self.owners.pop(name, None)
        self.people.pop(name, None)

    async def users(self, realm: str) -> dict[str, RealmUser]:
        self._check()
        return dict(self.people[realm])

    async def find_user(self, realm: str, username: str) -> RealmUser | None:
        self._check()
        return self.people[realm].get(username)

    async def put_user(
        self, realm: str, user: RealmUser, present: RealmUser | None, password: Mapping[str, Any] | None
    ) -> None:
        self._check()
        self.writes += 1
        self.people[realm][user.username] = user
        self.passwords[realm, user.username] = password

    async def delete_user(self, realm: str, user: RealmUser) -> None:
        self._check()
        self.people[realm].pop(user.username, None)

    async def close(self) -> None:
        pass


class Stage:
    """A store, the controller of realms, and a Keycloak."""

    def __init__(self, store: ResourceStore) -> None:
        uids = iter(range(1, 1000))
        self.store = store
        self.registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        self.keycloak = MemoryKeycloak()
        context = Context(self.registry, now=lambda: "2026-01-01T00:00:00Z", jitter=lambda: 0.01)
        self.context = context
        self.providers = context.providers
        self.registry.add_admission(RealmPasswords(self.providers.keeps_users_in_keycloak))
        self.realms = RealmController(context, self.keycloak.connect, resync_s=0.05)

    def create(self, kind: str, name: str, namespace: str = "default", **fields: Any) -> None:
        versions = {"AddressSpace": "enmasse.io/v1beta1", "MessagingUser": "user.enmasse.io/v1beta1", "Secret": "v1"}
        document = {
            "apiVersion": versions.get(kind, "admin.enmasse.io/v1beta1"), "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, **fields,
        }  # fmt: skip
        while True:
            try:
                if self.store.find(kind, namespace, name) is None:
                    self.registry.create(decode(document))
                else:
                    self.registry.replace(decode(document))
            except UnfinishedWriteError as error:
                error.work()
            else:
                return

    def service(self) -> None:
        self.create(
            "Secret", "admin", PLAN_NAMESPACE, stringData={"admin.username": "root", "admin.password": "hunter2"}
        )
        keycloak = {"url": "https://keycloak.example.com", "credentialsSecret": {"name": "admin"}}
        spec = {"type": "standard", "standard": {"keycloak": keycloak}}
        self.create("AuthenticationService", "keycloak", PLAN_NAMESPACE, spec=spec)

    def space(self, name: str = "shop", service: str = "keycloak") -> None:
        self.create("AddressSpace", name, spec={"authenticationService": {"name": service}})

    def user(self, name: str, *addresses: str, password: str = "first", space: str = "shop") -> None:
        proof = {"type": "password", "password": base64.b64encode(password.encode()).decode()}
        grants = [{"operations": ["send", "recv"], "addresses": list(addresses or ("orders",))}]
        spec = {"username": name, "authentication": proof, "authorization": grants}
        self.create("MessagingUser", f"{space}.{name}", spec=spec)

    def reason(self, space: str = "shop") -> str:
        """What is said of the users of a space."""
        found = restore(self.store.get("AddressSpace", "default", space))
        assert isinstance(found, AddressSpace)
        return self.providers.of(found).condition_verdict.reason

    def people(self, realm: str = "default-shop") -> dict[str, frozenset[str]]:
        return {name: user.groups for name, user in self.keycloak.people.get(realm, {}).items()}


Perform = Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def perform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Perform:
    monkeypatch.setattr("enmasse.control.users.passwords.PASSWORD_ITERATIONS", 10)

    def run(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        async def body() -> None:
            with ResourceStore(tmp_path / "store.db") as store:
                stage = Stage(store)
                stage.service()
                async with running(stage.context, stage.realms):
                    await scene(stage)

        asyncio.run(body())

    return run


def test_a_space_gets_a_realm_with_its_users(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        stage.user("early")
        stage.space()
        stage.user("jo", "*", "top*")
        await until_async(lambda: len(stage.people()) == 2)
        assert stage.people()["early"] == GROUPS
        assert stage.people()["jo"] == {"send_%23", "recv_%23", "send_top%2A", "recv_top%2A"}
        await until_async(lambda: stage.reason() == "Admitted")
        assert stage.keycloak.credentials == ("https://keycloak.example.com", "root", "hunter2", "")
        password = stage.keycloak.passwords["default-shop", "jo"]
        assert password is not None
        assert "first" not in str(password)
        stage.space("other", "standard")
        stage.user("kim", space="other")
        uid = stage.store.get("MessagingUser", "default", "other.kim")["metadata"]["uid"]
        assert stage.store.aside(uid, REALM_ASIDE) is None, "no Keycloak needs it"

    perform(scene)


def test_a_settled_realm_is_left_alone_and_what_drifts_is_put_right(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        stage.space()
        stage.user("jo")
        await until_async(lambda: stage.reason() == "Admitted" and stage.people() == {"jo": GROUPS})
        writes = stage.keycloak.writes
        await asyncio.sleep(0.2)
        assert stage.keycloak.writes == writes
        people = stage.keycloak.people["default-shop"]
        people["jo"] = replace(people["jo"], groups=frozenset({"manage"}))
        await until_async(lambda: stage.people() == {"jo": GROUPS})
        del people["jo"]
        people["old"] = RealmUser("old", "uid-of-old", "1")
        await until_async(lambda: stage.people() == {"jo": GROUPS})
        stage.keycloak.owners.clear()
        stage.keycloak.people.clear()
        await until_async(lambda: stage.people() == {"jo": GROUPS})

    perform(scene)


def test_another_password_is_another_revision_and_the_same_one_is_not(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        def kept() -> bytes | None:
            uid = stage.store.get("MessagingUser", "default", "shop.jo")["metadata"]["uid"]
            return stage.store.aside(uid, REALM_ASIDE)

        stage.space()
        stage.user("jo")
        await until_async(lambda: "jo" in stage.people())
        before = kept()
        stage.user("jo", "orders", "stock")
        assert kept() == before
        stage.user("jo", password="second")
        assert before != kept() is not None
        revision = RealmPassword.unpack(kept() or b"").id
        await until_async(lambda: stage.keycloak.people["default-shop"]["jo"].revision == revision)

    perform(scene)


def test_who_is_gone_is_removed_and_so_is_a_realm(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        stage.space()
        stage.keycloak.owners["default-others"] = ("somebody else", "uid")
        for name in ("jo", "kim"):
            stage.user(name)
        await until_async(lambda: len(stage.people()) == 2)
        stage.registry.delete("MessagingUser", "default", "shop.jo")
        await until_async(lambda: stage.people().keys() == {"kim"})
        stage.registry.delete("MessagingUser", "default", "shop.kim")
        stage.registry.delete("AddressSpace", "default", "shop")
        await until_async(lambda: stage.keycloak.owners.keys() == {"default-others"})

    perform(scene)


def test_while_a_keycloak_is_away_everything_waits_for_it(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        def service() -> str:
            found = stage.store.get("AuthenticationService", PLAN_NAMESPACE, "keycloak")
            conditions = found.get("status", {}).get("conditions", ())
            return next((item["reason"] for item in conditions if item["type"] == "Ready"), "")

        await until_async(lambda: service() == "Valid")
        stage.keycloak.is_away = True
        stage.space()
        assert stage.reason() == "RealmPending"
        stage.user("jo")
        await until_async(lambda: stage.reason() == service() == "KeycloakUnavailable")
        stage.keycloak.is_away = False
        await until_async(lambda: stage.people() == {"jo": GROUPS} and stage.reason() == "Admitted")
        await until_async(lambda: service() == "Valid")
        stage.registry.delete("Secret", PLAN_NAMESPACE, "admin")
        await until_async(lambda: stage.reason() == service() == "SecretMissing")

    perform(scene)


def test_the_realm_of_somebody_else_is_not_touched(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        stage.keycloak.owners["default-shop"] = ("somebody else", "uid")
        stage.space()
        stage.user("jo")
        await until_async(lambda: stage.reason() == "RealmConflict")
        assert stage.people() == {}

    perform(scene)


def test_users_whose_password_was_set_before_are_told_of(perform: Perform) -> None:
    async def scene(stage: Stage) -> None:
        stage.space(service="standard")
        stage.user("jo")
        stage.space(service="keycloak")
        await until_async(lambda: stage.reason() == "PasswordsMissing")
        assert stage.people() == {"jo": GROUPS}
        assert stage.keycloak.passwords["default-shop", "jo"] is None
        stage.user("jo")
        await until_async(lambda: stage.reason() == "Admitted")

    perform(scene)
