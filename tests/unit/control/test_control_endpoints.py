"""Endpoints of spaces: certificates where nodes look for them, and facts where applications look for them."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import itertools
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from enmasse.control.context import Context
from enmasse.control.endpoints.admission import EndpointKeys, HostAdmission
from enmasse.control.endpoints.controller import EndpointController, EndpointSettings
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.events import EventRecorder
from enmasse.control.store.port import Document
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.endpoint_certificates import EndpointCertificates
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.names import ROUTE_DOMAINS
from enmasse.model.schema.objects import decode, restore
from tests.support.polling import until_async
from tests.unit.control.stage import Stage

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Pair = tuple[str, str]


def make_pair(*hosts: str, days: int = 300, begin: dt.datetime = BEGIN) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody's own")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - dt.timedelta(hours=1))
        .not_valid_after(begin + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()


class Spaces(Controller):
    """Notes the spaces that nodes are told of anew."""

    name = "spaces"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.enqueued: list[str] = []

    def enqueue(self, key: str, *, background: bool = False) -> None:
        self.enqueued.append(key)


class Scene:
    """A registry with the controller of endpoints, and a clock."""

    def __init__(self, directory: Path, store: ResourceStore) -> None:
        self.tls = directory / "tls"
        self.tls.mkdir()
        self.now = BEGIN
        self.wildcard: tuple[Path, Path] = directory / "wild.crt", directory / "wild.key"
        uids = itertools.count(1)
        self.store = store
        self.registry = Registry(store, now=self._text, new_uid=lambda: f"uid-{next(uids)}")
        self.registry.add_admission(EndpointKeys())
        self.registry.create_namespaces()
        self.spaces = Spaces(jitter=lambda: 1.0)
        self.seen = store.version
        self.events = EventRecorder(store, now=self._text, new_uid=lambda: f"event-{next(uids)}")
        certificates = EndpointCertificates(self.tls, self.wildcard, lambda: self.now)
        self.certificates = certificates
        self.start()

    def start(self, *, grants_all: bool = True) -> None:
        """Begin anew, as after a restart."""
        context = Context(self.registry, now=self._text, jitter=lambda: 1.0, events=self.events)
        context.controllers["spaces"] = self.spaces
        self.endpoints = EndpointController(
            context,
            self.certificates,
            EndpointSettings("mq.example", 5672, frozenset({"broker.example"}), grants_all),
        )
        self.endpoints.load(self.store)

    def grant(self, domains: str | None, namespace: str = "default") -> list[str]:
        """Change what a namespace is granted; return the spaces that nodes are told of anew."""
        annotations = {} if domains is None else {ROUTE_DOMAINS: domains}
        metadata = {"name": namespace, "annotations": annotations}
        resource = decode({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        if self.store.find("Namespace", "", namespace) is None:
            self.registry.create(resource)
        else:
            self.registry.replace(resource)
        return self.follow()

    def follow(self) -> list[str]:
        """Have the controller see what was written; return the spaces that nodes are told of anew."""
        self.spaces.enqueued.clear()
        for change in self.store.changes(self.seen)[0]:
            self.endpoints.apply(change)
        self.seen = self.store.version
        return sorted(self.spaces.enqueued)

    def hosts(self, name: str = "shop") -> tuple[str, ...]:
        space = restore(self.store.get("AddressSpace", "default", name))
        assert isinstance(space, AddressSpace)
        return self.endpoints.hosts_of(space)

    def _text(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def declare(
        self, *endpoints: dict[str, Any], name: str = "shop", spec: dict[str, Any] | None = None, **metadata: Any
    ) -> Document:
        spec = (spec or {}) | ({"endpoints": list(endpoints)} if endpoints else {})
        resource = decode(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "AddressSpace",
                "metadata": {"name": name, "namespace": "default"} | metadata,
                "spec": spec,
            }
        )
        found = self.store.find("AddressSpace", "default", name)
        return self.registry.create(resource) if found is None else self.registry.replace(resource)

    def look(self, name: str = "shop") -> Document:
        self.endpoints.load(self.store)
        asyncio.run(self.endpoints.reconcile(f"default/{name}"))
        return self.store.find("AddressSpace", "default", name) or {}

    def condition(self, kind: str, name: str = "shop") -> tuple[str, str, str]:
        status = self.look(name)["status"]
        found = next(item for item in status["conditions"] if item["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def shown(self) -> dict[str, list[str]]:
        """Return which hosts each pair is shown for, by the pair's certificate."""
        return {path.with_suffix(".crt").read_text(): path.read_text().split() for path in self.tls.glob("*.hosts")}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ResourceStore(tmp_path / "resources.db", history=500) as store:
        yield Scene(tmp_path, store)


