"""Who may order from the service broker: accounts, by password or token, with the rights they have anyway."""

from __future__ import annotations

import asyncio
import base64
import itertools
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from argon2 import PasswordHasher

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.access.accounts import Accounts, WebPasswords
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.model.schema.objects import decode
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[..., httpx.Response]

PASSWORDS = WebPasswords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
PASSWORD = "correct horse"
WAIT = {"accepts_incomplete": "true"}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """An API that asks for proofs.

    ``blue`` and ``rival`` edit in one namespace, ``green`` in another; ``nobody`` has an account alone.
    """
    directory = tmp_path_factory.mktemp("broker")
    uids = itertools.count(1)
    with (
        ResourceStore(directory / "resources.db") as store,
        Accounts(directory / "access.db", now=lambda: 1_000.0) as accounts,
    ):
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        registry.create_namespaces()
        registry.create_catalog()
        for namespace in ("blue", "green"):
            registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        for name, namespace in (("blue", "blue"), ("rival", "blue"), ("green", "green")):
            registry.create(
                decode(
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": "RoleBinding",
                        "metadata": {"name": name, "namespace": namespace},
                        "roleRef": {"kind": "ClusterRole", "name": "enmasse.io:tenant-edit"},
                        "subjects": [{"kind": "User", "name": name}],
                    }
                )
            )
        for name in ("blue", "rival", "green", "nobody"):
            accounts.add(name, password_hash=PASSWORDS.hash(PASSWORD), groups=())
        tokens = {"blue-token": accounts.create_token("blue").secret}
        authenticator = Authenticator(accounts, is_required=True, passwords=PASSWORDS)
        app = create_app(
            ApiParts(
                registry=registry,
                stop=asyncio.Event(),
                nodes={"node-0": NodeAccess(messages=NoMessages())},
                authenticator=authenticator,
                is_own_name="api.example.org".__eq__,
            )
        )

        def send(who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
            headers = {"X-Broker-API-Version": "2.17"}
            if who in tokens:
                headers["Authorization"] = f"Bearer {tokens[who]}"
            elif who is not None:
                headers["Authorization"] = "Basic " + base64.b64encode(who.encode()).decode()

            async def body() -> httpx.Response:
                transport = httpx.ASGITransport(app, client=("192.0.2.7", 40_000))
                async with httpx.AsyncClient(transport=transport, base_url="https://api.example.org") as client:
                    return await client.request(method, f"/osbapi/v2/{path}", headers=headers, **options)

            return asyncio.run(body())

        yield send


def wish(ask: Ask, namespace: str) -> dict[str, Any]:
    service = ask(f"blue:{PASSWORD}", "GET", "catalog").json()["services"][0]
    return {
        "service_id": service["id"],
        "plan_id": service["plans"][0]["id"],
        "organization_guid": "org",
        "space_guid": "space",
        "parameters": {"namespace": namespace},
    }


def test_nobody_is_served_without_a_proof_that_holds(ask: Ask) -> None:
    for who in (None, "blue:wrong horse", f"somebody:{PASSWORD}"):
        refused = ask(who, "GET", "catalog")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Basic realm="enmasse"'


def test_an_account_orders_where_it_may_have_spaces_and_nowhere_else(ask: Ask) -> None:
    who = f"blue:{PASSWORD}"
    assert ask(who, "PUT", "service_instances/i-1", json=wish(ask, "blue"), params=WAIT).status_code == 202
    refused = ask(who, "PUT", "service_instances/i-2", json=wish(ask, "green"), params=WAIT)
    assert refused.status_code == 403
    assert 'cannot create resource "addressspaces"' in refused.json()["description"]
    assert ask("blue-token", "GET", "service_instances/i-1/last_operation").json()["state"] == "in progress"


@pytest.mark.parametrize("stranger", ["nobody", "green", "rival"])
def test_the_id_of_another_accounts_instance_says_no_more_than_one_that_does_not_exist(
    ask: Ask, stranger: str
) -> None:
    who = f"{stranger}:{PASSWORD}"
    body = wish(ask, "blue")
    ids = {name: body[name] for name in ("service_id", "plan_id")}
    ordered = ask(f"blue:{PASSWORD}", "PUT", "service_instances/i-1", json=body, params=WAIT)
    assert ordered.status_code == 202
    for method, path, options in (
        ("GET", "service_instances/i-1", {}),
        ("GET", "service_instances/i-1/last_operation", {}),
        ("PATCH", "service_instances/i-1", {"json": ids, "params": WAIT}),
        ("DELETE", "service_instances/i-1", {"params": ids | WAIT}),
        ("PUT", "service_instances/i-1/service_bindings/b", {"json": ids}),
        ("GET", "service_instances/i-1/service_bindings/b", {}),
        ("DELETE", "service_instances/i-1/service_bindings/b", {"params": ids}),
    ):
        answer, unknown = (ask(who, method, at, **options) for at in (path, path.replace("i-1", "i-0")))
        assert answer.status_code == unknown.status_code, (method, path)
        assert answer.text == unknown.text.replace("i-0", "i-1"), (method, path)
    assert ask(f"blue:{PASSWORD}", "GET", "service_instances/i-1/last_operation").status_code == 200


def test_an_id_cannot_be_taken_from_another_account(ask: Ask) -> None:
    for stranger, namespace in (("green", "green"), ("rival", "blue")):
        who = f"{stranger}:{PASSWORD}"
        first = ask(who, "PUT", "service_instances/i-9", json=wish(ask, namespace), params=WAIT)
        assert first.status_code == 202
    mine = ask(f"blue:{PASSWORD}", "PUT", "service_instances/i-9", json=wish(ask, "blue"), params=WAIT)
    assert mine.status_code == 202
    again = ask(f"blue:{PASSWORD}", "PUT", "service_instances/i-9", json=wish(ask, "blue"), params=WAIT)
    assert again.status_code == 202
    ids = {name: wish(ask, "blue")[name] for name in ("service_id", "plan_id")}
    given = ask(f"green:{PASSWORD}", "DELETE", "service_instances/i-9", params=ids | WAIT)
    assert given.status_code == 202
    kept = ask(f"blue:{PASSWORD}", "GET", "service_instances/i-9/last_operation")
    assert kept.json()["state"] == "in progress"
