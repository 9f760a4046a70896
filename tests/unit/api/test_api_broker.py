"""The service broker: what a platform orders, asks again for, changes and gives back."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.broker.instances import ASIDE
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.users.passwords import UserPasswords
from enmasse.model.kinds.spaces import AddressSpace, EndpointStatus
from enmasse.model.kinds.users import MessagingUser
from enmasse.model.schema.conditions import Condition
from enmasse.model.schema.objects import restore
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = {"X-Broker-API-Version": "2.17"}
NOW = "2026-01-01T00:00:00Z"
WAIT = {"accepts_incomplete": "true"}


class Broker:
    """The API as a platform sees it, and the controllers' part, done by hand."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.store = registry.store
        self.app = create_app(
            ApiParts(registry=registry, stop=asyncio.Event(), nodes={"node-0": NodeAccess(messages=NoMessages())})
        )
        services = self("GET", "catalog").json()["services"]
        self.service = {item["name"]: item["id"] for item in services}
        self.plan = {plan["name"]: plan["id"] for item in services for plan in item["plans"]}

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def body() -> httpx.Response:
            async with self.client() as client:
                return await client.request(method, f"/osbapi/v2/{path}", **{"headers": VERSION} | options)

        return asyncio.run(body())

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost")

    def wish(self, plan: str = "free", **parameters: Any) -> dict[str, Any]:
        return self.ids(plan) | {"organization_guid": "org", "space_guid": "space", "parameters": parameters}

    def ids(self, plan: str = "free") -> dict[str, str]:
        service = "enmasse-brokered" if plan.startswith("brokered") else "enmasse-standard"
        return {"service_id": self.service[service], "plan_id": self.plan[plan]}

    def provision(self, identity: str = "i-1", **parameters: Any) -> httpx.Response:
        return self("PUT", f"service_instances/{identity}", json=self.wish(**parameters), params=WAIT)

    def finish(self, kind: str, name: str, *, ready: bool = True, why: str = "") -> None:
        """Say of an object that it is ready, or why not."""
        found = restore(self.store.get(kind, "default", name))
        condition = Condition(
            type="Ready",
            status="True" if ready else "False",
            reason="Test" if not why else "NodeRefused",
            message=why,
            observed_generation=found.metadata.generation,
        )
        status = found.status.with_conditions([condition], NOW)
        if isinstance(found, AddressSpace):
            endpoint = EndpointStatus(
                name="messaging",
                service_host="shop.default.enmasse.local",
                service_ports={"amqp": 5672, "amqps": 5671, "amqp-wss": 443},
                external_host="shop.example.com",
                external_ports={"amqps": 443},
                cert="PEM of the endpoint",
            )
            status = status.model_copy(update={"endpoint_statuses": (endpoint,), "ca_cert": "PEM of the authority"})
        self.registry.write_status([found.model_copy(update={"status": status})])

    def ready(self, identity: str = "i-1", name: str = "shop") -> Broker:
        """Order an instance, and have it be ready."""
        assert self.provision(identity, name=name).status_code == 202
        self.finish("AddressSpace", name)
        return self

    def bind(
        self, binding: str = "b-1", *, params: Any = None, plan: str = "free", **parameters: Any
    ) -> httpx.Response:
        """Ask for a binding, while something like a controller looks after its user."""
        body = self.ids(plan) | {"parameters": parameters}

        async def control() -> None:
            while True:
                for item in self.store.select("MessagingUser"):
                    if not item["status"]["isReady"]:
                        self.finish("MessagingUser", item["metadata"]["name"])
                await asyncio.sleep(0.01)

        async def act() -> httpx.Response:
            controlling = asyncio.create_task(control())
            try:
                async with self.client() as client:
                    path = f"/osbapi/v2/service_instances/i-1/service_bindings/{binding}"
                    return await client.put(path, headers=VERSION, json=body, params=params)
            finally:
                controlling.cancel()

        return asyncio.run(act())

    def user(self) -> MessagingUser:
        (found,) = (restore(item) for item in self.store.select("MessagingUser"))
        assert isinstance(found, MessagingUser)
        return found


