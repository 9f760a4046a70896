"""The schema registry over HTTP: Confluent's own client against it, its codes of errors, and who may do what."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from argon2 import PasswordHasher
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from enmasse.api.access.audit import AuditLog
from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, create_app
from enmasse.api.listeners import open_listener, serve_http
from enmasse.api.schemas.operations import PREFIX, openapi_document
from enmasse.control.access.accounts import Accounts, WebPasswords
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.model.schema.objects import decode
from enmasse.schemas.registry import SchemaRegistry
from enmasse.schemas.store import SchemaStore
from tests.support.protobuf_files import field, file_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANT = f"{PREFIX}/spaces/blue/plant"
READING = {
    "type": "record", "name": "Reading", "namespace": "plant",
    "fields": [{"name": "device", "type": "string"}, {"name": "value", "type": "double"}],
}  # fmt: skip
UNIT = {"name": "unit", "type": "string"}
MORE = READING | {"fields": [*READING["fields"], UNIT | {"default": "C"}]}
WORSE = READING | {"fields": [*READING["fields"], UNIT]}
ALERT = {
    "title": "Alert", "type": "object", "additionalProperties": False, "required": ["device"],
    "properties": {"device": {"type": "string"}, "level": {"type": "integer"}},
}  # fmt: skip
PASSWORD = "blue's own password"
PASSWORDS = WebPasswords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


class Site:
    """An API that asks who comes: `blue` edits and `viewer` looks in namespace blue, `green` edits in green."""

    def __init__(self, url: str, registry: Registry, accounts: Accounts) -> None:
        self.url = url
        self.registry = registry
        self.tokens: dict[str, str] = {}
        self.clients: list[SchemaRegistryClient] = []
        registry.create_namespaces()
        registry.create_catalog()
        for namespace in ("blue", "green"):
            registry.create(decode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        self.space("blue", "plant")
        self.space("green", "mill")
        bindings = {"blue": ("blue", "edit"), "viewer": ("blue", "view"), "green": ("green", "edit")}
        for name, (namespace, role) in bindings.items():
            registry.create(
                decode(
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": "RoleBinding",
                        "metadata": {"name": name, "namespace": namespace},
                        "roleRef": {"kind": "ClusterRole", "name": f"enmasse.io:tenant-{role}"},
                        "subjects": [{"kind": "User", "name": name}],
                    }
                )
            )
            accounts.add(name, password_hash=PASSWORDS.hash(PASSWORD) if name == "blue" else "")
            self.tokens[name] = accounts.create_token(name).secret

    def space(self, namespace: str, name: str) -> None:
        self.registry.create(
            decode(
                {
                    "apiVersion": "enmasse.io/v1beta1",
                    "kind": "AddressSpace",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"type": "standard", "plan": "standard-unlimited"},
                }
            )
        )

    def __call__(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        with httpx.Client(base_url=self.url, trust_env=False) as client:
            return client.request(method, path, headers=headers, **options)

    def client(self, who: str = "blue", **more: Any) -> SchemaRegistryClient:
        bearer = {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": self.tokens[who],
            "bearer.auth.logical.cluster": "none",
            "bearer.auth.identity.pool.id": "none",
        }
        made = SchemaRegistryClient({"url": f"{self.url}{PLANT}", **(more or bearer)})
        self.clients.append(made)
        return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("schemas")
    listener = open_listener("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop, started = asyncio.Event(), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    sites: list[Site] = []

    def serve() -> None:
        with (
            ResourceStore(directory / "resources.db") as store,
            SchemaStore(directory / "schemas.db") as kept,
            Accounts(directory / "access.db", now=lambda: 1_000.0) as accounts,
            AuditLog(directory / "audit.log") as audit,
        ):
            uids = itertools.count(1)
            registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
            sites.append(Site(url, registry, accounts))
            parts = ApiParts(
                registry=registry,
                stop=stop,
                authenticator=Authenticator(accounts, is_required=True),
                audit=audit,
                schemas=SchemaRegistry(kept),
            )

            async def run() -> None:
                loops.append(asyncio.get_running_loop())
                started.set()
                await serve_http(create_app(parts), listener, stop)

            asyncio.run(run())

    thread = threading.Thread(target=serve)
    thread.start()
    assert started.wait(30)
    yield sites[0]
    for client in sites[0].clients:
        client.close()
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


def refused(act: Any, status: int, code: int) -> str:
    with pytest.raises(SchemaRegistryError) as caught:
        act()
    assert (caught.value.http_status_code, caught.value.error_code) == (status, code)
    return str(caught.value.error_message)


def avro(plain: Any) -> Schema:
    return Schema(json.dumps(plain), "AVRO")


def test_subjects_live_as_confluents_client_expects(site: Site) -> None:
    client = site.client()
    first = client.register_schema("readings", avro(READING))
    assert client.register_schema("readings", avro(READING)) == first
    assert site.client().register_schema("again", avro(READING)) == first
    second = client.register_schema("readings", avro(MORE))
    assert second > first
    assert client.get_versions("readings") == [1, 2]
    latest = client.get_latest_version("readings")
    assert (latest.version, latest.schema_id, json.loads(latest.schema.schema_str or "")) == (2, second, MORE)
    assert client.get_version("readings", 1).schema_id == first
    assert json.loads(site.client().get_schema(first).schema_str or "") == READING
    assert client.lookup_schema("readings", avro(READING)).version == 1
    assert {"again", "readings"} <= {*client.get_subjects()}
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert {*client.get_subjects_by_schema_id(first)} == {"readings", "again"}
    assert {(v.subject, v.version) for v in client.get_schema_versions(first)} == {("readings", 1), ("again", 1)}


def test_a_file_of_protobuf_is_registered_in_base64_as_confluents_client_does(site: Site) -> None:
    def made(of: str) -> Schema:
        file = file_of(f'message_type {{ name: "Reading" {field("device", 1, of)} }}')
        return Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")

    client = site.client()
    number = client.register_schema("protobuf", made("string"))
    assert client.register_schema("protobuf", made("string")) == number
    found = site.client().get_schema(number)
    assert (found.schema_type, found.schema_str) == ("PROTOBUF", made("string").schema_str)
    for path in (f"/schemas/ids/{number}/schema", "/subjects/protobuf/versions/1/schema"):
        assert site("blue", "GET", f"{PLANT}{path}").json() == made("string").schema_str
    why = refused(lambda: client.register_schema("protobuf", made("int32")), 409, 409)
    assert "acme.Reading.device: the type cannot be read as the other one" in why
    assert client.test_compatibility("protobuf", made("bytes"))


def test_a_schema_that_does_not_go_with_the_last_one_is_refused(site: Site) -> None:
    client = site.client()
    client.register_schema("strict", avro(READING))
    why = refused(lambda: client.register_schema("strict", avro(WORSE)), 409, 409)
    assert "the field is new and has no default" in why
    assert not client.test_compatibility("strict", avro(WORSE))
    assert client.test_compatibility("strict", avro(MORE))
    assert client.test_compatibility_all_versions("strict", avro(MORE))
    assert client.get_compatibility() == "BACKWARD"
    refused(lambda: client.get_compatibility("strict"), 404, 40408)
    client.set_compatibility("strict", "FORWARD")
    assert client.get_compatibility("strict") == "FORWARD"
    client.register_schema("strict", avro(WORSE))
    client.delete_config("strict")
    refused(lambda: client.get_compatibility("strict"), 404, 40408)
    refused(lambda: client.set_compatibility("strict", "SOMETIMES"), 422, 42203)


def test_what_is_deleted_is_found_by_its_id_until_it_is_deleted_for_good(site: Site) -> None:
    client = site.client()
    number = client.register_schema("brief", avro(READING | {"name": "Brief"}))
    client.register_schema("brief", avro(MORE | {"name": "Brief"}))
    refused(lambda: client.delete_version("brief", 1, permanent=True), 404, 40407)
    assert client.delete_version("brief", 1) == 1
    assert client.get_versions("brief") == [2]
    assert "Brief" in (site.client().get_schema(number).schema_str or "")
    assert site("blue", "GET", f"{PLANT}/subjects/brief/versions/1").json()["error_code"] == 40402
    assert site("blue", "GET", f"{PLANT}/subjects/brief/versions/1?deleted=true").json()["id"] == number
    assert site("blue", "DELETE", f"{PLANT}/subjects/brief/versions/1").json()["error_code"] == 40406
    assert site("blue", "DELETE", f"{PLANT}/subjects/brief?permanent=true").json()["error_code"] == 40405
    assert client.delete_subject("brief") == [2]
    assert "brief" not in site.client().get_subjects()
    assert "brief" in site.client().get_subjects(deleted=True)
    assert site("blue", "GET", f"{PLANT}/subjects?deletedOnly=true").json() == ["brief"]
    assert site("blue", "DELETE", f"{PLANT}/subjects/brief").json()["error_code"] == 40404
    assert site("blue", "DELETE", f"{PLANT}/subjects/brief?permanent=true").json() == [1, 2]
    refused(lambda: site.client().get_schema(number), 404, 40403)
    refused(lambda: site.client().get_versions("brief"), 404, 40401)
    again = site.client()
    assert again.register_schema("brief", avro(READING | {"name": "Brief"})) > number
    assert again.delete_subject("brief") == again.delete_subject("brief", permanent=True) == [1]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/subjects/bad/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/bad/versions", {}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": "", "schemaType": "THRIFT"}, 422),
        ("POST", "/subjects/bad/versions", {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": '"int"', "references": [{"name": "a"}]}, 422),
        ("POST", f"/subjects/{'x' * 256}/versions", {"schema": '"int"'}, 422),
        ("POST", "/subjects/bad", {"schema": '"int"'}, 40401),
        ("GET", "/subjects/bad/versions", None, 40401),
        ("GET", "/subjects/kept/versions/9", None, 40402),
        ("GET", "/subjects/kept/versions/none", None, 42202),
        ("GET", "/subjects/kept/versions/0", None, 42202),
        ("POST", "/subjects/kept", {"schema": '"long"'}, 40403),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/schemas/ids/x", None, 40403),
        ("POST", "/compatibility/subjects/bad/versions/latest", {"schema": '"int"'}, 40401),
        ("POST", "/compatibility/subjects/kept/versions/7", {"schema": '"int"'}, 40402),
        ("PUT", "/config", {"compatibility": 5}, 42203),
        ("PUT", "/config/kept", {"compatibility": "FULL", "alias": "other"}, 422),
    ],
)
def test_errors_have_the_codes_of_confluents(site: Site, method: str, path: str, body: Any, code: int) -> None:
    site("blue", "POST", f"{PLANT}/subjects/kept/versions", json={"schema": '"int"'}).raise_for_status()
    answer = site("blue", method, f"{PLANT}{path}", json=body)
    assert answer.json()["error_code"] == code, answer.text
    assert answer.status_code == (code if code < 1000 else code // 100)
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"


def test_bodies_that_are_no_json_are_refused(site: Site) -> None:
    path = f"{PLANT}/subjects/bad/versions"
    headers = {"content-type": "application/json"}
    assert site("blue", "POST", path, content=b"{", headers=headers).status_code == 400
    assert site("blue", "POST", path, content=b"[]", headers=headers).status_code == 400
    assert site("blue", "POST", path, content=b'{"schema": "\\ud800"}', headers=headers).status_code == 400
    assert site("blue", "POST", path, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415


def test_serializers_of_confluents_write_and_read_by_the_registry(site: Site) -> None:
    login = {"basic.auth.user.info": f"blue:{PASSWORD}"}
    client, context = site.client(**login), SerializationContext("measured", MessageField.VALUE)
    reading = {"device": "d-1", "value": 20.5}
    written = AvroSerializer(client, json.dumps(READING))(reading, context)
    assert client.get_latest_version("measured-value").schema_id == int.from_bytes(written[1:5], "big")
    assert AvroDeserializer(site.client(**login))(written, context) == reading
    alert, context = {"device": "d-1", "level": 3}, SerializationContext("alerts", MessageField.VALUE)
    written = JSONSerializer(json.dumps(ALERT), client)(alert, context)
    assert client.get_latest_version("alerts-value").schema.schema_type == "JSON"
    assert JSONDeserializer(json.dumps(ALERT), schema_registry_client=client)(written, context) == alert


def test_roles_say_who_reads_and_who_writes(site: Site) -> None:
    body = {"schema": '"string"'}
    site("blue", "POST", f"{PLANT}/subjects/shown/versions", json=body).raise_for_status()
    assert site("viewer", "GET", f"{PLANT}/subjects/shown/versions/latest").status_code == 200
    assert site("viewer", "POST", f"{PLANT}/subjects/shown", json=body).status_code == 200
    for method, path in (
        ("POST", "subjects/shown/versions"),
        ("DELETE", "subjects/shown"),
        ("DELETE", "subjects/shown/versions/1"),
        ("PUT", "config"),
        ("DELETE", "config"),
        ("PUT", "config/shown"),
    ):
        answer = site("viewer", method, f"{PLANT}/{path}", json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (403, 403), (method, path, answer.text)
    for path in ("subjects", "schemas/ids/1", "config", "schemas/types", ""):
        there, nowhere = (site("green", "GET", f"{PREFIX}/spaces/blue/{name}/{path}") for name in ("plant", "none"))
        assert there.status_code == 404
        assert there.text.replace("plant", "none") == nowhere.text
    assert site(None, "GET", f"{PLANT}/subjects").status_code == 401
    wrong = base64.b64encode(b"blue:wrong").decode()
    assert site(None, "GET", f"{PLANT}/subjects", headers={"Authorization": f"Basic {wrong}"}).status_code == 401


def test_spaces_have_ids_of_their_own(site: Site) -> None:
    path = f"{PREFIX}/spaces/green/mill"
    assert site("green", "GET", f"{path}/subjects").json() == []
    assert site("green", "POST", f"{path}/subjects/a/versions", json={"schema": '"int"'}).json() == {"id": 1}
    assert site("green", "GET", f"{path}/schemas/ids/1").json() == {"schema": '"int"'}


def test_all_versions_are_read_at_once_and_only_when_they_changed(site: Site) -> None:
    site("blue", "POST", f"{PLANT}/subjects/listed/versions", json={"schema": '"bytes"'})
    found = site("blue", "GET", f"{PLANT}/schemas?subjectPrefix=listed")
    assert [(item["subject"], item["version"], item["schema"]) for item in found.json()] == [("listed", 1, '"bytes"')]
    known = {"If-None-Match": found.headers["etag"]}
    assert site("blue", "GET", f"{PLANT}/schemas", headers=known).status_code == 304
    site("blue", "PUT", f"{PLANT}/config/listed", json={"compatibility": "NONE"}).raise_for_status()
    site("blue", "POST", f"{PLANT}/subjects/listed/versions", json={"schema": '"int"'}).raise_for_status()
    latest = site("blue", "GET", f"{PLANT}/schemas?latestOnly=true", headers=known)
    assert [item["version"] for item in latest.json() if item["subject"] == "listed"] == [2]


def test_it_describes_itself(site: Site) -> None:
    assert site("blue", "GET", f"{PREFIX}/openapi.json").json() == openapi_document()
