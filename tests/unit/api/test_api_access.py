"""Who may use the API, and for what: over the whole application, without a socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import pytest
from argon2 import PasswordHasher

from enmasse.api.access import authorization
from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.authorization import Access, access_request_of
from enmasse.api.access.browser_logins import BrowserLogin, ProviderProof
from enmasse.api.access.sessions import MAX_SESSIONS_OF_ACCOUNT, Lifetime, Sessions, outlasts_session
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.access.accounts import Accounts, KeptSession, WebPasswords, new_secret
from enmasse.control.access.rights import Rights
from enmasse.control.errors import ForbiddenError
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.identity.rbac import LOCAL_OPERATOR, AccessRequest, Requester
from enmasse.model.schema.kinds import KINDS
from tests.support.messages import NoMessages

SPACES = "/apis/enmasse.io/v1beta1/namespaces/{}/addressspaces"
ALL_SPACES = "/apis/enmasse.io/v1beta1/addressspaces"
ACCESS = "/apis/access.enmasse.io/v1beta1"
PASSWORDS = WebPasswords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
PASSWORD = "correct horse"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class OneIssuer:
    """An OpenID provider that knows one token, and no browsers."""

    login_name = ""

    async def login_url(self, login: BrowserLogin) -> str:
        raise AssertionError(login)

    async def redeem(self, login: BrowserLogin, code: str, issuer: str) -> ProviderProof | None:
        raise AssertionError((login, code, issuer))

    async def requester_of(self, token: str) -> Requester | None:
        return Requester.known("oidc:olga", ("oidc:blue",)) if token == "of.olga.signed" else None

    async def close(self) -> None:
        """There is nothing to give up."""


class Deserted:
    """A node whose spaces nobody uses; nothing of them may be ended."""

    async def connections_of(self, _space: str, _offset: int) -> tuple[list[dict[str, Any]], bool]:
        return [], False

    links_of = mqtt_sessions_of = wills_of = connections_of

    async def close_connection(self, space: str, connection: str) -> bool:
        raise AssertionError(space, connection)

    end_session = close_connection

    async def retained_of(self, _space: str, _pattern: str, _offset: int) -> tuple[list[dict[str, Any]], int | None]:
        return [], None

    async def clear_retained(self, space: str, pattern: str) -> int:
        raise AssertionError(space, pattern)


class Guarded:
    """An API that asks everybody for a proof; blue and green are tenants of two namespaces."""

    def __init__(self, registry: Registry, accounts: Accounts) -> None:
        self.registry = registry
        self.accounts = accounts
        self.clock = Clock()
        self.operator = new_secret()
        self.password_hash = PASSWORDS.hash(PASSWORD)
        self.tokens: dict[str, str] = {}
        self.authenticator = authenticator = Authenticator(
            accounts,
            is_required=True,
            operator=self.operator,
            passwords=PASSWORDS,
            verifier=OneIssuer(),
            now=self.clock,
        )
        self.app = create_app(
            ApiParts(
                registry=registry,
                stop=asyncio.Event(),
                nodes={"node-0": NodeAccess(messages=NoMessages(), sessions=Deserted(), retained=Deserted())},
                authenticator=authenticator,
                is_own_name="api.example.org".__eq__,
            )
        )
        for namespace in ("blue", "green"):
            metadata = {"name": namespace, "namespace": "", "uid": namespace}
            registry.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            registry.store.create(space("shop", namespace))

    def begin(self) -> None:
        """Have accounts, tokens and bindings as at first, and all failures and sessions forgotten."""
        self.clock.now += 100_000
        for account in self.accounts.all():
            self.accounts.remove(account.name)
        store = self.registry.store
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            for item in store.select(kind):
                store.delete(kind, item["metadata"]["namespace"], item["metadata"]["name"])
        self.tokens = {"operator": self.operator}
        for name, groups in (("blue", ()), ("green", ()), ("sam", ("service",)), ("nobody", ())):
            self.accounts.add(name, password_hash=self.password_hash, groups=groups)
            self.tokens[name] = self.accounts.create_token(name).secret
        self.bind("tenant-edit", "User", "blue", "blue")
        self.bind("tenant-view", "User", "green", "green")
        self.bind("service-admin", "Group", "service", "")

    def bind(self, role: str, kind: str, subject: str, namespace: str) -> None:
        self.registry.store.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
                "metadata": {"name": f"{subject}-{role}", "namespace": namespace, "uid": f"{subject}-{role}"},
                "roleRef": {"kind": "ClusterRole", "name": f"enmasse.io:{role}"},
                "subjects": [{"kind": kind, "name": subject}],
            }
        )

    @contextlib.asynccontextmanager
    async def client(self, base_url: str = "https://api.example.org") -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 40_000))
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
            yield client

    def __call__(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(who, who)}"

        async def body() -> httpx.Response:
            async with self.client() as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(body())

    def run(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        """Send requests by one browser, which keeps cookies."""

        async def body() -> list[httpx.Response]:
            async with self.client() as client:
                return [await client.request(method, path, **options) for method, path, options in requests]

        return asyncio.run(body())


def space(name: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace, "uid": f"{namespace}-{name}"} if namespace else {})
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": metadata, "spec": {}}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    # Making the application takes longer than any test here.
    directory = tmp_path_factory.mktemp("access")
    uids = itertools.count(1)
    with (
        ResourceStore(directory / "resources.db", history=1_000) as store,
        Accounts(directory / "access.db", now=lambda: 1_000.0) as accounts,
    ):
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        yield Guarded(registry, accounts)


@pytest.fixture
def guarded(installation: Guarded) -> Guarded:
    installation.begin()
    return installation


def message(response: httpx.Response) -> str:
    return str(response.json()["message"])


def test_nothing_but_health_is_told_without_a_proof(guarded: Guarded) -> None:
    for path in (ALL_SPACES, SPACES.format("blue"), "/apis", "/version", "/metrics", "/whoami", "/no/such/path"):
        response = guarded(None, "GET", path)
        assert response.status_code == 401
        assert response.json()["reason"] == "Unauthorized"
        assert response.headers["www-authenticate"] == 'Bearer realm="enmasse"'
    assert guarded(None, "GET", "/healthz").text == "ok"
    assert guarded(None, "GET", "/readyz").text == "ok"
    assert guarded(None, "GET", "/readyz/nodes/node-9").status_code == 404
    assert guarded(None, "GET", "/readyz/nodes").status_code == 401
    assert guarded(None, "GET", "/readyz?verbose").status_code == 401


@pytest.mark.parametrize("token", ["", "enm_wrong", "some.other.token", "of.olga.signed.not"])
def test_a_token_that_is_worth_nothing_is_refused_everywhere(guarded: Guarded, token: str) -> None:
    for path in (ALL_SPACES, "/healthz"):
        assert guarded(token, "GET", path).status_code == 401


def test_the_local_operator_may_do_everything(guarded: Guarded) -> None:
    assert len(guarded("operator", "GET", ALL_SPACES).json()["items"]) == 2
    assert guarded("operator", "GET", "/whoami").json()["username"] == "system:operator"


def test_a_tenant_sees_its_own_namespace_alone(guarded: Guarded) -> None:
    assert guarded("blue", "GET", SPACES.format("blue")).json()["items"][0]["metadata"]["name"] == "shop"
    refused = guarded("blue", "GET", SPACES.format("green"))
    assert refused.status_code == 403
    assert refused.json()["reason"] == "Forbidden"
    assert message(refused) == (
        'addressspaces.enmasse.io is forbidden: User "blue" cannot list resource "addressspaces" '
        'in API group "enmasse.io" in the namespace "green"'
    )
    assert message(guarded("blue", "GET", ALL_SPACES)).endswith("at the cluster scope")
    assert guarded("blue", "GET", f"{ALL_SPACES}?watch=1").status_code == 403


def test_a_refusal_does_not_tell_what_there_is(guarded: Guarded) -> None:
    there = guarded("blue", "GET", SPACES.format("green") + "/shop")
    not_there = guarded("blue", "GET", SPACES.format("green") + "/none")
    assert there.status_code == not_there.status_code == 403
    assert message(there).replace("shop", "none") == message(not_there)
    assert guarded("blue", "GET", SPACES.format("no-such-namespace") + "/none").status_code == 403


def test_who_may_only_look_changes_nothing(guarded: Guarded) -> None:
    path = SPACES.format("green")
    assert guarded("green", "GET", f"{path}/shop").status_code == 200
    for method, at, body in (
        ("POST", path, space("other")),
        ("PUT", f"{path}/shop", space("shop")),
        ("PATCH", f"{path}/shop", {"metadata": {"labels": {"a": "b"}}}),
        ("DELETE", f"{path}/shop", {}),
        ("DELETE", path, {}),
        ("POST", "/apis/enmasse.io/v1beta1/namespaces/green/addresses/shop.stock/purge", {}),
        ("DELETE", f"{path}/shop/connections/c-1", {}),
        ("DELETE", f"{path}/shop/sessions/lamp", {}),
        ("DELETE", f"{path}/shop/retained?filter=%23", {}),
    ):
        assert guarded("green", method, at, json=body).status_code == 403, method
    for listed in ("connections", "links", "sessions", "wills", "retained"):
        assert guarded("green", "GET", f"{path}/shop/{listed}").json()["items"] == [], listed


TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
BARE = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


def test_no_way_leads_to_another_namespace(guarded: Guarded) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": "of-green"}}
    assert guarded("operator", "POST", "/api/v1/namespaces/green/secrets", json=secret).status_code == 201
    green = SPACES.format("green")
    every = f"{ALL_SPACES}?fieldSelector=metadata.namespace%3Dblue"
    theirs = space("mine") | {"metadata": {"name": "mine", "namespace": "green"}}
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", green, {}),
        ("GET", green, {"headers": TABLE}),
        ("GET", green, {"headers": BARE}),
        ("GET", every, {}),
        ("GET", f"{every}&watch=true", {}),
        ("GET", f"{green}?watch=false&watch=1", {}),
        ("GET", f"{green}?fieldSelector=metadata.name%3Dshop&watch=1", {}),
        ("GET", f"{SPACES.format('blue')}/../../green/addressspaces", {}),
        ("GET", f"{SPACES.format('blue')}/%2e%2e/%2e%2e/green/addressspaces", {}),
        ("GET", f"{green}/shop", {"headers": {"X-Remote-User": "system:admin", "Impersonate-User": "green"}}),
        ("GET", f"{green}/shop/status", {}),
        ("GET", f"{green}/shop/connections", {}),
        ("DELETE", f"{green}/shop/connections/c-1", {}),
        ("GET", f"{green}/shop/links", {}),
        ("GET", f"{green}/shop/sessions", {}),
        ("DELETE", f"{green}/shop/sessions/lamp", {}),
        ("GET", f"{green}/shop/wills", {}),
        ("GET", f"{green}/shop/retained", {}),
        ("DELETE", f"{green}/shop/retained?filter=%23", {}),
        ("GET", "/api/v1/namespaces/green", {}),
        ("GET", "/api/v1/namespaces", {}),
        ("GET", "/api/v1/events", {}),
        ("GET", "/api/v1/namespaces/green/events", {}),
        ("GET", "/api/v1/namespaces/green/secrets", {"headers": TABLE}),
        ("GET", "/api/v1/namespaces/green/secrets/keys", {}),
        ("GET", "/api/v1/namespaces/green/configmaps", {}),
        ("GET", "/apis/user.enmasse.io/v1beta1/namespaces/green/messagingusers", {}),
        ("GET", "/apis/user.enmasse.io/v1beta1/messagingusers", {}),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/green/rolebindings", {}),
        ("POST", green, {"json": space("mine")}),
        ("PATCH", f"{green}/shop", {"json": {}, "headers": {"Content-Type": "application/merge-patch+json"}}),
        ("PATCH", f"{green}/mine?fieldManager=me", {"json": theirs}),
        ("POST", SPACES.format("blue"), {"json": theirs}),
        ("POST", "/apis/enmasse.io/v1beta1/namespaces/green/addresses/shop.stock/purge", {"json": {}}),
        ("GET", "/metrics", {}),
        ("GET", "/readyz?verbose", {}),
    ]
    for method, path, options in ways:
        response = guarded("blue", method, path, **options)
        assert response.status_code in (400, 403), (method, path, response.status_code)
        assert "of-green" not in response.text
        assert '"uid"' not in response.text
    refused = guarded("green", "GET", "/api/v1/namespaces/green/secrets/keys")
    assert refused.status_code == 403  # tenant-view
    guarded("operator", "DELETE", "/api/v1/namespaces/green/secrets/keys")


def test_a_role_taken_away_counts_no_longer_and_one_given_counts_at_once(guarded: Guarded) -> None:
    guarded.registry.store.delete("RoleBinding", "blue", "blue-tenant-edit")
    assert guarded("blue", "GET", SPACES.format("blue")).status_code == 403
    guarded.bind("tenant-view", "User", "blue", "blue")
    assert guarded("blue", "GET", SPACES.format("blue")).status_code == 200


def test_tokens_of_an_openid_provider_and_its_groups_count(guarded: Guarded) -> None:
    assert guarded("of.olga.signed", "GET", SPACES.format("blue")).status_code == 403
    guarded.bind("tenant-view", "Group", "oidc:blue", "blue")
    assert guarded("of.olga.signed", "GET", SPACES.format("blue")).status_code == 200


def test_a_watch_ends_when_its_owner_may_no_longer_have_it(guarded: Guarded) -> None:
    # httpx's transport gives a stream when it is complete: that it is, is the point.
    store: Any = guarded.registry.store
    path = f"{SPACES.format('blue')}?watch=1&timeoutSeconds=30&resourceVersion={store.version}"
    token = {"Authorization": f"Bearer {guarded.tokens['blue']}"}

    async def body() -> httpx.Response:
        async with guarded.client() as client, asyncio.timeout(60):
            watching = asyncio.create_task(client.get(path, headers=token))
            while not store._listeners:
                await asyncio.sleep(0.01)
            store.create(space("first", "blue"))
            await asyncio.sleep(0)
            guarded.accounts.remove("blue")
            store.create(space("second", "blue"))
            return await watching

    told = asyncio.run(body())
    for name in ("first", "second"):
        store.delete("AddressSpace", "blue", name)
    assert told.status_code == 200
    assert "second" not in told.text


@pytest.mark.parametrize("query", ["follow=true", ""])
def test_a_long_answer_ends_when_its_owner_may_no_longer_have_it(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(authorization, "_AGAIN_S", 0.01)
    said: list[str] = []

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        guarded.accounts.remove("blue")
        if query:  # it has nothing more to tell
            await asyncio.Event().wait()
        await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"second", "more_body": True})

    async def send(message: Any) -> None:
        said.append(message.get("body", b"").decode() if message.get("more_body", True) else "the end")

    path = SPACES.format("blue")
    scope: Any = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(),
        "headers": [(b"authorization", f"Bearer {guarded.tokens['blue']}".encode())],
        "state": {"cut": lambda: said.append("cut")},
    }  # fmt: skip
    access = Access(answer, Authenticator(guarded.accounts, is_required=True), Rights(guarded.registry.store))
    asyncio.run(asyncio.wait_for(access(scope, cast("Any", None), send), 20))
    assert said == ["", "first", "the end" if query else "cut"]


def test_logging_in_gives_a_session_that_ends(guarded: Guarded) -> None:
    entry = ("POST", "/login", {"json": {"username": "blue", "password": PASSWORD}})
    look: tuple[str, str, dict[str, Any]] = ("GET", SPACES.format("blue"), {})
    login, found, _, after = guarded.run(entry, look, ("POST", "/logout", {}), look)
    cookie = login.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" in cookie
    assert [login.status_code, found.status_code, after.status_code] == [200, 200, 401]


@pytest.mark.parametrize(("step", "steps", "left"), [(43_199, 14, True), (43_201, 1, False), (43_199, 15, False)])
def test_a_session_ends_after_seven_days_or_twelve_idle_hours(
    guarded: Guarded, step: int, steps: int, left: bool
) -> None:
    async def body() -> int:
        async with guarded.client() as client:
            await client.post("/login", json={"username": "blue", "password": PASSWORD})
            for _ in range(steps):
                guarded.clock.now += step
                last = await client.get(SPACES.format("blue"))
            return last.status_code

    assert asyncio.run(body()) == (200 if left else 401)


LASTING: list[tuple[str, str]] = [
    ("POST", f"{ACCESS}/tokens"),
    ("POST", f"{ACCESS}/accounts"),
    ("PUT", f"{ACCESS}/accounts/green/password"),
    *(
        (method, f"/apis/{group}/{plural}{name}")
        for group, plural in (
            ("rbac.authorization.k8s.io/v1", "namespaces/blue/rolebindings"),
            ("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
            ("admin.enmasse.io/v1beta1", "namespaces/enmasse-infra/authenticationservices"),
            ("user.enmasse.io/v1beta1", "namespaces/blue/messagingusers"),
            ("enmasse.io/v1beta1", "namespaces/blue/webhooks"),
        )
        for method, name in (("POST", ""), ("PUT", "/x"), ("PATCH", "/x"))
    ),
    *((method, f"{SPACES.format('blue')}/shop") for method in ("PUT", "PATCH")),
    *((method, "/apis/iot.enmasse.io/v1/namespaces/blue/iotprojects/x") for method in ("PUT", "PATCH")),
    *((method, "/api/v1/namespaces/blue/secrets/x") for method in ("GET", "HEAD", "PUT", "PATCH")),
    *((method, "/api/v1/namespaces/blue/secrets") for method in ("GET", "POST")),
    ("GET", "/api/v1/secrets?watch=true&resourceVersion=none"),
    *((method, f"/registry/v1/{what}/blue.t") for what in ("tenants", "credentials") for method in ("POST", "PUT")),
    ("PUT", "/registry/v1/credentials/blue.t/device"),
    ("POST", "/registry/v1/import/blue.t"),
    *((method, "/osbapi/v2/service_instances/i/service_bindings/b") for method in ("PUT", "GET")),
]
"""Requests that give access which outlasts the session in which they are sent."""

PASSING: list[tuple[str, str]] = [
    ("GET", f"{ACCESS}/tokens"),
    ("DELETE", f"{ACCESS}/tokens/x"),
    ("POST", SPACES.format("blue")),
    ("PUT", "/apis/enmasse.io/v1beta1/namespaces/blue/addresses/shop.x"),
    ("DELETE", "/apis/user.enmasse.io/v1beta1/namespaces/blue/messagingusers/x"),
    ("GET", "/apis/user.enmasse.io/v1beta1/namespaces/blue/messagingusers"),
    ("GET", "/api/v1/namespaces/blue/configmaps"),
    ("GET", "/registry/v1/credentials/blue.t/device"),
    ("GET", "/osbapi/v2/catalog"),
]


def is_for_want_of_a_proof(response: httpx.Response) -> bool:
    if response.status_code != 403 or response.request.method == "HEAD":
        return response.request.method == "HEAD" and response.status_code == 403
    causes = response.json().get("details", {}).get("causes", [])
    return any(cause["reason"] == "FreshProofRequired" for cause in causes)


def test_with_the_cookie_of_an_administrator_nothing_is_got_that_outlasts_it(guarded: Guarded) -> None:
    """A stolen cookie is worth its session; the one whose it is has a proof besides, which is in no cookie."""
    guarded.accounts.add("ann", password_hash=guarded.password_hash, groups=("system:masters",))
    by_token = guarded.accounts.create_token("ann").secret

    async def body() -> None:
        async with guarded.client() as client:
            answer = await client.post("/login", json={"username": "ann", "password": PASSWORD})
            proof = {"EnMasse-Proof": answer.json()["proof"]}
            assert proof["EnMasse-Proof"] not in str(answer.headers)
            for method, path in LASTING:
                what = f"{method} {path}"
                stolen = await client.request(method, path, json={})
                assert is_for_want_of_a_proof(stolen), (what, stolen.text)
                own = await client.request(method, path, json={}, headers=proof)
                assert not is_for_want_of_a_proof(own), (what, own.text)
                bearer = {"Authorization": f"Bearer {by_token}"}
                program = await client.request(method, path, json={}, headers=bearer)
                assert not is_for_want_of_a_proof(program), (what, program.text)
            for method, path in PASSING:
                assert not is_for_want_of_a_proof(await client.request(method, path, json={})), path

    asyncio.run(body())
    assert {token.note for token in guarded.accounts.tokens("ann")} == {""}


@pytest.mark.parametrize("is_proved", [False, True])
def test_a_write_in_a_session_says_whether_there_is_a_fresh_proof(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, is_proved: bool
) -> None:
    """Some writes are known to outlast the session once they have been read, as a pipeline that uses a Secret."""
    writers: list[Requester] = []

    def create(*_: object, user: Requester, **__: object) -> None:
        writers.append(user)
        raise ForbiddenError("seen")

    monkeypatch.setattr(guarded.registry, "create", create)

    async def body() -> None:
        async with guarded.client() as client:
            answer = await client.post("/login", json={"username": "blue", "password": PASSWORD})
            proof = {"EnMasse-Proof": answer.json()["proof"]} if is_proved else {}
            await client.post(SPACES.format("blue"), json=space("new"), headers=proof)

    asyncio.run(body())
    assert [bool(user.unproved) for user in writers] == [not is_proved]


def test_who_has_no_right_to_something_is_told_so_and_asked_for_no_proof(guarded: Guarded) -> None:
    entry = ("POST", "/login", {"json": {"username": "green", "password": PASSWORD}})
    _, refused = guarded.run(entry, ("GET", "/api/v1/namespaces/blue/secrets", {}))
    assert refused.status_code == 403
    assert not is_for_want_of_a_proof(refused)


@pytest.mark.parametrize("proof", ["", "x", "1.00", "{later}.{mac}", "{of_another}", "{old}"])
def test_a_proof_counts_in_its_session_and_for_its_time(guarded: Guarded, proof: str) -> None:
    async def body() -> httpx.Response:
        async with guarded.client() as other:
            entry = {"username": "blue", "password": PASSWORD}
            of_another = (await other.post("/login", json=entry)).json()["proof"]
        async with guarded.client() as client:
            own = (await client.post("/login", json=entry)).json()["proof"]
            until, mac = own.split(".")
            if proof == "{old}":
                guarded.clock.now += 299
                await client.get("/whoami")
                guarded.clock.now += 299
                still = await client.post(f"{ACCESS}/tokens", json={}, headers={"EnMasse-Proof": own})
                assert still.status_code == 201
                guarded.clock.now += 10
            given = proof.format(later=int(until) + 60, mac=mac, of_another=of_another, old=own)
            return await client.post(f"{ACCESS}/tokens", json={}, headers={"EnMasse-Proof": given})

    assert is_for_want_of_a_proof(asyncio.run(body()))


def test_a_fresh_proof_is_given_for_the_password_alone(guarded: Guarded) -> None:
    async def body() -> list[int]:
        async with guarded.client() as client:
            nobody = await client.post("/login/proof", json={"password": PASSWORD})
            await client.post("/login", json={"username": "blue", "password": PASSWORD})
            wrong = await client.post("/login/proof", json={"password": "a wrong horse"})
            right = await client.post("/login/proof", json={"password": PASSWORD})
            proof = {"EnMasse-Proof": right.json()["proof"]}
            made = await client.post(f"{ACCESS}/tokens", json={"note": "laptop"}, headers=proof)
            assert made.json()["madeBy"] == "session"
            return [answer.status_code for answer in (nobody, wrong, right, made)]

    assert asyncio.run(body()) == [401, 401, 200, 201]


def test_the_operators_session_is_proved_by_the_link(guarded: Guarded) -> None:
    async def body() -> None:
        async with guarded.client() as client:
            led = await client.get("/login", params={"token": guarded.operator, "page": "spaces"})
            place, _, proof = led.headers["location"].partition("#proof=")
            assert place == "/console/spaces"
            assert (await client.get("/whoami")).json()["prove"] == "link"
            ghost = {"username": "ghost", "password": "a long password"}
            refused = await client.post(f"{ACCESS}/accounts", json=ghost)
            assert is_for_want_of_a_proof(refused)
            assert "enmasse console" in message(refused)
            assert (await client.post("/login/proof", json={"password": "x"})).status_code == 403
            made = await client.post(f"{ACCESS}/accounts", json=ghost, headers={"EnMasse-Proof": proof})
            assert made.status_code == 201

    asyncio.run(body())


def test_a_token_lasts_ninety_days_unless_said_and_says_so(guarded: Guarded) -> None:
    guarded.accounts.add("ann", password_hash="", groups=("system:masters",))
    operator = "operator"
    for given, days in (({}, 90), ({"expirationSeconds": 86_400}, 1), ({"expirationSeconds": 0}, None)):
        made = guarded(operator, "POST", f"{ACCESS}/tokens", json={"account": "ann", **given}).json()
        assert made["expires"] == (None if days is None else time_of(1_000 + days * 86_400)), given
        assert made["madeBy"] == "operator"
    for wrong in (-1, True, "90d", 1 << 40):
        answer = guarded(operator, "POST", f"{ACCESS}/tokens", json={"account": "ann", "expirationSeconds": wrong})
        assert answer.status_code == 400, wrong


def time_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_token_that_was_made_with_another_ends_with_it(guarded: Guarded) -> None:
    """A token that was stolen begets none that outlasts it, also not for other accounts, or over several steps."""
    guarded.accounts.add("ann", password_hash=guarded.password_hash, groups=("system:masters",))
    first = guarded.accounts.create_token("ann", seconds=3_600)
    second = guarded(first.secret, "POST", f"{ACCESS}/tokens", json={"expirationSeconds": 0}).json()
    third = guarded(second["token"], "POST", f"{ACCESS}/tokens", json={"account": "green"}).json()
    assert second["expires"] == third["expires"] == time_of(1_000 + 3_600)
    assert (second["parent"], third["parent"]) == (first.token.id, second["id"])
    assert guarded(third["token"], "GET", "/whoami").json()["username"] == "green"
    assert guarded("operator", "DELETE", f"{ACCESS}/tokens/{first.token.id}").status_code == 200
    for made in (second, third):
        assert guarded(made["token"], "GET", "/whoami").status_code == 401


def test_answers_to_a_token_that_ends_soon_warn(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    made = guarded.accounts.create_token("blue", seconds=30 * 86_400)
    warnings = []
    for day in (0, 26, 28):
        monkeypatch.setattr("enmasse.api.access.authorization.time.time", lambda day=day: 1_000.0 + day * 86_400)
        answer = guarded(made.secret, "GET", SPACES.format("blue"))
        assert answer.status_code == 200
        warnings.append(answer.headers.get("warning", ""))
    assert warnings[:2] == ["", ""]
    assert made.token.id in warnings[2]
    assert "1970-01-31T00:16:40Z" in warnings[2]


@pytest.mark.parametrize(
    ("end", "gone"), [(None, {"console"}), ([], set()), (["ci"], {"ci"}), (["console", "ci"], {"console", "ci"})]
)
def test_a_change_of_the_password_ends_sessions_and_what_was_made_in_them(
    guarded: Guarded, end: list[str] | None, gone: set[str]
) -> None:
    made = {
        "console": guarded.accounts.create_token("blue", made_by="session"),
        "ci": guarded.accounts.create_token("blue", made_by="operator"),
        "other": guarded.accounts.create_token("green", made_by="session"),
    }
    asked = {} if end is None else {"endTokens": [made[name].token.id for name in end] + [made["other"].token.id]}

    async def body() -> None:
        entry = {"username": "blue", "password": PASSWORD}
        async with guarded.client() as elsewhere, guarded.client() as client:
            await elsewhere.post("/login", json=entry)
            await client.post("/login", json=entry)
            listed = (await client.get(f"{ACCESS}/sessions")).json()["items"]
            assert [(item["account"], item["current"]) for item in listed] == [("blue", False), ("blue", True)]
            change = {"oldPassword": PASSWORD, "password": "another horse", **asked}
            answer = await client.put(f"{ACCESS}/accounts/blue/password", json=change)
            assert answer.status_code == 200
            ended = answer.json()
            assert ended["sessionsEnded"] == 2
            assert {item["id"] for item in ended["tokensEnded"]} == {made[name].token.id for name in gone}
            assert (await elsewhere.get("/whoami")).status_code == 401
            assert (await client.get("/whoami")).json()["username"] == "blue"

    asyncio.run(body())
    good = {name for name, token in made.items() if guarded.accounts.find_token(token.secret)}
    assert good == set(made) - gone


def test_one_logs_out_everywhere(guarded: Guarded) -> None:
    stays = guarded.accounts.create_token("blue", made_by="operator")
    login = guarded.accounts.create_token("blue", made_by="session")

    async def body() -> None:
        async with guarded.client() as elsewhere, guarded.client() as client, guarded.client() as green:
            for browser, name in ((elsewhere, "blue"), (client, "blue"), (green, "green")):
                await browser.post("/login", json={"username": name, "password": PASSWORD})
            assert (await green.delete(f"{ACCESS}/sessions", params={"account": "blue"})).status_code == 403
            listed = (await green.get(f"{ACCESS}/sessions")).json()["items"]
            assert (await client.delete(f"{ACCESS}/sessions/{listed[0]['id']}")).status_code == 404
            assert (await client.delete(f"{ACCESS}/sessions")).status_code == 200
            assert [(await browser.get("/whoami")).status_code for browser in (elsewhere, client)] == [401, 401]
            assert (await green.get("/whoami")).status_code == 200

    asyncio.run(body())
    assert guarded.accounts.find_token(stays.secret)
    assert not guarded.accounts.find_token(login.secret)


def test_an_administrator_logs_others_out(guarded: Guarded) -> None:
    entry = {"username": "blue", "password": PASSWORD}

    async def body() -> int:
        async with guarded.client() as client:
            await client.post("/login", json=entry)
            bearer = {"Authorization": f"Bearer {guarded.operator}"}
            where: dict[str, Any] = {"params": {"account": "blue"}, "headers": bearer}
            assert len((await client.get(f"{ACCESS}/sessions", **where)).json()["items"]) == 1
            assert (await client.delete(f"{ACCESS}/sessions", **where)).json()["sessionsEnded"] == 1
            return (await client.get("/whoami")).status_code

    assert asyncio.run(body()) == 401


def test_the_sessions_of_one_account_push_out_none_of_others() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    own = sessions.begin(Requester.known("green"))
    first = sessions.begin(Requester.known("blue"))
    second = sessions.begin(Requester.known("blue"))
    for _ in range(MAX_SESSIONS_OF_ACCOUNT - 1):
        last = sessions.begin(Requester.known("blue"))
    assert [sessions.find(secret) is not None for secret in (own, first, second, last)] == [True, False, True, True]
    assert len(sessions) == MAX_SESSIONS_OF_ACCOUNT + 1
    clock.now += 43_201  # those that have ended are no burden
    sessions.begin(Requester.known("blue"))
    assert len(sessions.of("blue")) == 1


def test_when_all_places_are_taken_an_account_gives_one_up_that_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.api.access.sessions.MAX_SESSIONS", 6)
    sessions = Sessions(Clock())
    of_blue = [sessions.begin(Requester.known("blue")) for _ in range(5)]
    of_green = [sessions.begin(Requester.known("green")) for _ in range(3)]
    others = [sessions.begin(Requester.known(f"other-{number}")) for number in range(9)]
    assert len(sessions) == 6
    assert not any(map(sessions.find, of_blue[:4]))
    assert not any(map(sessions.find, of_green[:2]))
    assert sessions.find(others[-1])


def test_the_actions_that_outlast_a_session_are_those_of_the_table() -> None:
    """A kind of resources that is new has to be thought of here: may a change of it give access to somebody?"""
    asked = {
        (kind.plural, verb)
        for kind in KINDS
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
        if outlasts_session(AccessRequest(verb, kind.group, kind.plural, "blue"))
    }
    writes = ("create", "update", "patch")
    assert asked == {
        *(
            (plural, verb)
            for plural in ("rolebindings", "clusterrolebindings", "authenticationservices")
            for verb in writes
        ),
        *((plural, verb) for plural in ("messagingusers", "webhooks") for verb in writes),
        *((plural, verb) for plural in ("addressspaces", "iotprojects") for verb in ("update", "patch")),
        *(("secrets", verb) for verb in (*writes, "get", "list", "watch")),
    }
    assert {kind.plural for kind in KINDS} - {plural for plural, _ in asked} == GIVING_NO_ACCESS


GIVING_NO_ACCESS = {
    *("addresses", "addressplans", "addressspaceplans", "addressspaceschemas", "standardinfraconfigs"),
    *("brokeredinfraconfigs", "consoleservices", "configmaps", "services", "events", "namespaces", "resourcequotas"),
    *("clusterroles", "messagingnodes", "pipelines"),  # those that begin to use a Secret ask for a proof
}


@pytest.mark.parametrize(("passed", "left"), [(19, True), (21, False)])
def test_an_operator_says_how_long_a_session_may_be_idle(passed: float, left: bool) -> None:
    clock = Clock()
    sessions = Sessions(clock, Lifetime(idle_s=20, whole_s=100))
    secret = sessions.begin(Requester.known("blue"))
    clock.now += passed
    assert (sessions.find(secret) is not None) == left


def test_sessions_outlive_the_process_as_hashes_and_end_as_they_would_have(guarded: Guarded) -> None:
    async def in_sessions(cookies: list[str]) -> list[tuple[int, str]]:
        async with guarded.client() as client:
            answers = [await client.get("/whoami", headers={"cookie": f"enmasse_session={one}"}) for one in cookies]
        return [(answer.status_code, answer.json().get("username", "")) for answer in answers]

    def log_in(name: str) -> str:
        (answer,) = guarded.run(("POST", "/login", {"json": {"username": name, "password": PASSWORD}}))
        return str(answer.cookies["enmasse_session"])

    blue, ended, green, idle = log_in("blue"), log_in("blue"), log_in("green"), log_in("sam")
    sessions = guarded.authenticator.sessions
    gone = sessions.find(ended)
    assert gone is not None
    sessions.end(gone)
    guarded.clock.now += 43_000
    assert asyncio.run(in_sessions([blue, green]))[0] == (200, "blue")
    kept = repr(guarded.accounts.sessions())
    assert not any(secret in kept for secret in (blue, ended, green, idle))
    # While nobody serves, an account gets another password, and time passes.
    guarded.accounts.set_password("green", PASSWORDS.hash("another horse"))
    guarded.clock.now += 300
    guarded.authenticator.sessions = Sessions(guarded.clock, kept=guarded.accounts)
    assert asyncio.run(in_sessions([blue, ended, green, idle])) == [(200, "blue"), (401, ""), (401, ""), (401, "")]
    assert [kept.requester for kept in guarded.accounts.sessions()] == ["blue"]


def test_the_operators_sessions_end_with_the_token_and_nobody_else_becomes_the_operator(guarded: Guarded) -> None:
    clock, kept = guarded.clock, guarded.accounts
    secret = Sessions(clock, kept=kept, operator="one").begin(LOCAL_OPERATOR)
    found = Sessions(clock, kept=kept, operator="one").find(secret)
    assert found is not None
    assert (found.requester, found.way_to_prove) == (LOCAL_OPERATOR, "link")
    assert Sessions(clock, kept=kept, operator="two").find(secret) is None
    assert kept.sessions() == []
    kept.keep_session(KeptSession(b"k", "1", "blue", None, clock.now, clock.now, "", ""))
    assert len(Sessions(clock, kept=kept, operator="two")) == 0


def test_a_session_ends_with_its_password(guarded: Guarded) -> None:
    async def body() -> list[int]:
        async with guarded.client() as client:
            await client.post("/login", json={"username": "blue", "password": PASSWORD})
            before = await client.get("/whoami")
            guarded.accounts.set_password("blue", PASSWORDS.hash("another horse"))
            return [before.status_code, (await client.get("/whoami")).status_code]

    assert asyncio.run(body()) == [200, 401]


def test_who_guesses_passwords_must_wait_even_with_the_right_one(guarded: Guarded) -> None:
    wrong = ("POST", "/login", {"json": {"username": "blue", "password": "wrong horse"}})
    right = ("POST", "/login", {"json": {"username": "blue", "password": PASSWORD}})
    codes = [answer.status_code for answer in guarded.run(*[wrong] * 5, right)]
    assert codes == [401] * 5 + [429]
    guarded.clock.now += 6
    assert guarded.run(right)[0].status_code == 200


def test_an_unknown_user_is_refused_in_the_words_of_a_wrong_password(guarded: Guarded) -> None:
    answers = guarded.run(
        ("POST", "/login", {"json": {"username": "blue", "password": "wrong horse"}}),
        ("POST", "/login", {"json": {"username": "ghost", "password": "wrong horse"}}),
    )
    assert answers[0].json() == answers[1].json()


def test_passwords_go_in_the_header_for_brokers_alone(guarded: Guarded) -> None:
    basic = "Basic " + base64.b64encode(f"blue:{PASSWORD}".encode()).decode()
    refused = guarded(None, "GET", SPACES.format("blue"), headers={"Authorization": basic})
    assert refused.status_code == 401
    broker = guarded(None, "GET", "/osbapi/v2/no-such", headers={"Authorization": basic})
    assert broker.status_code == 404
    nobody = guarded(None, "GET", "/osbapi/v2/catalog")
    assert nobody.status_code == 401
    assert nobody.headers["www-authenticate"] == 'Basic realm="enmasse"'


def test_a_client_certificate_tells_user_and_groups(guarded: Guarded) -> None:
    seen = []

    async def ask(name: str, groups: tuple[str, ...], path: str) -> int:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {"peer": (name, groups)}  # as the server puts it there
            await guarded.app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://localhost") as client:
            answer = await client.get(path)
            seen.append(answer.text)
            return answer.status_code

    assert asyncio.run(ask("blue", (), SPACES.format("blue"))) == 200
    assert asyncio.run(ask("meter-1", (), SPACES.format("blue"))) == 403
    assert asyncio.run(ask("ann", ("system:masters",), ALL_SPACES)) == 200


def test_everybody_has_tokens_of_their_own_and_sees_no_others(guarded: Guarded) -> None:
    made = guarded("blue", "POST", f"{ACCESS}/tokens", json={"note": "laptop", "expirationSeconds": 60})
    assert made.status_code == 201
    assert guarded(made.json()["token"], "GET", "/whoami").json()["username"] == "blue"
    listed = guarded("blue", "GET", f"{ACCESS}/tokens")
    assert {token["account"] for token in listed.json()["items"]} == {"blue"}
    assert "enm_" not in listed.text
    theirs = guarded.accounts.tokens("green")[0].id
    assert guarded("blue", "DELETE", f"{ACCESS}/tokens/{theirs}").status_code == 404
    assert guarded("blue", "POST", f"{ACCESS}/tokens", json={"account": "green"}).status_code == 403
    assert guarded("blue", "DELETE", f"{ACCESS}/tokens/{made.json()['id']}").status_code == 200
    assert guarded(made.json()["token"], "GET", "/whoami").status_code == 401


def test_accounts_are_the_operators_matter(guarded: Guarded) -> None:
    new = {"username": "ann", "password": "a long password", "groups": ["system:masters"]}
    for who in ("blue", "sam"):
        assert guarded(who, "GET", f"{ACCESS}/accounts").status_code == 403
        assert guarded(who, "POST", f"{ACCESS}/accounts", json=new).status_code == 403
        assert guarded(who, "DELETE", f"{ACCESS}/accounts/green").status_code == 403
    added = guarded("operator", "POST", f"{ACCESS}/accounts", json=new)
    assert added.status_code == 201
    assert added.json()["hasPassword"]
    assert "argon2" not in guarded("operator", "GET", f"{ACCESS}/accounts").text
    assert guarded("operator", "DELETE", f"{ACCESS}/accounts/ann").status_code == 200


def test_nobody_changes_a_password_without_the_old_one_but_an_operator(guarded: Guarded) -> None:
    at = f"{ACCESS}/accounts/green/password"
    assert guarded("blue", "PUT", at, json={"password": "another horse"}).status_code == 403
    wrong = {"password": "another horse", "oldPassword": "wrong horse"}
    assert guarded("green", "PUT", at, json=wrong).status_code == 401
    assert guarded("green", "PUT", at, json=wrong | {"oldPassword": PASSWORD}).status_code == 200
    assert guarded("operator", "PUT", at, json={"password": "short"}).status_code == 400
    assert guarded("operator", "PUT", at, json={"password": "a third horse"}).status_code == 200


@pytest.mark.parametrize(
    ("who", "attributes", "allowed"),
    [
        ("blue", {"verb": "list", "group": "enmasse.io", "resource": "addresses", "namespace": "blue"}, True),
        ("blue", {"verb": "list", "group": "enmasse.io", "resource": "addresses", "namespace": "green"}, False),
        ("blue", {"verb": "list", "group": "enmasse.io", "resource": "addresses"}, False),
        ("green", {"verb": "get", "resource": "secrets", "namespace": "green"}, False),
        (
            "blue",
            {
                "verb": "create",
                "group": "enmasse.io",
                "resource": "addresses",
                "subresource": "purge",
                "namespace": "blue",
            },
            True,
        ),
        ("operator", {"verb": "*", "group": "*", "resource": "*"}, True),
    ],
)
def test_everybody_may_ask_what_they_may_do(
    guarded: Guarded, who: str, attributes: dict[str, str], allowed: bool
) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = guarded(who, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review)
    assert answer.status_code == 201
    assert answer.json()["status"]["allowed"] is allowed


def test_everybody_may_list_what_they_may_do(guarded: Guarded) -> None:
    review = {"kind": "SelfSubjectRulesReview", "spec": {"namespace": "green"}}
    at = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = guarded("green", "POST", at, json=review).json()["status"]["resourceRules"]
    told = {(verb, name) for rule in rules for verb in rule["verbs"] for name in rule["resources"]}
    assert ("list", "addresses") in told
    assert ("delete", "addresses") not in told
    assert ("get", "secrets") not in told
    who = guarded("sam", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json={})
    assert who.json()["status"]["userInfo"] == {"username": "sam", "groups": ["service", "system:authenticated"]}


@pytest.mark.parametrize(
    ("method", "path", "ask"),
    [
        ("GET", "/api/v1/namespaces", AccessRequest("list", "", "namespaces")),
        ("GET", "/api/v1/namespaces/blue", AccessRequest("get", "", "namespaces", "blue", "blue")),
        ("PUT", "/api/v1/namespaces/blue/status", AccessRequest("update", "", "namespaces/status", "blue", "blue")),
        ("GET", "/api/v1/namespaces/blue/secrets/keys", AccessRequest("get", "", "secrets", "blue", "keys")),
        ("HEAD", "/api/v1/namespaces/blue/secrets", AccessRequest("list", "", "secrets", "blue")),
        ("DELETE", "/api/v1/namespaces/blue/secrets", AccessRequest("deletecollection", "", "secrets", "blue")),
        ("PATCH", "/apis/g/v1/namespaces/n/things/x/status", AccessRequest("patch", "g", "things/status", "n", "x")),
        (
            "DELETE",
            "/apis/g/v1/namespaces/n/things/x/connections/c1",
            AccessRequest("delete", "g", "things/connections", "n", "x"),
        ),
        ("GET", "/apis/g/v1/namespaces/n/namespaces", AccessRequest("list", "g", "namespaces", "n")),
        ("GET", "/apis/g/v1", AccessRequest("get", path="/apis/g/v1")),
        ("GET", "/apis/g/v1//things", AccessRequest("get", path="/apis/g/v1//things")),
        ("GET", "//api/v1/namespaces/blue/secrets", AccessRequest("get", path="//api/v1/namespaces/blue/secrets")),
        ("TRACE", "/api/v1/nodes", AccessRequest("trace", "", "nodes")),
    ],
)
def test_what_a_request_asks_for_is_read_from_its_path(method: str, path: str, ask: AccessRequest) -> None:
    assert access_request_of(method, path) == ask


def test_proofs_are_in_no_answer(guarded: Guarded) -> None:
    for who in ("blue", "nobody"):
        for path in (SPACES.format("green"), "/whoami", f"{ACCESS}/tokens", "/metrics"):
            assert guarded.tokens[who] not in guarded(who, "GET", path).text
    assert guarded.operator not in json.dumps(guarded("operator", "GET", "/whoami").json())
