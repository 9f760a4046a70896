"""A field that is accepted works, or the object says that it does not: the condition ``InEffect``."""

from __future__ import annotations

import ast
import datetime as dt
import functools
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from enmasse.control.addresses import preview
from enmasse.control.control_plane import ControlPlane
from enmasse.control.endpoints.admission import EndpointKeys
from enmasse.control.endpoints.controller import EndpointSettings
from enmasse.control.spaces.effective import _value
from enmasse.control.store.writes import finish_here
from enmasse.control.users.passwords import UserPasswords
from enmasse.drivers.endpoint_certificates import EndpointCertificates
from enmasse.errors import UnavailableError
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.model.kinds.address_settings import ADDRESS_TYPES, SETTINGS
from enmasse.model.schema.conditions import READY
from enmasse.model.schema.kinds import KINDS, kind_of
from enmasse.model.schema.manifest import load_manifest
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.objects import class_of, restore
from enmasse.model.schema.resource import Resource
from enmasse.model.schema.schema import Model
from tests.support.polling import until_async
from tests.unit.control.memory_users import MemoryUsers
from tests.unit.control.test_control_realms import MemoryKeycloak

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from enmasse.control.store.registry import Registry
    from tests.unit.control.stage import Stage

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src" / "enmasse"
EXAMPLES = ROOT / "examples"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

Perform = Any
Said = dict[str, tuple[str, str]]


@asynccontextmanager
async def nowhere(space: str) -> AsyncIterator[Any]:
    """Webhooks have no node to visit."""
    if space:
        raise UnavailableError(f"there is no node for {space}")
    yield


@asynccontextmanager
async def everything(stage: Stage, folder: Path) -> AsyncIterator[ControlPlane]:
    """All controllers of an installation, with a node and a Keycloak in memory."""
    (folder / "tls").mkdir()
    wildcard = folder / "wild.crt", folder / "wild.key"
    with DeviceStore(folder / "devices.db") as devices:
        async with stage.controlled(
            users=[MemoryUsers()],
            certificates=EndpointCertificates(folder / "tls", wildcard, lambda: NOW),
            endpoints=EndpointSettings("mq.example", 5672),
            connect_realm=MemoryKeycloak().connect,
            devices=DeviceRegistry(devices, now=str, new_id=str, new_version=str),
            webhooks=nowhere,
        ) as plane:
            yield plane


def declared(registry: Registry, text: str) -> None:
    """Create what a manifest says, as if it came from a file."""
    for resource in load_manifest(text, "manifest"):
        metadata = resource.metadata
        placed = metadata.namespace or kind_of(resource).default_namespace
        resource = resource.model_copy(update={"metadata": metadata.model_copy(update={"namespace": placed})})  # noqa: PLW2901
        finish_here(lambda resource=resource: registry.create(resource))  # type: ignore[misc]


def said(registry: Registry) -> dict[str, dict[str, tuple[str, str, str]]]:
    """Return what the conditions of all objects of ours say: status, reason and message by type."""
    found = {}
    for kind in KINDS:
        for document in registry.store.select(kind.name) if kind.is_ours else ():
            name = f"{kind.name} {document['metadata']['name']}"
            conditions = document.get("status", {}).get("conditions", ())
            found[name] = {
                item["type"]: (item["status"], item["reason"], item.get("message", "")) for item in conditions
            }
    return found


async def settled(stage: Stage, *unsaid: str) -> dict[str, dict[str, tuple[str, str, str]]]:
    """Wait until every object of ours, but for kinds of which no controller runs here, says what is in effect."""

    def is_said() -> bool:
        return all(
            "InEffect" in item
            and ("EndpointsReady" in item or not name.startswith("AddressSpace "))
            # A webhook whose address is not there yet is not looked at any further.
            and (not name.startswith("Webhook ") or item.get(READY, ("", "AddressNotReady"))[1] != "AddressNotReady")
            for name, item in said(stage.registry).items()
            if not name.startswith(unsaid)
        )

    await until_async(is_said)
    return said(stage.registry)


WITHOUT_CONTROLLER = ("AddressSpaceSchema", "Pipeline")
"""The one is read only; of pipelines their host says it."""

