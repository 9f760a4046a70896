"""Who may do what in the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.control.access.roles import BUILT_IN_BINDINGS, ROLES
from enmasse.identity.rbac import (
    ANONYMOUS,
    LOCAL_OPERATOR,
    AccessRequest,
    Binding,
    Requester,
    Role,
    Rule,
    describe_refusal,
    is_allowed,
    may_bind,
)

TINA = Requester.known("tina")
SAM = Requester.known("sam", ("operators",))
BINDINGS = (
    *BUILT_IN_BINDINGS,
    Binding("enmasse.io:tenant-edit", users=frozenset({"tina"}), namespace="blue"),
    Binding("enmasse.io:tenant-view", users=frozenset({"tina"}), namespace="green"),
    Binding("enmasse.io:service-admin", groups=frozenset({"operators"})),
    Binding("no-such-role", users=frozenset({"tina"})),
)


def allowed(who: Requester, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
    return is_allowed(who, AccessRequest(verb, group, resource, namespace, name), BINDINGS, ROLES)


def test_what_no_role_allows_is_refused() -> None:
    assert not allowed(Requester.known("mallory"), "list", "enmasse.io", "addresses", "blue")
    assert not allowed(ANONYMOUS, "get", "enmasse.io", "addressspaceschemas", "", "standard")


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create", "update", "patch", "delete"])
def test_a_role_counts_in_the_namespace_where_it_is_bound_and_nowhere_else(verb: str) -> None:
    assert allowed(TINA, verb, "enmasse.io", "addresses", "blue")
    assert not allowed(TINA, verb, "enmasse.io", "addresses", "red")
    assert not allowed(TINA, verb, "enmasse.io", "addresses")  # all namespaces at once
    assert allowed(TINA, verb, "enmasse.io", "addresses", "green") == (verb in ("get", "list", "watch"))


def test_who_may_only_look_reads_no_secrets() -> None:
    assert allowed(TINA, "get", "", "configmaps", "green", "facts")
    assert not allowed(TINA, "get", "", "secrets", "green", "keys")
    assert allowed(TINA, "get", "", "secrets", "blue", "keys")


def test_a_subresource_needs_a_rule_of_its_own() -> None:
    assert allowed(TINA, "create", "enmasse.io", "addresses/purge", "blue", "shop.stock")
    assert not allowed(TINA, "create", "enmasse.io", "addresses/purge", "green", "shop.stock")
    assert not allowed(TINA, "update", "enmasse.io", "addressspaces/status", "blue", "shop")


@pytest.mark.parametrize("below", ["models", "tables"])
def test_who_writes_pipelines_changes_their_tables_and_models(below: str) -> None:
    assert allowed(TINA, "create", "enmasse.io", f"addressspaces/{below}", "blue", "shop")
    assert not allowed(TINA, "create", "enmasse.io", f"addressspaces/{below}", "green", "shop")


def test_plans_are_written_by_service_admins_and_seen_by_tenants_as_schema_alone() -> None:
    assert allowed(SAM, "create", "admin.enmasse.io", "addressplans", "enmasse-infra")
    assert not allowed(TINA, "get", "admin.enmasse.io", "addressplans", "enmasse-infra", "small-queue")
    assert allowed(TINA, "list", "enmasse.io", "addressspaceschemas")


def test_a_service_admin_reads_neither_secrets_nor_writes_addresses_of_tenants() -> None:
    assert allowed(SAM, "list", "enmasse.io", "addressspaces")
    assert not allowed(SAM, "get", "", "secrets", "blue", "keys")
    assert not allowed(SAM, "delete", "enmasse.io", "addresses", "blue", "shop.stock")


def test_paths_that_are_no_resources_have_rules_too() -> None:
    assert is_allowed(TINA, AccessRequest("get", path="/apis/enmasse.io/v1beta1"), BINDINGS, ROLES)
    assert not is_allowed(TINA, AccessRequest("get", path="/metrics"), BINDINGS, ROLES)
    assert is_allowed(SAM, AccessRequest("get", path="/metrics"), BINDINGS, ROLES)
    assert not is_allowed(ANONYMOUS, AccessRequest("get", path="/apis"), BINDINGS, ROLES)


def test_administrators_may_do_everything() -> None:
    assert allowed(LOCAL_OPERATOR, "delete", "", "secrets", "blue", "keys")
    assert Requester.known("ann", ("system:masters",)).is_admin


@pytest.mark.parametrize(
    ("who", "role", "namespace", "may"),
    [
        (LOCAL_OPERATOR, "enmasse.io:service-admin", "", True),
        (SAM, "enmasse.io:tenant-edit", "blue", True),  # by a rule with the verb bind
        (SAM, "enmasse.io:service-admin", "", True),  # has all of it
        (TINA, "enmasse.io:tenant-view", "blue", True),
        (TINA, "enmasse.io:tenant-edit", "green", False),
        (TINA, "enmasse.io:tenant-view", "", False),
        (TINA, "enmasse.io:service-admin", "blue", False),
        (TINA, "enmasse.io:schema-reader", "blue", True),
    ],
)
def test_nobody_gives_away_more_than_they_have(who: Requester, role: str, namespace: str, may: bool) -> None:
    assert may_bind(who, ROLES[role], namespace, BINDINGS, ROLES) is may


def test_a_rule_for_everything_is_covered_by_a_rule_for_everything_alone() -> None:
    everything = Role("everything", (Rule(("*",), ("*",), ("*",)),))
    named = Role("one", (Rule(("get",), ("",), ("secrets",), ("keys",)),))
    roles = ROLES | {role.name: role for role in (everything, named)}
    one = Binding("one", users=frozenset({"tina"}))
    assert not may_bind(TINA, everything, "blue", (*BINDINGS, one), roles)
    assert may_bind(TINA, named, "", (*BINDINGS, one), roles)
    assert not may_bind(TINA, Role("all", (Rule(("get",), ("",), ("secrets",)),)), "", (one,), roles)


def test_a_refusal_has_the_words_of_kubernetes() -> None:
    assert (
        describe_refusal(TINA, AccessRequest("list", "enmasse.io", "addresses", "red"))
        == 'addresses.enmasse.io is forbidden: User "tina" cannot list resource "addresses" '
        'in API group "enmasse.io" in the namespace "red"'
    )
    assert (
        describe_refusal(TINA, AccessRequest("get", "", "namespaces", "", "red"))
        == 'namespaces "red" is forbidden: User "tina" cannot get resource "namespaces" '
        'in API group "" at the cluster scope'
    )
    assert describe_refusal(TINA, AccessRequest("get", path="/metrics")) == (
        'forbidden: User "tina" cannot get path "/metrics"'
    )


def rules_as_text() -> str:
    """The rules of all roles, as the reference has them."""
    lines = ["| role | on | may |", "|---|---|---|"]
    for role in ROLES.values():
        for rule in role.rules:
            what = ", ".join(f"`{name}`" for name in rule.paths or rule.resources)
            if rule.groups:
                what += f" ({', '.join(group or 'core' for group in rule.groups)})"
            if rule.names:
                what += " named " + ", ".join(f"`{name}`" for name in rule.names)
            lines.append(f"| `{role.name}` | {what} | {', '.join(rule.verbs)} |")
    return "\n".join(lines)


def test_the_reference_tells_the_roles_as_they_are() -> None:
    reference = Path(__file__).parents[3] / "docs" / "reference" / "rbac.md"
    assert rules_as_text() in reference.read_text()