def endpoint(name: str = "messaging", **fields: Any) -> dict[str, Any]:
    return {"name": name, "service": "messaging"} | fields


def bundle(pair: Pair) -> dict[str, str]:
    return {
        "provider": "certBundle",
        "tlsCert": base64.b64encode(pair[0].encode()).decode(),
        "tlsKey": base64.b64encode(pair[1].encode()).decode(),
    }


def route(host: str, **fields: Any) -> dict[str, Any]:
    return endpoint("route", expose={"type": "route", "routeHost": host, "routeServicePort": "amqps"}, **fields)


def test_a_space_has_two_endpoints_by_default_with_certificates_of_the_platform(scene: Scene) -> None:
    scene.declare()
    status = scene.look()["status"]
    assert [item["name"] for item in status["endpointStatuses"]] == ["messaging", "messaging-wss"]
    told = status["endpointStatuses"][0]
    assert told["serviceHost"] == "shop.default.mq.example"
    assert told["servicePorts"] == dict.fromkeys(("amqp", "amqps", "amqp-ws", "amqp-wss", "http", "https"), 5672)
    certificate = x509.load_pem_x509_certificate(told["cert"].encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(status["caCert"].encode()))
    assert scene.shown()[told["cert"]] == ["shop.default.mq.example"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in scene.tls.glob("*.key")} == {0o600}
    assert scene.condition("CertificatesReady") == ("True", "Shown", "")


def test_a_certificate_of_the_platform_is_made_anew_when_a_third_of_its_life_is_left(scene: Scene) -> None:
    scene.declare()
    first = scene.look()["status"]["endpointStatuses"][0]["cert"]
    scene.now = BEGIN + dt.timedelta(days=240)
    assert scene.look()["status"]["endpointStatuses"][0]["cert"] == first
    scene.now = BEGIN + dt.timedelta(days=245)
    second = scene.look()["status"]["endpointStatuses"][0]["cert"]
    assert second != first
    assert x509.load_pem_x509_certificate(second.encode()).not_valid_after_utc > scene.now + dt.timedelta(days=364)


def test_a_key_that_is_given_is_neither_stored_with_the_space_nor_shown(scene: Scene) -> None:
    pair = make_pair("mq.shop.example")
    cert = bundle(pair)
    applied = json.dumps({"kind": "AddressSpace", "spec": {"endpoints": [route("mq.shop.example", cert=cert)]}})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    document = scene.declare(route("mq.shop.example", cert=cert), annotations=annotations)
    assert cert["tlsKey"] not in json.dumps(document)
    assert cert["tlsCert"] in json.dumps(document["metadata"]["annotations"])
    assert scene.condition("CertificatesReady") == ("True", "Shown", "")
    assert cert["tlsKey"] not in json.dumps(scene.look())
    assert scene.shown()[pair[0]] == ["mq.shop.example"]
    # Without the key, as somebody sends it back who has read it, the key stays.
    del cert["tlsKey"]
    scene.declare(route("mq.shop.example", cert=cert))
    assert scene.condition("CertificatesReady") == ("True", "Shown", "")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", ""), "Missing"),
        (("no certificate!", "none"), "Unreadable"),
        ((make_pair("mq.shop.example")[0], make_pair("mq.shop.example")[1]), "KeyMismatch"),
        (
            (make_pair("mq.shop.example")[0], "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "Unreadable",
        ),
        (make_pair("mq.shop.example", days=0), "Expired"),
        (make_pair("mq.shop.example", begin=BEGIN + dt.timedelta(days=3)), "NotYetValid"),
        (make_pair("other.example"), "HostNotCovered"),
    ],
)
def test_a_certificate_that_cannot_be_shown_is_told_with_the_reason(scene: Scene, pair: Pair, reason: str) -> None:
    scene.declare(route("mq.shop.example", cert=bundle(pair)))
    status, found, message = scene.condition("CertificatesReady")
    assert (status, found) == ("False", reason)
    assert message.startswith("endpoint route: ")
    assert scene.shown() == {}