FIELDS = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: shop, namespace: default}
spec:
  plan: narrow
  authenticationService: {name: none, overrides: {realm: shop}}
  limits: {connections: 50, addresses: 5, ttl: 2d, sessionExpiry: 2d, willGrace: 10s, retained: 50}
  endpoints:
    - name: messaging
      service: messaging
      cert: {provider: selfsigned, secretName: mine}
      expose:
        type: loadbalancer
        annotations: {zone: a}
        loadBalancerPorts: [amqps]
        loadBalancerSourceRanges: [10.0.0.0/8]
    - name: web
      service: messaging
      cert: {provider: certBundle, secretName: mine, tlsCert: "..."}
      expose: {type: route, routeServicePort: https, routeTlsTermination: reencrypt}
---
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: bare, namespace: default}
spec: {}
---
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: walled, namespace: default}
spec:
  networkPolicy: {ingress: [{from: [{podSelector: {}}]}]}
  connectors:
  - name: remote
    role: edge
    endpointHosts: [{host: mq.example.com}]
    tls: {caCert: {value: "-"}, clientCert: {value: "-"}, clientKey: {value: "-"}}
    credentials: {username: {value: jo}, password: {value: "-"}}
    addresses: [{name: all, pattern: "#"}]
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: walled.pumped, namespace: default}
spec:
  address: pumped
  type: queue
  forwarders: [{name: out, remoteAddress: remote/there, direction: out}]
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: bare.quotes, namespace: default}
spec: {address: quotes, type: anycast, messageTtl: {maximum: 5}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders, namespace: default}
spec:
  address: orders
  type: queue
  plan: small
  limits: {maxBytes: 2000, links: 3}
  messageTtl: {minimum: 5, maximum: 90000}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: bare.plain, namespace: default}
spec: {address: plain, type: queue}
---
apiVersion: admin.enmasse.io/v1beta2
kind: AddressSpacePlan
metadata: {name: narrow, namespace: enmasse-infra}
spec:
  addressSpaceType: standard
  addressPlans: [small]
  infraConfigRef: nowhere
  resourceLimits: {broker: 1, rooter: 1}
  limits: {connections: 20, ttl: 1d, sessionExpiry: 1d, willGrace: 5s, retained: 20}
---
apiVersion: admin.enmasse.io/v1beta2
kind: AddressSpacePlan
metadata: {name: counted, namespace: enmasse-infra}
spec: {addressSpaceType: standard, addressPlans: [small], resourceLimits: {broker: 1, rooter: 1}}
---
apiVersion: admin.enmasse.io/v1beta2
kind: AddressPlan
metadata: {name: small, namespace: enmasse-infra}
spec:
  addressType: queue
  partitions: 3
  resources: {brokr: 1}
  limits: {maxBytes: 1000}
  messageTtl: {minimum: 10, maximum: 60000}
---
apiVersion: admin.enmasse.io/v1beta2
kind: AddressPlan
metadata: {name: direct, namespace: enmasse-infra}
spec: {addressType: anycast, fullPolicy: block, limits: {maxBytes: 10, maxConsumers: 2}}
---
apiVersion: admin.enmasse.io/v1beta2
kind: AddressPlan
metadata: {name: elsewhere, namespace: default}
spec: {addressType: queue}
---
apiVersion: admin.enmasse.io/v1beta1
kind: StandardInfraConfig
metadata: {name: walls, namespace: enmasse-infra}
spec: {version: "1.0", router: {minReplicas: 0}, networkPolicy: {egress: [{}]}}
---
apiVersion: admin.enmasse.io/v1beta1
kind: AuthenticationService
metadata: {name: everyone, namespace: enmasse-infra}
spec: {type: none, realm: all, none: {replicas: 1}}
---
apiVersion: admin.enmasse.io/v1beta1
kind: ConsoleService
metadata: {name: console, namespace: enmasse-infra}
spec: {host: console.example.com}
---
apiVersion: user.enmasse.io/v1beta1
kind: MessagingUser
metadata: {name: shop.jo, namespace: default}
spec:
  username: jo
  authentication: {type: federated, provider: example}
  authorization: [{operations: [view], addresses: [orders]}]
