"""Ways over the API: other namespaces, other people's objects, more rights, and odd requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.tenancy.refusals import Way, forbidden
from tests.tenancy.tenants import KINDS, answer_to, document, path_of

if TYPE_CHECKING:
    import httpx

    from tests.tenancy.tenants import Tenants

__all__ = ["WAYS"]

PRESENT = {
    "addressspaces": "blue", "addresses": "blue.vault", "messagingusers": "blue.app", "configmaps": "facts",
    "secrets": "keys", "iotprojects": "plant", "webhooks": "blue.hook", "rolebindings": "blue:tenant-edit",
}  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "addressspaces": {"spec": {"type": "standard"}},
    "addresses": {"spec": {"address": "mine", "type": "queue"}},
    "messagingusers": {"spec": {"username": "mole", "authentication": {"type": "federated"}}},
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"data": {"a": "Yg=="}},
    "iotprojects": {
        "spec": {
            "downstreamStrategy": {"providedStrategy": {"namespace": "team-b", "addressSpaceName": "blue"}},
        }
    },
    "webhooks": {"spec": {"address": "vault", "url": "https://hooks.example/"}},
    "rolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "enmasse.io:tenant-edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "red"}],
    },
}
ODD_PATHS = (
    "/api/v1/namespaces/team-a/../team-b/secrets/keys",
    "/api/v1/namespaces/team-a%2F..%2Fteam-b/secrets/keys",
    "/api/v1/namespaces/team-a/secrets/..%2F..%2Fteam-b%2Fsecrets%2Fkeys",
    "//api/v1/namespaces/team-b/secrets/keys",
    "/api/v1/namespaces/team-b/secrets/keys%00",
    "/api/v1/namespaces/team-b/secrets/keys/",
    "/api/v1/./namespaces/team-b/secrets",
    "/api/v1/namespaces/team-a;/team-b/secrets",
    "/API/v1/namespaces/team-b/secrets",
    "/api/v1/namespaces//team-b/secrets",
    "http://localhost/api/v1/namespaces/team-b/secrets/keys",
)
ODD_HEADERS = (
    {"Impersonate-User": "blue"},
    {"X-Remote-User": "blue"},
    {"X-Forwarded-User": "blue"},
    {"Cookie": "session=blue"},
    {"Authorization": "Basic " + base64.b64encode(b"blue:").decode()},
    {"Authorization": "Basic " + base64.b64encode(b"blue:red as a beet at noon").decode()},
    {"X-Original-URL": "/api/v1/namespaces/team-a/secrets"},
    {"X-HTTP-Method-Override": "DELETE"},
)
MERGE = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}

Ask = Callable[["httpx.Client"], "httpx.Response"]


def _ask(ask: Ask, *codes: int) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        with tenants.http("red") as http:
            forbidden(ask(http), *codes)

    return attempt


def _get(path: str) -> Callable[[Tenants], None]:
    return _ask(lambda http: http.get(path))


def _post(path: str, body: dict[str, Any]) -> Callable[[Tenants], None]:
    return _ask(lambda http: http.post(path, json=body))


def _verbs(plural: str) -> Iterator[tuple[str, Ask]]:
    there = path_of(plural, "team-b", PRESENT[plural])
    all_there = path_of(plural, "team-b")
    body = document(plural, "team-b", PRESENT[plural], **SPECS[plural])
    new = document(
        plural,
        "team-b",
        "blue.new" if plural in ("addresses", "messagingusers", "webhooks") else "new",
        **SPECS[plural],
    )
    yield "list", lambda http: http.get(all_there)
    yield "watch", lambda http: http.get(all_there, params={"watch": "true", "timeoutSeconds": "1"})
    yield "read one of", lambda http: http.get(there)
    yield "create one of", lambda http: http.post(all_there, json=new)
    yield (
        "see by a dry run whether there is one of",
        lambda http: http.post(all_there, params={"dryRun": "All"}, json=body),
    )
    yield "replace one of", lambda http: http.put(there, json=body)
    yield "patch one of", lambda http: http.patch(there, json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    yield (
        "apply to one of",
        lambda http: http.patch(
            there, params={"fieldManager": "red", "force": "true"}, content=json.dumps(body), headers=APPLY
        ),
    )
    yield "delete one of", lambda http: http.delete(there)
    yield "delete all", lambda http: http.delete(all_there)
    yield "list in every namespace the", lambda http: http.get(path_of(plural, None))
    yield (
        "watch in every namespace the",
        lambda http: http.get(path_of(plural, None), params={"watch": "1", "timeoutSeconds": "1"}),
    )


def _raw(request: str) -> Callable[[Tenants], None]:
    """Send a request that no library would: its path stays as it is."""

    def attempt(tenants: Tenants) -> None:
        lines = (request, "Host: localhost", f"Authorization: Bearer {tenants.tokens['red']}", "Connection: close")
        answer = answer_to(tenants.api, "".join(f"{line}\r\n" for line in (*lines, "")).encode())
        status = answer.split(b" ", 2)[1]
        assert status in (b"400", b"403", b"404", b"405"), answer
        assert b"blue" not in answer.partition(b"\r\n\r\n")[2].replace(b"team-b", b"") or status == b"403"
        assert b"the formula" not in answer

    return attempt


def _with_headers(headers: dict[str, str]) -> Callable[[Tenants], None]:
    return _ask(lambda http: http.get(path_of("secrets", "team-b"), headers=headers), 401, 403)


def in_own_namespace(
    plural: str, name: str, look: Callable[[dict[str, Any]], None], **rest: Any
) -> Callable[[Tenants], None]:
    """Declare in red's own namespace what points at blue; look at what comes of it, and take it back."""

    def attempt(tenants: Tenants) -> None:
        import time

        with tenants.http("red") as http:
            created = http.post(path_of(plural, "team-a"), json=document(plural, "team-a", name, **rest))
            if created.status_code in (400, 403, 409, 422):
                return
            assert created.status_code == 201, created.text
            try:
                deadline = time.monotonic() + 20
                while True:
                    item = http.get(path_of(plural, "team-a", name)).json()
                    if item.get("status", {}).get("conditions"):
                        break
                    assert time.monotonic() < deadline, item
                    time.sleep(0.1)
                look(item)
            finally:
                http.delete(path_of(plural, "team-a", name))

    return attempt