def test_a_certificate_is_shown_for_hosts_of_its_own_space_alone(scene: Scene) -> None:
    pair = make_pair("mq.shop.example", "other.default.mq.example", "bank.example")
    scene.declare(route("mq.shop.example", cert=bundle(pair)))
    scene.look()
    assert scene.shown() == {pair[0]: ["mq.shop.example"]}


def test_a_certificate_may_lie_in_a_secret_and_is_looked_at_when_that_changes(scene: Scene) -> None:
    cert = {"provider": "certBundle", "secretName": "tls"}
    scene.declare(route("mq.shop.example", cert=cert))
    assert scene.condition("CertificatesReady")[1] == "SecretNotFound"
    pair = make_pair("*.shop.example")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tls", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair[0], "tls.key": pair[1]},
    }
    version = scene.store.version
    scene.registry.create(decode(secret))
    before = len(scene.endpoints)
    for change in scene.store.changes(version)[0]:
        scene.endpoints.apply(change)
    assert len(scene.endpoints) >= max(before, 1)
    assert scene.condition("CertificatesReady") == ("True", "Shown", "")
    assert scene.shown() == {pair[0]: ["mq.shop.example"]}


def test_an_end_that_is_near_is_an_event_and_the_end_a_condition(scene: Scene) -> None:
    scene.declare(route("mq.shop.example", cert=bundle(make_pair("mq.shop.example", days=90))))
    scene.look()
    scene.events.flush()
    assert scene.store.select("Event") == []
    scene.now = BEGIN + dt.timedelta(days=70)
    scene.look()
    scene.events.flush()
    (event,) = scene.store.select("Event")
    assert (event["type"], event["reason"]) == ("Warning", "CertificateExpires")
    assert event["message"] == "the certificate of endpoint route ends in 20 days"
    scene.now = BEGIN + dt.timedelta(days=90)
    assert scene.condition("CertificatesReady")[1] == "Expired"


def test_the_operator_is_warned_of_certificates_that_are_nobodys_to_renew(scene: Scene) -> None:
    scene.declare()
    scene.look()
    (scene.tls / "default.crt").write_text(make_pair("mq.example", days=40)[0])
    for day, messages in ((0, []), (20, ["the certificate default.crt ends in 20 days"])):
        scene.now = BEGIN + dt.timedelta(days=day)
        scene.endpoints.warn_operator()
        scene.events.flush()
        assert [event["message"] for event in scene.store.select("Event")] == messages


def test_a_wildcard_certificate_is_the_installations(scene: Scene) -> None:
    scene.declare(endpoint(cert={"provider": "wildcard"}))
    assert scene.condition("CertificatesReady")[1] == "Unreadable"
    pair = make_pair("*.default.mq.example")
    for path, text in zip(scene.wildcard, pair, strict=True):
        path.write_text(text)
    assert scene.condition("CertificatesReady") == ("True", "Shown", "")
    assert scene.shown() == {pair[0]: ["shop.default.mq.example"]}