def registry_over(store: ResourceStore) -> Registry:
    uids = itertools.count(1_000)
    return Registry(store, now=lambda: NOW, new_uid=lambda: f"uid-{next(uids)}", admission=[UserPasswords()])


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the catalog, which takes longer to write than any test here."""
    path = tmp_path_factory.mktemp("broker") / "resources.db"
    uids = itertools.count(1)
    with ResourceStore(path) as store:
        registry = Registry(store, now=lambda: NOW, new_uid=lambda: f"uid-{next(uids)}")
        registry.create_namespaces()
        registry.create_catalog()
    return path


@pytest.fixture
def broker(planted: Path, tmp_path: Path) -> Iterator[Broker]:
    with ResourceStore(Path(shutil.copy(planted, tmp_path))) as store:
        yield Broker(registry_over(store))


def test_the_catalog_has_a_service_for_each_type_of_spaces_and_a_plan_for_each_plan(broker: Broker) -> None:
    services = {item["name"]: item for item in broker("GET", "catalog").json()["services"]}
    assert services.keys() == {"enmasse-standard", "enmasse-brokered"}
    assert [plan["name"] for plan in services["enmasse-standard"]["plans"]] == [
        "standard-small",
        "standard-medium",
        "standard-unlimited",
        "free",
    ]
    ids = [item["id"] for item in services.values()] + [
        plan["id"] for item in services.values() for plan in item["plans"]
    ]
    assert len(set(ids)) == len(ids)
    free = services["enmasse-standard"]["plans"][-1]
    assert "connections: 20" in free["metadata"]["bullets"]
    assert "sendAddresses" in free["schemas"]["service_binding"]["create"]["parameters"]["properties"]


@pytest.mark.parametrize("version", [None, "1.0", "2.12", "3.0", "two"])
def test_another_version_of_the_protocol_is_refused(broker: Broker, version: str | None) -> None:
    headers = {} if version is None else {"X-Broker-API-Version": version}
    refused = broker("GET", "catalog", headers=headers)
    assert (refused.status_code, "2.13" in refused.json()["description"]) == (412, True)


def test_a_request_gets_its_own_name_back(broker: Broker) -> None:
    found = broker("GET", "catalog", headers=VERSION | {"X-Broker-API-Request-Identity": "abc"})
    assert found.headers["X-Broker-API-Request-Identity"] == "abc"


def test_an_instance_is_an_address_space_that_takes_its_time(broker: Broker) -> None:
    ordered = broker.provision(name="shop")
    assert (ordered.status_code, ordered.json()) == (202, {"operation": "provision"})
    space = restore(broker.store.get("AddressSpace", "default", "shop"))
    assert isinstance(space, AddressSpace)
    assert (space.spec.type, space.spec.plan_name) == ("standard", "free")
    assert space.spec.authentication_service.kind == "standard"
    polled = "service_instances/i-1/last_operation"
    assert broker("GET", polled, params={"operation": "provision"}).json()["state"] == "in progress"
    assert broker("GET", "service_instances/i-1").status_code == 404
    assert broker.provision(name="shop").status_code == 202
    broker.finish("AddressSpace", "shop")
    assert broker("GET", polled).json() == {"state": "succeeded"}
    assert broker("GET", "service_instances/i-1").json() == broker.ids() | {
        "parameters": {"name": "shop", "namespace": "default"}
    }


def test_an_instance_that_was_refused_by_the_node_has_failed(broker: Broker) -> None:
    broker.provision(name="shop")
    broker.finish("AddressSpace", "shop", ready=False, why="no room")
    told = broker("GET", "service_instances/i-1/last_operation").json()
    assert told == {"state": "failed", "description": "no room"}


def test_what_a_platform_does_not_say_is_chosen_and_stays_the_same(broker: Broker) -> None:
    for _ in range(2):
        assert broker.provision().status_code == 202
    (space,) = broker.store.select("AddressSpace")
    assert space["metadata"]["name"].startswith("instance-")
    context = {"platform": "kubernetes", "namespace": "enmasse-infra"}
    wish = broker.wish(name="other") | {"context": context}
    assert broker("PUT", "service_instances/i-2", json=wish, params=WAIT).status_code == 202
    assert broker.store.find("AddressSpace", "enmasse-infra", "other") is not None


def test_asking_again_is_answered_as_the_first_time_and_something_else_is_a_conflict(broker: Broker) -> None:
    broker.ready()
    again = broker.provision(name="shop")
    assert (again.status_code, again.json()) == (200, {})
    assert broker.provision(name="shop", plan="standard-small").status_code == 409
    assert broker.provision(name="shop2").status_code == 409
    assert broker.provision("i-2", name="shop").status_code == 409  # the space of another
    assert len(broker.store.select("AddressSpace")) == 1


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_what_takes_time_needs_a_platform_that_can_wait(broker: Broker, method: str) -> None:
    body = {} if method == "DELETE" else {"json": broker.wish() if method == "PUT" else broker.ids()}
    refused = broker(method, "service_instances/i-1", params=broker.ids(), **body)
    assert (refused.status_code, refused.json()["error"]) == (422, "AsyncRequired")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"service_id": None}, "service_id"),
        ({"service_id": "x"}, "service_id"),
        ({"plan_id": 7}, "plan_id"),
        ({"plan_id": "x"}, "plan_id"),
        ({"organization_guid": ""}, "organization_guid"),
        ({"space_guid": None}, "space_guid"),
        ({"context": []}, "context"),
        ({"parameters": "name"}, "parameters"),
        ({"parameters": {"name": "7up"}}, "parameters.name"),
        ({"parameters": {"name": "a" * 64}}, "parameters.name"),
        ({"parameters": {"name": True}}, "parameters.name"),
        ({"parameters": {"nme": "a"}}, "parameters.nme"),
        ({"parameters": {"namespace": "no such"}}, "parameters.namespace"),
        ({"parameters": {"namespace": "unknown"}}, "parameters.namespace"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_by_its_field(broker: Broker, change: dict[str, Any], field: str) -> None:
    refused = broker("PUT", "service_instances/i-1", json=broker.wish() | change, params=WAIT)
    assert refused.status_code == 400
    assert refused.json()["description"].startswith(f"{field}: ")
    assert broker.store.select("AddressSpace") == []


def test_a_body_that_is_no_json_is_refused(broker: Broker) -> None:
    for content, headers in (
        (b"{", {"content-type": "application/json"}),
        (b"[]", {"content-type": "application/json"}),
    ):
        refused = broker("PUT", "service_instances/i-1", content=content, headers=VERSION | headers, params=WAIT)
        assert (refused.status_code, set(refused.json())) == (400, {"description"})


def test_a_plan_can_be_changed_within_its_service(broker: Broker) -> None:
    broker.ready()
    path, wish = "service_instances/i-1", broker.ids("standard-small")
    changed = broker("PATCH", path, json=wish, params=WAIT)
    assert (changed.status_code, changed.json()) == (202, {"operation": "update"})
    assert broker("GET", f"{path}/last_operation").json()["state"] == "in progress"
    broker.finish("AddressSpace", "shop")
    assert broker("GET", f"{path}/last_operation").json()["state"] == "succeeded"
    assert broker("GET", path).json()["plan_id"] == wish["plan_id"]
    assert broker("PATCH", path, json=wish, params=WAIT).status_code == 200
    other = broker.ids("brokered-single-broker")
    assert broker("PATCH", path, json=other, params=WAIT).status_code == 400
    assert broker("PATCH", path, json=wish | {"parameters": {"name": "x"}}, params=WAIT).status_code == 400
    assert broker("PATCH", "service_instances/none", json=wish, params=WAIT).status_code == 404


def test_an_instance_is_gone_once_its_space_is(broker: Broker) -> None:
    broker.ready()
    path, params = "service_instances/i-1", broker.ids() | WAIT
    uid = broker.store.get("AddressSpace", "default", "shop")["metadata"]["uid"]
    hold = {"uid": uid, "add": "enmasse.io/infra"}
    broker.registry.change_finalizers("AddressSpace", "default", "shop", **hold)
    for _ in range(2):
        assert broker("DELETE", path, params=params).json() == {"operation": "deprovision"}
    assert broker("GET", f"{path}/last_operation").json()["state"] == "in progress"
    assert broker.provision(name="shop").status_code == 409
    broker.registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, remove="enmasse.io/infra")
    polled = broker("GET", f"{path}/last_operation", params={"operation": "deprovision"})
    assert (polled.status_code, polled.json()) == (410, {})
    assert (broker("DELETE", path, params=params).status_code, broker("GET", path).status_code) == (410, 404)
    assert broker("DELETE", path, params=WAIT).status_code == 400
    assert broker.provision(name="shop").status_code == 202


def test_a_binding_is_a_user_and_tells_where_and_how_to_connect(broker: Broker) -> None:
    made = broker.ready().bind(sendAddresses="orders, stock/*", receiveAddresses="", consoleAccess=True)
    assert made.status_code == 201
    told = made.json()["credentials"]
    assert len(told["password"]) == 32
    assert (told["host"], told["port"], told["caCert"]) == (
        "shop.default.enmasse.local",
        5671,
        "PEM of the authority",
    )
    assert (told["messagingAmqpsPort"], told["messagingAmqpWssPort"]) == (5671, 443)
    assert (told["externalMessagingHost"], told["externalMessagingPort"]) == ("shop.example.com", 443)
    assert told["endpoints"][0]["cert"] == told["messagingCert.pem"] == "PEM of the endpoint"
    assert told["uri"] == f"amqps://{told['username']}:{told['password']}@shop.default.enmasse.local:5671"
    user = broker.user()
    assert user.spec.username == told["username"]
    assert [(grant.operations, grant.addresses) for grant in user.spec.authorization] == [
        (("send",), ("orders", "stock/*")),
        (("view",), ()),
    ]


def test_a_binding_may_send_and_receive_everywhere_if_nothing_is_said(broker: Broker) -> None:
    assert broker.ready().bind().status_code == 201
    grants = broker.user().spec.authorization
    assert [(grant.operations, grant.addresses) for grant in grants] == [(("send",), ("*",)), (("recv",), ("*",))]


def test_a_password_is_told_again_and_kept_nowhere(broker: Broker) -> None:
    told = broker.ready().bind().json()["credentials"]
    path = "service_instances/i-1/service_bindings/b-1"
    again = broker.bind()
    assert (again.status_code, again.json()["credentials"]) == (200, told)
    assert broker("GET", path).json() == {"credentials": told, "parameters": {}}
    assert broker.bind("b-2").json()["credentials"]["password"] != told["password"]
    assert told["password"] not in str([*broker.store.select("MessagingUser"), *broker.store.select("AddressSpace")])
    assert broker.bind(sendAddresses="orders").status_code == 409
    assert broker.bind(plan="standard-small").status_code == 409


def test_a_binding_that_is_made_again_has_a_new_password(broker: Broker) -> None:
    broker.ready()
    seen = set()
    for _ in range(2):
        told = broker.bind().json()["credentials"]["password"]
        assert broker.bind().json()["credentials"]["password"] == told
        seen.add(told)
        at = "service_instances/i-1/service_bindings/b-1"
        assert broker("DELETE", at, params=broker.ids()).status_code == 200
    assert len(seen) == 2


def test_what_an_earlier_version_kept_is_of_all_who_have_the_rights_and_keeps_its_password(broker: Broker) -> None:
    broker.ready().bind()
    (space,), (user,) = broker.store.select("AddressSpace"), broker.store.select("MessagingUser")
    for item, name in ((space, "account"), (user, "salt")):
        uid = item["metadata"]["uid"]
        kept = json.loads(broker.store.aside(uid, ASIDE) or b"")
        del kept[name]
        broker.store.put_aside(uid, ASIDE, json.dumps(kept).encode())
    at = "service_instances/i-1/service_bindings/b-1"
    passwords = {broker("GET", at).json()["credentials"]["password"] for _ in range(2)}
    assert len(passwords) == 1
    assert broker.bind().status_code == 200
    assert broker.provision(name="shop").status_code == 200
    patched = broker("PATCH", "service_instances/i-1", json=broker.ids("standard-small"), params=WAIT)
    assert patched.status_code == 202


def test_a_platform_that_can_wait_for_a_binding_need_not_be_kept_waiting(broker: Broker) -> None:
    broker.ready()
    path = "service_instances/i-1/service_bindings/b-1"
    made = broker("PUT", path, json=broker.ids(), params=WAIT)
    assert (made.status_code, made.json()) == (202, {"operation": "bind"})
    assert broker("GET", f"{path}/last_operation").json()["state"] == "in progress"
    assert broker("GET", path).status_code == 404
    broker.finish("MessagingUser", broker.user().metadata.name)
    assert broker("GET", f"{path}/last_operation").json() == {"state": "succeeded"}
    assert broker("GET", path).json()["credentials"]["username"] == broker.user().spec.username


def test_two_requests_for_one_binding_at_a_time_make_one_user(broker: Broker) -> None:
    broker.ready()

    async def both() -> list[httpx.Response]:
        path = "/osbapi/v2/service_instances/i-1/service_bindings/b-1"
        async with broker.client() as client:
            asked = [client.put(path, headers=VERSION, json=broker.ids(), params=WAIT) for _ in range(2)]
            return await asyncio.gather(*asked)

    assert [item.status_code for item in asyncio.run(both())] == [202, 202]
    assert broker.user().metadata.name.startswith("shop.user-")


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"sendAddresses": "a b"}, "sendAddresses"),
        ({"receiveAddresses": ["a"]}, "receiveAddresses"),
        ({"consoleAdmin": "yes"}, "consoleAdmin"),
        ({"admin": True}, "admin"),
    ],
)
def test_a_binding_that_cannot_be_is_refused_by_its_field(
    broker: Broker, parameters: dict[str, Any], field: str
) -> None:
    refused = broker.ready().bind(**parameters)
    assert refused.status_code == 400
    assert refused.json()["description"].startswith(f"parameters.{field}: ")
    assert broker.store.select("MessagingUser") == []


def test_a_binding_needs_an_instance_that_is_ready(broker: Broker) -> None:
    assert broker.bind().status_code == 400
    broker.provision(name="shop")
    early = broker.bind()
    assert (early.status_code, early.json()["error"]) == (422, "ConcurrencyError")


def test_unbinding_takes_the_user_away(broker: Broker) -> None:
    broker.ready().bind()
    path = "service_instances/i-1/service_bindings/b-1"
    assert broker("DELETE", path).status_code == 400
    gone = [broker("DELETE", path, params=broker.ids()) for _ in range(2)]
    assert [(item.status_code, item.json()) for item in gone] == [(200, {}), (410, {})]
    assert broker.store.select("MessagingUser") == []
    assert (broker("GET", path).status_code, broker("GET", f"{path}/last_operation").status_code) == (404, 410)
    assert broker.bind().status_code == 201


def test_nobody_passes_a_space_or_a_user_of_their_own_for_the_brokers(broker: Broker) -> None:
    broker.ready()
    forged = restore(broker.store.get("AddressSpace", "default", "shop"))
    metadata = forged.metadata.model_copy(update={"name": "forged"})
    broker.registry.delete("AddressSpace", "default", "shop")
    broker.registry.create(forged.model_copy(update={"metadata": metadata}))
    assert broker("GET", "service_instances/i-1").status_code == 404
    assert broker.provision(name="forged").status_code == 409


def test_strange_identities_are_just_names(broker: Broker) -> None:
    identity = "ä b'\"%;?\u2603" + "x" * 300
    path = quote(f"service_instances/{identity}", safe="/")
    assert broker("PUT", path, json=broker.wish(name="shop"), params=WAIT).status_code == 202
    assert broker("GET", f"{path}/last_operation").json()["state"] == "in progress"