def waits(item: dict[str, Any]) -> None:
    assert item["status"]["phase"] != "Active", item["status"]


def no_host_of_blue(item: dict[str, Any]) -> None:
    assert "blue.team-b" not in json.dumps(item["status"].get("endpointStatuses", [])), item["status"]


def owned_by_blue(tenants: Tenants) -> None:
    """An object whose owner is another tenant's is no lever on it."""
    with tenants.http("blue") as blue, tenants.http("red") as red:
        uid = blue.get(path_of("addresses", "team-b", "blue.vault")).json()["metadata"]["uid"]
        owner = {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "name": "blue.vault", "uid": uid}
        body = document("configmaps", "team-a", "owned", data={})
        body["metadata"]["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
        red.post(path_of("configmaps", "team-a"), json=body)
        red.delete(path_of("configmaps", "team-a", "owned"), params={"propagationPolicy": "Foreground"})


def page_of_blue(tenants: Tenants) -> None:
    with tenants.http("blue") as blue, tenants.http("red") as red:
        page = blue.get(path_of("addresses", "team-b"), params={"limit": 1}).json()
        parameters = {"limit": 100, "continue": page["metadata"]["continue"]}
        answer = red.get(path_of("addresses", "team-a"), params=parameters)
        assert "team-b" not in answer.text
        forbidden(red.get(path_of("addresses", "team-b"), params=parameters))


def fields_of_blue(tenants: Tenants) -> None:
    with tenants.http("red") as red:
        answer = red.get(path_of("addresses", "team-a"), params={"fieldSelector": "metadata.namespace=team-b"})
        assert answer.status_code in (200, 400)
        assert "blue." not in answer.text


def token_of_nobody(tenants: Tenants) -> None:
    import httpx as library

    token = tenants.tokens["blue"]
    for forged in (token[:-1], token + "a", token.upper(), "enm_" + "a" * 43):
        headers = {"Authorization": f"Bearer {forged}"}
        with library.Client(base_url=tenants.api, headers=headers, trust_env=False) as http:
            answer = http.get(path_of("secrets", "team-b"))
            assert answer.status_code == 401, forged


def ordered_for_blue(tenants: Tenants) -> None:
    with tenants.http("red") as red:
        red.headers["X-Broker-API-Version"] = "2.17"
        catalog = red.get("/osbapi/v2/catalog").raise_for_status().json()
        service = catalog["services"][0]
        order = {
            "service_id": service["id"],
            "plan_id": service["plans"][0]["id"],
            "organization_guid": "a",
            "space_guid": "b",
            "parameters": {"name": "ordered", "namespace": "team-b"},
            "context": {"platform": "tests"},
        }
        path = "/osbapi/v2/service_instances/2f3a"
        forbidden(red.put(path, params={"accepts_incomplete": "true"}, json=order))


def devices_of_blue(tenants: Tenants) -> None:
    """In the device registry a refusal is the answer to what there is not."""
    registry = "/registry/v1"
    with tenants.http("blue") as blue:
        for path in ("tenants/team-b.plant", "devices/team-b.plant/lamp"):
            assert blue.post(f"{registry}/{path}").status_code in (201, 409)
        before = blue.get(f"{registry}/devices/team-b.plant").json()
    asked = [
        *(("GET", f"{path}/team-b.plant") for path in ("tenants", "devices", "export")),
        *((method, "devices/team-b.plant/lamp") for method in ("GET", "POST", "PUT", "DELETE")),
        *((method, "tenants/team-b.plant") for method in ("POST", "PUT", "DELETE")),
        *((method, "credentials/team-b.plant/lamp") for method in ("GET", "PUT")),
        *((method, path) for method, path in (("POST", "devices/team-b.plant"), ("DELETE", "devices/team-b.plant"))),
        ("POST", "import/team-b.plant"),
        *(("GET", path) for path in ("tenants/team-b.plant/usage", "commands/team-b.plant")),
        *(("POST", path) for path in ("commands/team-b.plant/lamp", "commands/team-b.plant")),
        ("POST", "tenants?namespace=team-b"),
    ]
    with tenants.http("red") as red:
        for method, path in asked:
            body: dict[str, Any] | None = None if method in ("GET", "DELETE") else {}
            there = red.request(method, f"{registry}/{path}", json=body)
            assert there.status_code == 404, (method, path, there.text)
            nowhere = red.request(method, f"{registry}/{path.replace('plant', 'nothing')}", json=body)
            assert nowhere.text == there.text.replace("plant", "nothing") or "namespace=" in path, (method, path)
        assert "team-b" not in red.get(f"{registry}/tenants").text
    with tenants.http("blue") as blue:
        assert blue.get(f"{registry}/devices/team-b.plant").json() == before


def schemas_of_blue(tenants: Tenants) -> None:
    """In the schema registry a refusal is the answer to what there is not."""
    of_blue = "/schemas/v1/spaces/team-b/blue"
    secret, subject = {"schema": json.dumps({"type": "enum", "name": "Secret", "symbols": ["X"]})}, "subjects/formula"
    with tenants.http("blue") as blue:
        blue.post(f"{of_blue}/{subject}/versions", json=secret).raise_for_status()
        before = blue.get(f"{of_blue}/schemas").raise_for_status().json()
    asked = [
        *(("GET", path) for path in ("", "/subjects", "/schemas", "/schemas/ids/1", "/schemas/types", "/config")),
        *(("GET", f"/{subject}/versions{rest}") for rest in ("", "/latest", "/1/schema", "/1/referencedby")),
        *(("GET", f"/schemas/ids/1/{what}") for what in ("schema", "subjects", "versions")),
        *(("POST", f"/{path}") for path in (subject, f"{subject}/versions", f"compatibility/{subject}/versions/1")),
        *(("DELETE", f"/{path}") for path in (subject, f"{subject}/versions/1", "config", "config/formula")),
        *(("PUT", f"/{path}") for path in ("config", "config/formula")),
        *(("GET", f"/{path}") for path in ("mode", "mode/formula", "config/formula?defaultToGlobal=true")),
    ]
    with tenants.http("red") as red:
        for method, path in asked:
            body = {**secret, "compatibility": "NONE"} if method in ("POST", "PUT") else None
            there = red.request(method, of_blue + path, json=body)
            assert there.status_code == 404, (method, path, there.text)
            nowhere = red.request(method, of_blue.replace("/blue", "/none") + path, json=body)
            assert nowhere.text == there.text.replace("'blue'", "'none'"), (method, path)
        own = red.post(f"/schemas/v1/spaces/team-a/red/{subject}/versions", json={"schema": '"int"'})
        assert "Secret" not in red.get(f"/schemas/v1/spaces/team-a/red/schemas/ids/{own.json()['id']}").text
        assert "Secret" not in red.get("/schemas/v1/spaces/team-a/red/schemas?deleted=true").text
    with tenants.http("blue") as blue:
        assert blue.get(f"{of_blue}/schemas").json() == before


def told_of_rights(tenants: Tenants) -> None:
    attributes = {"namespace": "team-b", "verb": "list", "group": "enmasse.io", "resource": "addresses"}
    with tenants.http("red") as red:
        answer = red.post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json={
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
        )  # fmt: skip
        assert answer.status_code == 201, answer.text
        assert answer.json()["status"]["allowed"] is False


def _below(path: str) -> str:
    return f"/apis/enmasse.io/v1beta1/namespaces/team-b/{path}"


def _all() -> Iterator[Way]:
    for plural in KINDS:
        for verb, ask in _verbs(plural):
            yield Way(f"{verb} blue's {plural}", _ask(ask))
    for action in ("purge", "move", "replay"):
        body = {"to": "mine"} if action == "move" else {}
        yield Way(f"{action} the messages of blue's address", _post(_below(f"addresses/blue.vault/{action}"), body))
    for what in ("connections", "links", "sessions", "wills", "retained"):
        yield Way(f"list blue's {what}", _get(_below(f"addressspaces/blue/{what}")))
    yield Way(
        "close blue's connection over the API",
        _ask(lambda http: http.delete(_below("addressspaces/blue/connections/1"))),
    )
    yield Way(
        "end blue's session of MQTT over the API",
        _ask(lambda http: http.delete(_below("addressspaces/blue/sessions/lamp"))),
    )
    yield Way(
        "clear blue's retained values over the API",
        _ask(lambda http: http.delete(_below("addressspaces/blue/retained"), params={"filter": "#"})),
    )
    yield Way(
        "write the status of blue's address",
        _ask(lambda http: http.put(_below("addresses/blue.vault/status"), json={})),
    )
    yield Way("read the status of blue's space", _ask(lambda http: http.get(_below("addressspaces/blue/status"))))
    for what in ("events", "services"):
        yield Way(f"list blue's {what}", _get(f"/api/v1/namespaces/team-b/{what}"))
    yield Way("list all namespaces", _ask(lambda http: http.get("/api/v1/namespaces")))
    yield Way("read blue's namespace", _ask(lambda http: http.get("/api/v1/namespaces/team-b")))
    yield Way("delete blue's namespace", _ask(lambda http: http.delete("/api/v1/namespaces/team-b")))
    yield Way("read what the platform keeps", _ask(lambda http: http.get("/api/v1/namespaces/enmasse-infra/secrets")))
    yield Way("change a plan", _ask(lambda http: http.patch(
        "/apis/admin.enmasse.io/v1beta2/namespaces/enmasse-infra/addressspaceplans/free", json={}, headers=MERGE
    )))  # fmt: skip
    yield Way("change an authentication service", _ask(lambda http: http.patch(
        "/apis/admin.enmasse.io/v1beta1/namespaces/enmasse-infra/authenticationservices/none-authservice",
        json={}, headers=MERGE,
    )))  # fmt: skip
    yield Way("bind a role everywhere", _ask(lambda http: http.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        json={"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
              "metadata": {"name": "mine"}, **SPECS["rolebindings"]},
    )))  # fmt: skip
    yield Way("give oneself more in one's own namespace", _ask(lambda http: http.post(
        path_of("rolebindings", "team-a"), json=document("rolebindings", "team-a", "mine", **SPECS["rolebindings"])
    )))  # fmt: skip
    yield Way("read the metrics of all", _ask(lambda http: http.get("/metrics")))
    yield Way("see how the nodes are", _ask(lambda http: http.get("/readyz", params={"verbose": ""})))
    yield Way("see whose a node's journal is", _ask(lambda http: http.get("/nodes/node-0/journal")))
    yield Way("give a node's journal to another installation", _ask(lambda http: http.post(
        "/nodes/node-0/adopt", json={"installation": "mine"}
    )))  # fmt: skip
    yield Way("order a space in blue's namespace from the service broker", ordered_for_blue)
    yield Way("use, change or learn of blue's devices in the registry", devices_of_blue)
    yield Way("use, change or learn of blue's schemas in the registry", schemas_of_blue)
    yield Way("read the accounts", _ask(lambda http: http.get("/accounts"), 403, 404))
    for path in ODD_PATHS:
        yield Way(f"ask for {path}", _raw(f"GET {path} HTTP/1.1"))
    for headers in ODD_HEADERS:
        name = next(iter(headers))
        yield Way(f"send the header {name}: {headers[name]}", _with_headers(headers))
    yield Way("read with a forged token", token_of_nobody)
    yield Way("be told of rights in blue's namespace", told_of_rights)
    yield Way("turn the page of blue's list", page_of_blue)
    yield Way("select blue's namespace by field", fields_of_blue)
    yield Way("own an object by blue's, and delete it", owned_by_blue)
    yield Way("put an object of blue's namespace into one's own", _ask(lambda http: http.post(
        path_of("configmaps", "team-a"), json=document("configmaps", "team-b", "facts", data={})
    ), 400))  # fmt: skip
    queue = {"address": "mine", "type": "queue"}
    yield Way("declare an address of blue's space", in_own_namespace("addresses", "blue.mine", waits, spec=queue))
    yield Way(
        "declare a user of blue's space",
        in_own_namespace(
            "messagingusers", "blue.mole", waits, spec={"username": "mole", "authentication": {"type": "federated"}}
        ),
    )
    for field in ("deadletter", "expiry"):
        yield Way(
            f"name blue's address as {field}",
            in_own_namespace("addresses", f"red.{field}", waits, spec=queue | {field: "team-b/blue.graves"}),
        )
    subscription = {"address": "mole", "type": "subscription", "topic": "blue.news"}
    yield Way("subscribe to blue's topic", in_own_namespace("addresses", "red.mole", waits, spec=subscription))
    for host in ("blue.team-b.enmasse.local", "blue.team-b", "BLUE.team-b.enmasse.local"):
        endpoint = {"name": "messaging", "service": "messaging", "expose": {"type": "route", "routeHost": host}}
        yield Way(
            f"claim the host {host}",
            in_own_namespace(
                "addressspaces", "claim", no_host_of_blue, spec={"type": "standard", "endpoints": [endpoint]}
            ),
        )
    bundle = {
        "name": "messaging",
        "service": "messaging",
        "cert": {"provider": "certBundle", "secretName": "team-b/keys"},
    }
    yield Way(
        "show a certificate of blue's secret",
        in_own_namespace("addressspaces", "show", no_host_of_blue, spec={"type": "standard", "endpoints": [bundle]}),
    )


WAYS = tuple(_all())