def test_what_needs_openshift_is_refused_with_the_reason(scene: Scene) -> None:
    scene.declare(endpoint(cert={"provider": "openshift"}))
    status, reason, message = scene.condition("CertificatesReady")
    assert (status, reason) == ("False", "Unsupported")
    assert "OpenShift" in message


def test_a_host_belongs_to_the_first_who_asks_and_none_below_the_domain_to_others(scene: Scene) -> None:
    scene.declare(route("mq.shop.example"))
    scene.now += dt.timedelta(seconds=1)
    scene.declare(route("MQ.shop.example"), name="thief")
    scene.declare(route("shop.default.mq.example"), name="fake")
    assert scene.condition("EndpointsReady") == ("True", "Served", "")
    assert scene.condition("EndpointsReady", "thief") == (
        "False",
        "HostRefused",
        "host mq.shop.example belongs to another space",
    )
    assert "is below mq.example" in scene.condition("EndpointsReady", "fake")[2]
    scene.registry.delete("AddressSpace", "default", "shop")
    assert scene.condition("EndpointsReady", "thief") == ("True", "Served", "")


def test_the_short_name_of_a_space_is_no_host_for_others(scene: Scene) -> None:
    scene.declare()
    scene.declare(route("shop.default"), name="thief")
    assert scene.condition("EndpointsReady", "thief")[1] == "HostRefused"


def test_a_host_of_the_form_of_a_space_s_own_is_nobody_else_s_before_there_is_such_a_space(scene: Scene) -> None:
    scene.grant(None, "team-b")
    scene.declare(route("later.team-b"), name="thief")
    assert scene.condition("EndpointsReady", "thief")[1:] == (
        "HostRefused",
        "host later.team-b belongs to another space",
    )
    assert scene.hosts("thief") == ()


def test_a_host_is_served_while_an_operator_grants_its_domain(scene: Scene) -> None:
    scene.start(grants_all=False)
    scene.declare(route("mq.shop.example"))
    scene.follow()
    assert scene.hosts() == ()
    status, reason, message = scene.condition("EndpointsReady")
    assert (status, reason) == ("False", "HostNotGranted")
    assert "namespace default enmasse.io/route-domains=mq.shop.example" in message
    assert scene.look()["status"]["endpointStatuses"][0]["externalHost"] == "shop.default.mq.example"
    assert scene.grant("bank.example, shop.example") == ["default/shop"]
    assert scene.hosts() == ("mq.shop.example",)
    assert scene.condition("EndpointsReady") == ("True", "Served", "")
    assert scene.grant("bank.example, shop.example, more.example") == []
    assert scene.grant("bank.example") == ["default/shop"]
    assert scene.hosts() == ()
    assert "enmasse.io/route-domains=bank.example,mq.shop.example" in scene.condition("EndpointsReady")[2]
    scene.grant("*")
    assert scene.hosts() == ("mq.shop.example",)
    scene.grant("shop.example", "team-b")
    scene.grant(None)
    assert scene.hosts() == ()


def test_where_everything_is_granted_a_list_says_less(scene: Scene) -> None:
    scene.declare(route("mq.shop.example"))
    scene.follow()
    assert scene.hosts() == ("mq.shop.example",)
    assert scene.grant("bank.example") == ["default/shop"]
    assert scene.hosts() == ()


def test_a_host_stays_with_the_space_that_has_it_though_an_older_one_asks_for_it(scene: Scene) -> None:
    scene.declare(name="older")
    scene.now += dt.timedelta(seconds=1)
    scene.declare(route("mq.shop.example"))
    scene.follow()
    scene.look()
    scene.declare(route("mq.shop.example"), name="older")
    assert scene.follow() == ["default/older"]
    assert (scene.hosts(), scene.hosts("older")) == (("mq.shop.example",), ())
    assert scene.condition("EndpointsReady", "older")[1:] == (
        "HostRefused",
        "host mq.shop.example belongs to another space",
    )
    scene.start()
    assert (scene.hosts(), scene.hosts("older")) == (("mq.shop.example",), ())
    scene.declare(endpoint())
    assert scene.follow() == ["default/older"]
    assert scene.hosts("older") == ("mq.shop.example",)


