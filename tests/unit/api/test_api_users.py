"""Passwords of messaging users through the API: whatever way they come, they are seen nowhere afterwards."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.users import passwords as user_passwords
from enmasse.control.users.passwords import ASIDE, Credentials, UserPasswords, make_credentials
from enmasse.identity.passwords import is_password_of

if TYPE_CHECKING:
    import httpx

    from enmasse.control.store.registry import Registry
    from tests.unit.api.conftest import Api

PATH = "/apis/user.enmasse.io/v1beta1/namespaces/default/messagingusers"
APPLY = "application/apply-patch+yaml"


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def body(password: str | None, name: str = "shop.jo", **spec: Any) -> dict[str, Any]:
    authentication = {"type": "password"} | ({} if password is None else {"password": base64(password)})
    return {
        "apiVersion": "user.enmasse.io/v1beta1",
        "kind": "MessagingUser",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"username": name.partition(".")[2], "authentication": authentication, **spec},
    }


@pytest.fixture
def users(api: Api, registry: Registry) -> Api:
    registry.add_admission(UserPasswords())
    return api


def send(api: Api, verb: str, password: str) -> httpx.Response:
    """Give the user a password, in one of the ways that there are."""
    if verb == "create":
        return api("POST", PATH, json=body(password))
    if verb == "replace":
        return api("PUT", f"{PATH}/shop.jo", json=body(password))
    if verb == "apply":
        return api(
            "PATCH",
            f"{PATH}/shop.jo?fieldManager=kubectl&force=true",
            content=json.dumps(body(password)),
            headers={"content-type": APPLY},
        )
    authentication = {"password": base64(password)}
    if verb == "merge":
        content: Any = {"spec": {"authentication": authentication}}
    else:
        content = [{"op": "add", "path": "/spec/authentication/password", "value": base64(password)}]
    kind = "merge" if verb == "merge" else "json"
    return api(
        "PATCH",
        f"{PATH}/shop.jo",
        content=json.dumps(content),
        headers={"content-type": f"application/{kind}-patch+json"},
    )


def password_is(registry: Registry, password: str) -> bool:
    found = registry.store.get("MessagingUser", "default", "shop.jo")
    kept = registry.store.aside(found["metadata"]["uid"], ASIDE)
    assert kept is not None
    return is_password_of(Credentials.unpack(kept).keys, password)


@pytest.mark.parametrize("verb", ["create", "replace", "apply", "merge", "json"])
def test_a_password_is_taken_and_never_shown(users: Api, registry: Registry, verb: str) -> None:
    if verb != "create":
        assert send(users, "create", "first one").status_code == 201
    answer = send(users, verb, "second one")
    assert answer.status_code in (200, 201), answer.text
    assert password_is(registry, "second one")
    seen = answer.text + users("GET", PATH).text + users("GET", f"{PATH}/shop.jo").text
    changes, _ = registry.store.changes(0)
    seen += json.dumps([(change.document, change.before) for change in changes])
    for secret in ("first one", "second one", base64("first one"), base64("second one"), "storedKey"):
        assert secret not in seen
    again = send(users, "replace" if verb == "create" else verb, "second one")
    assert again.json()["metadata"]["annotations"] == answer.json()["metadata"]["annotations"]


def test_a_dry_run_and_a_refusal_change_no_password(users: Api, registry: Registry) -> None:
    send(users, "create", "first one")
    assert users("PUT", f"{PATH}/shop.jo?dryRun=All", json=body("second one")).status_code == 200
    refused = users("PUT", f"{PATH}/shop.jo", json=body("second one", authorization=[{"operations": ["fly"]}]))
    assert refused.status_code == 422
    plain = body(None) | {"spec": {"username": "jo", "authentication": {"password": "second one"}}}
    wrong = users("PUT", f"{PATH}/shop.jo", json=plain)
    assert wrong.status_code == 422
    assert "second one" not in refused.text + wrong.text
    assert password_is(registry, "first one")


def test_others_are_served_while_keys_are_made(users: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answered = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Credentials:
        begun.set()
        assert answered.wait(30), "nobody was served meanwhile"
        return make_credentials(*arguments)

    monkeypatch.setattr(user_passwords, "make_credentials", slowly)

    async def talk(client: httpx.AsyncClient) -> tuple[int, int]:
        creating = asyncio.ensure_future(client.post(PATH, json=body("first one")))
        async with asyncio.timeout(30):
            while not begun.is_set():
                await asyncio.sleep(0.001)
        meanwhile = await client.get(PATH)
        answered.set()
        return meanwhile.status_code, (await creating).status_code

    assert users.talk(talk) == (200, 201)