"""

PATHS = {
    "AddressSpace shop": {
        "spec.endpoints[0].expose.loadBalancerSourceRanges",
        "spec.endpoints[0].cert.secretName",
        "spec.endpoints[0].expose.annotations",
        "spec.endpoints[0].expose.type",
        "spec.endpoints[0].expose.loadBalancerPorts",
        "spec.endpoints[1].cert.tlsCert",
        "spec.endpoints[1].expose.routeTlsTermination",
        "spec.authenticationService.overrides",
        "spec.limits.connections",
        "spec.limits.ttl",
        "spec.limits.sessionExpiry",
        "spec.limits.willGrace",
        "spec.limits.retained",
    },
    "AddressSpace walled": {"spec.connectors[0].role", "spec.networkPolicy"},
    "Address walled.pumped": {"spec.forwarders"},
    "Address bare.quotes": {"spec.messageTtl"},
    "Address shop.orders": {"spec.limits.maxBytes", "spec.messageTtl.minimum", "spec.messageTtl.maximum"},
    "AddressSpacePlan narrow": {"spec.resourceLimits", "spec.infraConfigRef"},
    "AddressSpacePlan counted": {"spec.resourceLimits.rooter"},
    "AddressPlan small": {"spec.resources.brokr", "spec.partitions"},
    "AddressPlan direct": {"spec.fullPolicy", "spec.limits.maxBytes", "spec.limits.maxConsumers"},
    "AddressPlan elsewhere": {"metadata.namespace"},
    "StandardInfraConfig walls": {"spec.router.minReplicas", "spec.networkPolicy"},
    "AuthenticationService everyone": {"spec.none.replicas", "spec.realm"},
    "ConsoleService console": {"spec"},
    "MessagingUser shop.jo": {"spec.authentication.provider", "spec.authorization[0].addresses"},
}
NOT_READY = {"AddressSpace shop", "AddressSpace walled", "Address walled.pumped", "StandardInfraConfig walls"}
"""Of those, what says so in Ready too: it would restrict access or move messages."""


def paths_in(message: str) -> set[str]:
    """Return the paths that a message names."""
    heads = (part.partition(" no effect: ")[0] for part in message.split("; ") if " no effect: " in part)
    return {path for head in heads for path in head.removesuffix(" has").removesuffix(" have").split(", ")}


def test_an_object_says_which_of_its_fields_have_no_effect(perform: Perform, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.add_admission(UserPasswords())
        stage.registry.create_catalog()
        declared(stage.registry, FIELDS)
        async with everything(stage, tmp_path):
            found = await settled(stage, *WITHOUT_CONTROLLER)
            await until_async(lambda: stage.status("Address", "bare.plain")["isReady"])
        wrong = {
            name: item["InEffect"] for name, item in found.items() if item.get("InEffect", ("True",))[0] != "True"
        }
        partitioned = [name for name in wrong if "partitioned-queue" in name]
        assert len(partitioned) == 3
        assert {name: paths_in(wrong[name][2]) for name in wrong if name not in partitioned} == PATHS
        assert {status for status, _, _ in wrong.values()} == {"False"}
        assert found["Address bare.plain"]["InEffect"] == ("True", "Applied", "")
        unready = {
            name for name, item in said(stage.registry).items() if item.get(READY, ("", ""))[1] == "NotInEffect"
        }
        assert unready == NOT_READY
        # What has no effect hinders nothing else.
        assert {"default/shop", "default/walled", "default/walled.pumped"} <= set(stage.node.generations())
        assert stage.status("AddressSpace", "walled")["phase"] == "Failed"

    perform(scene)


def test_the_condition_follows_what_is_declared_beside_the_object(perform: Perform, make_space: Any) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create_catalog()
        plan = next(item for item in load_manifest(FIELDS, "manifest") if item.metadata.name == "narrow")
        stage.registry.create(make_space(plan="narrow", limits={"connections": 50}))
        stage.registry.create(plan)
        async with stage.controlled():
            await until_async(lambda: stage.condition("AddressSpace", "shop", "InEffect")[0] == "False")
            wide = plan.model_copy(update={"spec": plan.spec.model_copy(update={"limits": None})})
            stage.registry.replace(wide)
            await until_async(lambda: stage.condition("AddressSpace", "shop", "InEffect")[0] == "True")
            infra = next(item for item in load_manifest(FIELDS, "manifest") if item.metadata.name == "walls")
            named = infra.metadata.model_copy(update={"name": "nowhere"})
            stage.registry.create(infra.model_copy(update={"metadata": named}))

            def message() -> str:
                document = stage.registry.store.get("AddressSpacePlan", PLAN_NAMESPACE, "narrow")
                return str(document["status"]["conditions"])

            await until_async(lambda: "infraConfigRef" not in message())

    perform(scene)


# The next such field

EVERYTHING = """
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {name: plant, namespace: default}
spec:
  downstreamStrategy: {providedStrategy: {namespace: default, addressSpaceName: shop}}
  configuration:
    enabled: true
    minimumMessageSize: 1024
    registrationLimits: {maximumDevices: 100, maximumCredentialsPerDevice: 2}
    resourceLimits: {maximumConnections: 10, maximumTimeToLive: 60}
    defaults: {ttl: 30}
    ext: {messaging-type: amqp}