def test_who_asks_for_a_host_without_a_grant_keeps_nobody_from_it(scene: Scene) -> None:
    scene.start(grants_all=False)
    squatter = {"metadata": {"name": "squatter", "namespace": "team-b"}}
    scene.grant(None, "team-b")
    scene.registry.create(
        decode(
            {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace"}
            | squatter
            | {"spec": {"endpoints": [route("mq.shop.example")]}}
        )
    )
    scene.now += dt.timedelta(seconds=1)
    scene.declare(route("mq.shop.example"))
    scene.grant("shop.example")
    assert scene.hosts() == ("mq.shop.example",)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "broker.example", "*"])
def test_a_host_that_was_taken_before_it_was_refused_is_served_no_more(scene: Scene, host: str) -> None:
    document = scene.declare(route("mq.shop.example"))
    text = json.dumps(document).replace("mq.shop.example", host)
    scene.store.replace(json.loads(text))
    scene.follow()
    assert scene.hosts() == ()
    assert scene.condition("EndpointsReady")[1] == "HostRefused"


def test_the_machine_s_own_name_is_refused_at_once_but_where_it_was_taken_before(scene: Scene) -> None:
    scene.declare(route("Broker.example"))
    scene.registry.add_admission(HostAdmission({"broker.example"}))
    scene.declare(route("broker.example", cert={"provider": "wildcard"}))
    with pytest.raises(InvalidResourceError, match="name of the machine"):
        scene.declare(route("broker.example"), name="late")


def test_a_port_of_ones_own_is_one_that_the_plan_offers_and_nobody_had_before(scene: Scene) -> None:
    scene.registry.create_catalog()
    scene.declare(endpoint(port=31000))
    status, reason, message = scene.condition("EndpointsReady")
    assert (status, reason) == ("False", "PortRefused")
    assert message == "plan 'standard-small' does not offer port 31000; it offers none"

    large = {"plan": "standard-unlimited"}
    scene.declare(endpoint(port=31000), spec=large)
    assert scene.condition("EndpointsReady") == ("True", "Served", "")
    assert scene.look()["status"]["endpointStatuses"][0]["servicePorts"]["amqps"] == 31000
    scene.now += dt.timedelta(seconds=1)
    scene.declare(endpoint(port=31000), name="late", spec=large)
    assert scene.condition("EndpointsReady", "late")[2] == "port 31000 belongs to another space"
    assert scene.look("late")["status"]["endpointStatuses"][0]["servicePorts"]["amqps"] == 5672
    scene.declare(endpoint(port=80), name="low", spec=large)
    assert "offers those from 31000 to 31999" in scene.condition("EndpointsReady", "low")[2]


def test_a_port_that_a_node_cannot_open_is_told_until_it_can(scene: Scene) -> None:
    scene.registry.create_catalog()
    scene.declare(endpoint(port=31000), spec={"plan": "standard-unlimited"})
    scene.endpoints.note_port("default/shop", "port 31000 cannot be opened")
    assert scene.condition("EndpointsReady") == ("False", "PortClosed", "port 31000 cannot be opened")
    scene.endpoints.note_port("default/shop", "")
    assert scene.condition("EndpointsReady") == ("True", "Served", "")


def test_what_a_node_says_of_a_port_later_reaches_its_space(perform: Any, tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        certificates = EndpointCertificates(tmp_path / "tls", None, lambda: BEGIN)
        async with stage.controlled(resync_s=0.005, certificates=certificates) as plane:
            spec = {"plan": "standard-unlimited", "endpoints": [endpoint(port=31000)]}
            space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "spec": spec}
            stage.registry.create(decode(space | {"metadata": {"name": "shop", "namespace": "default"}}))
            await stage.settled(plane)
            for problem, reason in (("port 31000 cannot be opened", "PortClosed"), ("", "Served")):
                stage.node.problems["default/shop"] = problem
                stage.node.changes += 1
                expected = ("False" if problem else "True", reason, problem)
                await until_async(lambda: stage.condition("AddressSpace", "shop", "EndpointsReady") == expected)  # noqa: B023

    perform(body)


