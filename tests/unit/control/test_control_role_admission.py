"""Rights given to others, and rights of those who write, whichever way the write came."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enmasse.control.access.rights import (
    BindingAdmission,
    Rights,
    SecretAdmission,
    WriterAdmission,
    store_built_in_roles,
)
from enmasse.control.access.roles import ROLES
from enmasse.control.errors import ForbiddenError
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.identity.rbac import LOCAL_OPERATOR, PROOF_REQUIRED, AccessRequest, Requester, Role, Rule
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.kinds import KINDS
from enmasse.model.schema.objects import decode
from enmasse.model.schema.resource import Resource

SAM = Requester.known("sam")
TINA = Requester.known("tina")


def binding(role: str, who: str, namespace: str = "", name: str = "") -> Resource:
    return decode(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {"name": name or f"{who}-{role}"} | ({"namespace": namespace} if namespace else {}),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"enmasse.io:{role}"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}],
        }
    )


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    uids = itertools.count(1)
    with ResourceStore(tmp_path / "resources.db", history=500) as store:
        made = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")
        rights = Rights(store)
        made.add_admission(WriterAdmission(rights))
        made.add_admission(BindingAdmission(rights))
        made.add_admission(SecretAdmission(rights))
        made.create(binding("service-admin", "sam"))
        made.create(binding("tenant-edit", "tina", "default"))
        yield made


def space(name: str, namespace: str) -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return decode({"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": metadata, "spec": {}})


def connected(host: str = "mq.example.com", **connector: Any) -> Resource:
    metadata = {"name": "shop", "namespace": "default"}
    login = {"username": {"value": "shop"}, "password": {"valueFromSecret": {"name": "broker"}}}
    fields = {"name": "old", "endpointHosts": [{"host": host}], "tls": {}, "credentials": login} | connector
    spec = {"connectors": [fields]}
    return decode({"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": metadata, "spec": spec})


def test_a_connector_shows_no_secret_to_a_host_whose_writer_may_not_read_it(tmp_path: Path) -> None:
    write = Rule(("get", "create", "update"), ("enmasse.io",), ("addressspaces",))
    read = Rule(("get",), ("",), ("secrets",), names=("broker",))
    roles = ROLES | {"spaces": Role("spaces", (write,)), "reader": Role("reader", (write, read))}
    with ResourceStore(tmp_path / "resources.db", history=500) as store:
        made = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: "uid")
        made.add_admission(SecretAdmission(Rights(store, roles)))
        for role, who in (("spaces", "tom"), ("reader", "tina")):
            found = binding("tenant-view", who, "default", who).to_dict()
            found["roleRef"]["name"] = role
            made.create(decode(found))
        tom = Requester.known("tom")
        with pytest.raises(ForbiddenError, match='"tom" cannot get resource "secrets"'):
            made.create(connected(), user=tom)
        made.create(connected(), user=TINA)
        same = connected()
        made.replace(
            same.model_copy(update={"metadata": same.metadata.model_copy(update={"labels": {"a": "b"}})}), user=tom
        )
        certificate = {"value": "x"}
        key = {"valueFromSecret": {"name": "broker", "key": "tls.key"}}
        for other in (
            connected("evil.example.com"),
            connected(name="other"),
            connected(tls=None),
            connected(tls={"caCert": {"value": "x"}}),
            connected(credentials=None, tls={"clientCert": certificate, "clientKey": key}),
        ):
            with pytest.raises(ForbiddenError, match="secrets"):
                made.replace(other, user=tom)
        with pytest.raises(ForbiddenError, match="secrets"):
            made.replace(connected(tls={"caCert": {"valueFromSecret": {"name": "other"}}}), user=TINA)


def test_a_write_is_refused_that_its_writer_has_no_right_to(registry: Registry) -> None:
    registry.create(space("shop", "default"), user=TINA)
    with pytest.raises(ForbiddenError, match='User "tina" cannot create resource "addressspaces"'):
        registry.create(space("shop", "enmasse-infra"), user=TINA)
    with pytest.raises(ForbiddenError, match='User "sam" cannot delete resource "addressspaces"'):
        registry.delete("AddressSpace", "default", "shop", user=SAM)
    with pytest.raises(ForbiddenError, match='User "sam" cannot update resource "addressspaces"'):
        registry.replace(space("shop", "default"), user=SAM)


def test_who_lets_tenants_in_cannot_make_others_or_themselves_more(registry: Registry) -> None:
    registry.create(binding("tenant-edit", "tom", "default"), user=SAM)
    with pytest.raises(ForbiddenError, match='"tina" cannot create resource "rolebindings"'):
        registry.create(binding("tenant-view", "tom", "default", "other"), user=TINA)
    with pytest.raises(ForbiddenError, match="clusterrolebindings"):
        registry.create(binding("tenant-edit", "sam"), user=SAM)


def test_a_binding_gives_nobody_more_than_its_writer_has(registry: Registry) -> None:
    rights = Rights(registry.store)
    registry.create(binding("tenant-view", "vic", "default"))
    with pytest.raises(ForbiddenError, match="grants permissions not currently held"):
        rights.require_bind(TINA, "enmasse.io:service-admin", "default")
    with pytest.raises(ForbiddenError, match="grants permissions not currently held"):
        rights.require_bind(Requester.known("vic"), "enmasse.io:tenant-edit", "default")
    rights.require_bind(TINA, "enmasse.io:tenant-view", "default")
    with pytest.raises(ForbiddenError, match="there is no ClusterRole"):
        registry.create(binding("no-such", "tina", "default"), user=SAM)


def test_a_binding_does_not_become_one_to_another_role(registry: Registry) -> None:
    registry.create(binding("tenant-view", "tom", "default", "of-tom"), user=SAM)
    with pytest.raises(InvalidResourceError, match="cannot be changed"):
        registry.replace(binding("tenant-edit", "tom", "default", "of-tom"), user=LOCAL_OPERATOR)


def test_roles_are_shown_and_changed_by_nobody(registry: Registry) -> None:
    store_built_in_roles(registry)
    version = registry.store.version
    store_built_in_roles(registry)
    assert registry.store.version == version
    role = registry.store.get("ClusterRole", "", "enmasse.io:tenant-view")
    assert {"secrets"}.isdisjoint(name for rule in role["rules"] for name in rule.get("resources", ()))
    shipped = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [{"verbs": ["*"]}]}
    wider = decode(shipped | {"metadata": {"name": "enmasse.io:tenant-view"}})
    registry.replace(wider, user=LOCAL_OPERATOR)
    assert registry.store.version == version
    assert [item.path for item in wider.unapplied()] == ["rules"]
    with pytest.raises(ForbiddenError, match='User "tina" cannot update resource "clusterroles"'):
        registry.replace(wider, user=TINA)
    with pytest.raises(ForbiddenError, match=r"roles are built in; there are enmasse.io:service-admin, "):
        registry.create(decode(shipped | {"metadata": {"name": "all-mine"}}), user=LOCAL_OPERATOR)
    with pytest.raises(ForbiddenError, match="built in"):
        registry.delete("ClusterRole", "", "enmasse.io:tenant-view", user=LOCAL_OPERATOR)


def test_a_binding_counts_as_soon_as_it_is_written(registry: Registry) -> None:
    rights = Rights(registry.store)
    ask = AccessRequest("list", "enmasse.io", "addresses", "default")
    assert not rights.allows(Requester.known("tom"), ask)
    registry.create(binding("tenant-view", "tom", "default"), user=SAM)
    assert rights.allows(Requester.known("tom"), ask)
    registry.delete("RoleBinding", "default", "tom-tenant-view", user=SAM)
    assert not rights.allows(Requester.known("tom"), ask)


def test_every_kind_of_ours_is_in_a_role() -> None:
    rules = [rule for role in ROLES.values() for rule in role.rules]
    for kind in KINDS:
        if kind.is_ours:
            asked = AccessRequest("list", kind.group, kind.plural)
            assert any(rule.allows(asked) for rule in rules), f"no role may list {kind.plural}"


def pipeline(*, reads: bool = False, **database: Any) -> Resource:
    fields = {"type": "postgresql", "host": "db.example.com", "database": "plant", "table": "machines"}
    table = {"database": fields | {"credentialsSecret": "warehouse"} | database}
    return decode(
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": {"name": "shop.rows", "namespace": "default"},
            "spec": {
                "sources": [{"name": "rows", "address": "rows"}, *([{"name": "joined", **table}] if reads else [])],
                "sinks": [{"table": "rows"} if reads else table],
            },
        }
    )


def test_a_pipeline_brings_no_password_to_a_database_that_its_writer_may_not_read(tmp_path: Path) -> None:
    write = Rule(("get", "create", "update"), ("enmasse.io",), ("pipelines",))
    read = Rule(("get",), ("",), ("secrets",), names=("warehouse",))
    roles = ROLES | {"pipelines": Role("pipelines", (write,)), "reader": Role("reader", (write, read))}
    with ResourceStore(tmp_path / "resources.db", history=500) as store:
        made = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: "uid")
        made.add_admission(SecretAdmission(Rights(store, roles)))
        for role, who in (("pipelines", "tom"), ("reader", "tina")):
            found = binding("tenant-view", who, "default", who).to_dict()
            found["roleRef"]["name"] = role
            store_binding = decode(found)
            made.create(store_binding)
        made.create(space("shop", "default"))
        tom = Requester.known("tom")
        with pytest.raises(ForbiddenError, match='"tom" cannot get resource "secrets"'):
            made.create(pipeline(), user=tom)
        with pytest.raises(ForbiddenError, match='"tina" cannot get resource "secrets"'):
            made.create(pipeline(credentialsSecret="other"), user=TINA)
        made.create(pipeline(), user=TINA)
        # What is told already may be told again, and nowhere else.
        same = pipeline()
        made.replace(
            same.model_copy(update={"metadata": same.metadata.model_copy(update={"labels": {"a": "b"}})}), user=tom
        )
        others: list[dict[str, Any]] = [
            {"host": "evil.example.com"},
            {"tls": "off"},
            {"credentialsSecret": "other"},
            {"port": 1},
            {"database": "payroll"},
            {"table": "salaries"},
            {"reads": True},
        ]
        in_a_session = replace(TINA, unproved="prove it")
        made.replace(
            same.model_copy(update={"metadata": same.metadata.model_copy(update={"labels": {"a": "c"}})}),
            user=in_a_session,
        )
        for more in others:
            with pytest.raises(ForbiddenError, match="secrets"):
                made.replace(pipeline(**more), user=tom)
            # Whoever has stolen a cookie has no database of theirs told the password.
            with pytest.raises(ForbiddenError, match="prove it") as refused:
                made.replace(pipeline(**more), user=in_a_session)
            assert refused.value.cause == PROOF_REQUIRED