---
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {name: mill, namespace: default}
spec:
  downstreamStrategy:
    managedStrategy:
      addressSpace: {name: mill, plan: standard-small, type: standard}
      addresses:
        telemetry: {plan: standard-small-stream, type: stream}
        event: {plan: standard-small-queue}
        command: {plan: standard-small-anycast}
  pipelines:
    - {name: windows, trigger: 5s, parameters: {table: windows}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.bills, namespace: default}
spec: {address: bills, type: queue}
---
apiVersion: enmasse.io/v1beta1
kind: Webhook
metadata: {name: shop.bills, namespace: default}
spec:
  address: bills
  url: https://shop.example/bills
  headers: {X-Shop: corner}
  headersSecret: keycloak
  signingSecret: signing
  concurrency: 2
  timeout: 5s
  retry: {delay: 1s, maxDelay: 10s}
  paused: false
---
apiVersion: v1
kind: Secret
metadata: {name: signing, namespace: default}
stringData: {key: a key of two dozen bytes or more}
---
apiVersion: v1
kind: Secret
metadata: {name: keycloak, namespace: default}
stringData: {Authorization: secret}
---
apiVersion: v1
kind: Secret
metadata: {name: keycloak, namespace: enmasse-infra}
stringData: {admin.username: admin, admin.password: secret, ca.crt: "...", client-secret: secret}
---
apiVersion: admin.enmasse.io/v1beta1
kind: AuthenticationService
metadata: {name: keycloak, namespace: enmasse-infra}
spec:
  type: standard
  standard:
    keycloak: {url: "https://keycloak.example", credentialsSecret: {name: keycloak}, caCertSecret: {name: keycloak}}
---
apiVersion: admin.enmasse.io/v1beta1
kind: AuthenticationService
metadata: {name: provider, namespace: enmasse-infra}
spec:
  type: external
  external:
    allowOverride: true
    caCertSecret: {name: keycloak}
    oidc:
      issuer: https://login.example/realms/all
      clientId: enmasse
      clientSecret: {name: keycloak}
      passwordGrant: true
      grants: [{group: all, operations: [send], addresses: [a]}]
---
apiVersion: admin.enmasse.io/v1beta1
kind: AuthenticationService
metadata: {name: deployed, namespace: enmasse-infra}
spec:
  type: standard
  standard:
    resources: {limits: {memory: 1Gi}}
    serviceAccountName: a
    securityContext: {fsGroup: 1}
    image: {name: a}
    initImage: {name: a}
    deploymentName: a
    serviceName: a
    routeName: a
---
apiVersion: admin.enmasse.io/v1beta1
kind: AuthenticationService
metadata: {name: pulled, namespace: enmasse-infra}
spec:
  type: none
  none: {certificateSecret: {name: a}, image: {name: a}, serviceAccountName: a, deploymentName: a, serviceName: a}