def test_what_applications_need_is_exported_kept_up_to_date_and_taken_away(scene: Scene) -> None:
    exports = [{"kind": kind, "name": "facts"} for kind in ("ConfigMap", "Secret", "Service")]
    scene.declare(route("mq.shop.example", exports=exports))
    space = scene.look()
    facts = scene.store.get("ConfigMap", "default", "facts")
    assert facts["data"] == {
        "service.host": "shop.default.mq.example",
        "service.port.amqp": "5672",
        "service.port.amqps": "5672",
        "service.port.amqp-ws": "5672",
        "service.port.amqp-wss": "5672",
        "service.port.http": "5672",
        "service.port.https": "5672",
        "external.host": "mq.shop.example",
        "external.port.amqps": "5672",
        "ca.crt": space["status"]["caCert"],
    }
    assert facts["metadata"]["ownerReferences"][0]["uid"] == space["metadata"]["uid"]
    secret = scene.store.get("Secret", "default", "facts")
    assert base64.b64decode(secret["data"]["service.host"]) == b"shop.default.mq.example"
    service = scene.store.get("Service", "default", "facts")
    assert service["spec"]["externalName"] == "shop.default.mq.example"
    version = scene.store.version
    scene.look()
    assert scene.store.version == version  # nothing has changed, so nothing is written
    scene.declare(route("new.shop.example", exports=exports[:1]))
    scene.look()
    assert scene.store.get("ConfigMap", "default", "facts")["data"]["external.host"] == "new.shop.example"
    assert scene.store.find("Secret", "default", "facts") is None
    assert scene.store.find("Service", "default", "facts") is None


def test_an_object_of_somebody_else_is_not_overwritten(scene: Scene) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "facts", "namespace": "default"},
        "data": {"mine": "all mine"},
    }
    scene.registry.create(decode(other))
    scene.declare(endpoint(exports=[{"kind": "ConfigMap", "name": "facts"}]))
    status, reason, message = scene.condition("EndpointsReady")
    assert (status, reason) == ("False", "ExportFailed")
    assert "exists already" in message
    assert scene.store.get("ConfigMap", "default", "facts")["data"] == {"mine": "all mine"}


def test_an_object_of_another_namespace_that_names_the_space_takes_nothing_away(scene: Scene) -> None:
    scene.declare(endpoint())
    uid = scene.look()["metadata"]["uid"]
    owner = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "name": "shop", "uid": uid}
    marks = {"labels": {"enmasse.io/endpoint-export": "shop"}, "ownerReferences": [owner]}
    for namespace, more in (("default", {}), ("red", marks)):
        if namespace == "red":
            scene.registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red"}}))
        metadata = {"name": "precious", "namespace": namespace} | more
        scene.registry.create(decode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    scene.declare(endpoint(exports=[{"kind": "ConfigMap", "name": "facts"}]))
    scene.look()
    assert scene.store.find("ConfigMap", "default", "facts") is not None
    assert scene.store.find("ConfigMap", "default", "precious") is not None


def test_certificates_go_with_their_endpoint_and_their_space(scene: Scene) -> None:
    scene.declare(endpoint("one"), endpoint("../same"), route("mq.shop.example"))
    scene.look()
    assert len(list(scene.tls.glob("space.*.crt"))) == 2
    scene.declare(endpoint("one"))
    scene.look()
    assert len(list(scene.tls.glob("space.*.crt"))) == 1
    scene.declare(name="shop-2")
    scene.look("shop-2")
    scene.registry.delete("AddressSpace", "default", "shop")
    scene.look()
    assert {path.name.split(".")[2] for path in scene.tls.glob("space.*")} == {"shop-2"}
