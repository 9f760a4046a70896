"""Messaging users: names, proofs and rights, and passwords that nobody gets to see."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from enmasse.model.kinds.users import MessagingUser, password_of
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode

PASSWORD = b64encode(b"s3cr3t-w0rds").decode()


def user(name: str = "shop.ann", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "user.enmasse.io/v1beta1",
        "kind": "MessagingUser",
        "metadata": {"name": name},
        "spec": {"username": "ann", "authentication": {"type": "password", "password": PASSWORD}} | spec,
    }


def decoded(**spec: Any) -> MessagingUser:
    found = decode(user(**spec))
    assert isinstance(found, MessagingUser)
    return found


def problems(document: Any) -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        decode(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_a_user_of_enmasse_1_0_applies_unchanged() -> None:
    grants = [
        {"addresses": ["myqueue", "queue1", "queue2", "topic*"], "operations": ["send", "recv"]},
        {"addresses": ["anycast1"], "operations": ["send"]},
        {"operations": ["view", "manage"]},
    ]
    ann = decoded(authorization=grants)
    assert (ann.space, password_of(ann)) == ("shop", "s3cr3t-w0rds")
    assert decode(ann.to_dict()) == ann
    assert ann.to_dict()["spec"]["authorization"] == grants


@pytest.mark.parametrize("username", ["ann", "a", "7", "ann@example.com", "system:serviceaccount:ns:app", "a_b-c.d"])
def test_usernames_are_those_of_enmasse_1_0(username: str) -> None:
    assert decoded(username=username).spec.username == username


@pytest.mark.parametrize(
    "username", ["", "Ann", "ann ", "-ann", "ann@", "änn", "a" * 256, "a\nb", "@@serviceaccount@@"]
)
def test_other_usernames_are_refused(username: str) -> None:
    assert problems(user(username=username)).keys() == {"spec.username"}


def test_a_service_account_may_have_the_name_that_it_logs_in_with() -> None:
    account = decoded(username="@@serviceaccount@@", authentication={"type": "serviceaccount"})
    assert account.spec.authentication.type == "serviceaccount"


@pytest.mark.parametrize(
    ("authentication", "path"),
    [
        ({"type": "federated", "password": PASSWORD}, "spec.authentication.password"),
        ({"type": "password", "provider": "openshift"}, "spec.authentication.provider"),
        ({"type": "password", "subject": "CN=ann"}, "spec.authentication.subject"),
        ({"type": "token"}, "spec.authentication.type"),
        ({"type": "password", "password": "no base64"}, "spec.authentication.password"),
        ({"type": "password", "password": ""}, "spec.authentication.password"),
        ({"type": "password", "password": b64encode(b"\xff").decode()}, "spec.authentication.password"),
    ],
)
def test_proofs_that_do_not_fit_are_refused(authentication: dict[str, Any], path: str) -> None:
    assert problems(user(authentication=authentication)).keys() == {path}


@pytest.mark.parametrize(
    "pattern", ["*", "#", "a/*/b", "a/#", "top*", "a/b*", "a/*", "devices/${username}/#", "Ünïcode"]
)
def test_patterns_are_words_wildcards_and_the_users_name(pattern: str) -> None:
    grant = decoded(authorization=[{"operations": ["send"], "addresses": [pattern]}]).spec.authorization[0]
    assert grant.addresses == (pattern,)


@pytest.mark.parametrize("pattern", ["", "a b", "$management", "a*b", "a*/b", "${device}/x", "**"])
def test_other_patterns_are_refused(pattern: str) -> None:
    found = problems(user(authorization=[{"operations": ["recv"], "addresses": [pattern]}]))
    assert found.keys() == {"spec.authorization[0].addresses[0]"}


def test_sending_and_receiving_need_addresses_and_operations_must_be_known() -> None:
    assert problems(user(authorization=[{"operations": ["send", "view"]}])).keys() == {
        "spec.authorization[0].addresses"
    }
    assert [item.path for item in decoded(authorization=[{"operations": [], "addresses": ["a"]}]).unapplied()] == [
        "spec.authorization[0]"
    ]
    assert (
        "expected one of send, recv, view, manage"
        in problems(user(authorization=[{"operations": ["write"]}]))["spec.authorization[0].operations[0]"]
    )


def test_a_password_is_in_no_text_and_no_message() -> None:
    shown = f"{decoded()!r} {decoded()} {decoded().spec.authentication!s}"
    assert PASSWORD not in shown
    for wrong in (["s3cr3t"], {"value": "s3cr3t"}, 12345678, "s3cr3t!"):
        message = problems(user(authentication={"type": "password", "password": wrong}))[
            "spec.authentication.password"
        ]
        assert "s3cr3t" not in message
        assert "12345678" not in message