---
apiVersion: admin.enmasse.io/v1beta1
kind: StandardInfraConfig
metadata: {name: deployed, namespace: enmasse-infra}
spec:
  broker: {minAvailable: 1}
  router: {maxUnavailable: 1, handshakeTimeout: 1, podTemplate: {metadata: {}}}
---
apiVersion: admin.enmasse.io/v1beta1
kind: BrokeredInfraConfig
metadata: {name: deployed, namespace: enmasse-infra}
spec:
  broker:
    globalMaxSize: 1Mi
    minLargeMessageSize: 1
    minAvailable: 1
    storageClassName: a
    updatePersistentVolumeClaim: true
    useModifiedForTransientDeliveryErrors: true
    javaOpts: a
    podTemplate: {metadata: {}}
  networkPolicy: {ingress: [{}]}
---
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: kept, namespace: default}
spec: {authenticationService: {name: keycloak}, mqtt: {undeliverable: acknowledge, overlapping: each,
  dollarNames: true, maximumPacketSize: 4096, receiveMaximum: 20, keepAlive: 60, inflight: 10},
  http: {queryProperties: true}}
---
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: known, namespace: default}
spec:
  plan: standard-unlimited
  authenticationService:
    name: provider
    overrides: {host: login.example, port: 1, realm: b, caCertSecret: {name: ca}}
  endpoints:
    - {name: given, service: messaging, cert: {provider: certBundle, tlsCert: "...", tlsKey: "..."}, port: 31000}
---
apiVersion: user.enmasse.io/v1beta1
kind: MessagingUser
metadata: {name: kept.jo, namespace: default}
spec: {username: jo, authentication: {type: certificate, subject: CN=jo}, clientId: {pattern: 'jo-*'}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: bare.log, namespace: default}
spec: {address: log, type: stream, plan: standard-small-stream, retention: {bytes: 1000, age: 1h}}
"""

FOR_PEOPLE = {"version", "ConnectorAddress.name"}
"""Fields that are there to be read by people."""

REFUSED = {"DownstreamStrategy.external_strategy"}
"""Fields that are known so that their refusal gives the reason."""

BY_PIPELINES = (
    "Pipeline.", "Address.spec.schema", "AddressSpace.spec.lake.", "AddressSpace.spec.spark.",
    "AddressSpace.spec.limits.pipeline", "AddressSpacePlan.spec.limits.pipeline",
)  # fmt: skip
"""What another process reads, with Spark: of these, that the source names the field is all that is asked for."""

_CHECKS = {"problems", "spec_problems", "unapplied", "unapplied_by_type", "unapplied_over_plan", "unapplied_storing"}
_SAYING = {
    SOURCES / "model" / "schema" / "conditions.py",
    SOURCES / "control" / "in_effect.py",
    SOURCES / "model" / "schema" / "schema.py",
}
"""What asks for every field and so says of none that it is heeded."""


assert all(file.exists() for file in _SAYING)


class Reads:
    """Notes which fields of the model the code asks for by name; that of checks and of ``InEffect`` itself aside."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self.whole: set[str] = set()
        """Classes of which the JSON form was taken, with all that is in it."""

    def note(self, part: Model, name: str) -> None:
        frame = sys._getframe(2)
        if name == "to_dict":
            if not isinstance(part, Resource) and self._is_use(frame):
                self.whole.add(type(part).__name__)
        elif name in type(part).model_fields and self._is_named(frame.f_code, name) and self._is_use(frame):
            self.seen.add((type(part).__name__, name))

    @staticmethod
    def _is_named(code: Any, name: str) -> bool:
        """Tell whether code asks for a field by its name: a loop over all fields says nothing of any of them.

        The settings of addresses are named where they are declared, and their use is seen to by a test of its own.
        """
        return name in code.co_names or code is _value.__code__

    @classmethod
    def _is_use(cls, frame: Any) -> bool:
        if cls._kind_of(frame.f_code) != "ours":
            return False
        while frame is not None and (kind := cls._kind_of(frame.f_code)):
            if kind == "check":
                return False
            frame = frame.f_back
        return True

    @staticmethod
    @functools.cache
    def _kind_of(code: Any) -> str:
        place = Path(code.co_filename)
        if SOURCES not in place.parents:
            return ""
        return "check" if code.co_name in _CHECKS else "saying" if place in _SAYING else "ours"


