"""Messaging users by kubectl: a password goes in with a manifest, and comes out nowhere."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import blocking
from enmasse.errors import EnmasseError
from tests.interop.kubectl.kubectl_command import space

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.kubectl.kubectl_command import Kubectl
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]


def user(password: str | None = "first one", **spec: Any) -> dict[str, Any]:
    authentication = {"type": "password"}
    if password is not None:
        authentication["password"] = b64encode(password.encode()).decode()
    return {
        "apiVersion": "user.enmasse.io/v1beta1",
        "kind": "MessagingUser",
        "metadata": {"name": "shop.maker"},
        "spec": {"username": "maker", "authentication": authentication, **spec},
    }


@pytest.fixture
def guarded(kubectl: Kubectl) -> Kubectl:
    """A space for its users, of whom there is one."""
    kubectl.apply(space(authenticationService={"type": "standard"}), user())
    kubectl.ok("wait", "--for=condition=Ready", "--timeout=60s", "messaginguser/shop.maker")
    return kubectl


def is_in(installation: Installation, kubectl: Kubectl, password: str) -> bool:
    try:
        with blocking.connect(
            installation.url("amqp"),
            user="maker",
            password=password,
            hostname=f"shop.{kubectl.namespace}",
            reconnect=False,
        ):
            return True
    except EnmasseError:
        return False


def test_a_user_comes_in_by_the_password_of_its_manifest(installation: Installation, guarded: Kubectl) -> None:
    assert guarded.table("muser")[1][:4] == ["shop.maker", "maker", "password", "Active"]
    assert is_in(installation, guarded, "first one")
    version = guarded.document("muser", "shop.maker")["metadata"]["resourceVersion"]
    guarded.apply(user())
    assert guarded.document("muser", "shop.maker")["metadata"]["resourceVersion"] == version
    guarded.apply(user("second one"))
    guarded.apply(user("third one"), options=("--server-side", "--force-conflicts"))
    guarded.ok("wait", "--for=condition=Ready", "--timeout=60s", "messaginguser/shop.maker")
    found = guarded.document("muser", "shop.maker")
    assert found["metadata"]["annotations"]["enmasse.io/credentials"]
    seen = (
        guarded.ok("get", "muser", "shop.maker", "-o", "yaml", "--show-managed-fields") if guarded.minor > 20 else ""
    )
    seen += str(found) + guarded.ok("describe", "muser", "shop.maker") + guarded.ok("get", "events", "-o", "yaml")
    for password in ("first one", "second one", "third one"):
        assert password not in seen
        assert b64encode(password.encode()).decode() not in seen


def test_an_edit_keeps_the_password(installation: Installation, guarded: Kubectl, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    grant = "  authorization: [{operations: [view]}]"
    editor.write_text(f"#!/bin/sh\nsed -i 's/^  username: maker$/  username: maker\\n{grant}/' \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in guarded.ok("edit", "muser", "shop.maker", KUBE_EDITOR=str(editor))
    assert guarded.document("muser", "shop.maker")["spec"]["authorization"] == [{"operations": ["view"]}]
    assert is_in(installation, guarded, "first one")


def test_a_password_that_is_none_is_refused_and_not_repeated(guarded: Kubectl) -> None:
    wrong = user(None)
    wrong["spec"]["authentication"]["password"] = "hunter2"
    said = guarded.refused("apply", "--validate=false", "-f", guarded.file(wrong))
    assert "spec.authentication.password" in said
    assert "hunter2" not in said
