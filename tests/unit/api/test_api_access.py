"""Who may use the API, and for what: over the whole application, without a socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from enmasse.api.access.authentication import Authenticator, Sessions
from enmasse.api.access.authorization import access_request_of
from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.access.accounts import Accounts, WebPasswords, new_secret
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.identity.rbac import AccessRequest, Requester
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

    async def login_url(self, redirect: str, state: str, challenge: str) -> str:
        raise AssertionError((redirect, state, challenge))

    async def redeem(self, code: str, redirect: str, verifier: str) -> Requester | None:
        raise AssertionError((code, redirect, verifier))

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
        authenticator = Authenticator(
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
        async with guarded.client() as client, asyncio.timeout(10):
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


def test_logging_in_gives_a_session_that_ends(guarded: Guarded) -> None:
    entry = ("POST", "/login", {"json": {"username": "blue", "password": PASSWORD}})
    look: tuple[str, str, dict[str, Any]] = ("GET", SPACES.format("blue"), {})
    login, found, _, after = guarded.run(entry, look, ("POST", "/logout", {}), look)
    cookie = login.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" in cookie
    assert [login.status_code, found.status_code, after.status_code] == [200, 200, 401]


@pytest.mark.parametrize(("step", "steps", "left"), [(299, 3, True), (301, 1, False), (299, 7, False)])
def test_a_session_ends_after_half_an_hour_or_five_idle_minutes(
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


@pytest.mark.parametrize(("passed", "left"), [(19, True), (21, False)])
def test_an_operator_says_how_long_a_session_may_be_idle(passed: float, left: bool) -> None:
    clock = Clock()
    sessions = Sessions(clock, idle_s=20)
    secret = sessions.begin(Requester.known("blue"))
    clock.now += passed
    assert (sessions.find(secret) is not None) == left


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