def fields_of(model: type[BaseModel], path: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yield every field of a model that holds a value, at every depth.

    Yields:
        Path, class and name, and whether there is more than one value that it can have.
    """
    for name, field in model.model_fields.items():
        inner, parts = f"{path}.{field.alias or name}", list(_models_in(field.annotation))
        if not parts:
            yield (
                inner,
                model.__name__,
                name,
                len(get_args(field.annotation)) != 1 or get_origin(field.annotation) is tuple,
            )
        for part, is_many in parts:
            yield from fields_of(part, inner + "[]" * is_many)


def _models_in(annotation: Any, *, is_many: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, is_many
    for part in get_args(annotation):
        yield from _models_in(part, is_many=is_many or get_origin(annotation) is tuple)


def _spec_of(model: type[Resource]) -> type[BaseModel]:
    spec = model.model_fields["spec"].annotation
    assert isinstance(spec, type)
    assert issubclass(spec, BaseModel)
    return spec


def names_in(folder: Path, *, is_text_too: bool = True) -> set[str]:
    """Return all attributes, and texts, that a source, or the sources in a folder, name."""
    found = set()
    for file in [folder] if folder.is_file() else folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif is_text_too and isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


@pytest.mark.slow
def test_every_setting_of_an_address_is_heeded_by_the_node() -> None:
    heeded = names_in(SOURCES / "messaging", is_text_too=False) | names_in(SOURCES / "node", is_text_too=False)
    same_on_one_node = {"distribution"}
    assert set(SETTINGS) - heeded == same_on_one_node, "nothing in a node asks for these"


@pytest.mark.slow
def test_no_field_of_any_kind_is_taken_and_neither_used_nor_reported(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, reported = Reads(), set[str]()
    original = Model.__getattribute__

    def spy(part: Model, name: str) -> Any:
        reads.note(part, name)
        return original(part, name)

    async def scene(stage: Stage) -> None:
        stage.registry.add_admission(UserPasswords())
        stage.registry.add_admission(EndpointKeys())
        stage.registry.create_catalog()
        monkeypatch.setattr(Model, "__getattribute__", spy)
        texts = [path.read_text() for path in sorted((EXAMPLES / "enmasse-1.0").glob("*.yaml"))]
        declared(
            stage.registry, "\n---\n".join([FIELDS, EVERYTHING, *(text for text in texts if "console" not in text)])
        )
        async with everything(stage, tmp_path) as plane:
            await settled(stage, *WITHOUT_CONTROLLER)
            monkeypatch.undo()
            for kind in KINDS:
                for document in stage.registry.store.select(kind.name) if kind.is_ours else ():
                    found = plane.context.effects.of(restore(document))
                    reported.update(re.sub(r"\[\d+\]", "[]", f"{kind.name}.{item.path}") for item in found)

    perform(scene)
    in_pipelines = names_in(SOURCES / "pipeline") | names_in(SOURCES / "model/kinds/pipelines/row_errors.py")
    forgotten = []
    for kind in KINDS:
        if not kind.is_ours or kind.is_read_only:
            continue
        covered = {path for path in reported if path.startswith(f"{kind.name}.")}
        for path, owner, name, is_choice in fields_of(_spec_of(class_of(kind)), f"{kind.name}.spec"):
            if owner in reads.whole:
                covered.add(path.rpartition(".")[0])
            is_said = any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in covered)
            is_used = (
                not is_choice
                or (owner, name) in reads.seen
                or not (FOR_PEOPLE | REFUSED).isdisjoint((name, f"{owner}.{name}"))
            )
            if path.startswith(BY_PIPELINES):
                is_used = is_used or not in_pipelines.isdisjoint((name, path.rpartition(".")[2]))
            if not is_said and not is_used:
                forgotten.append(path)
    assert forgotten == [], f"have them do something, or say in unapplied() that they do nothing: {forgotten}"


def test_a_pipeline_that_reads_is_warned_of_every_type_of_addresses_but_streams() -> None:
    assert set(preview._READING) == set(ADDRESS_TYPES) - {"stream"}
