"""The how-tos of the API's accounts and of endpoints' certificates do what they say, command by command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.scenario.howto_place import Place, blocks
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.slow


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path, request.param)
    try:
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("place", [("--api-auth", "required")], indirect=True)
def test_the_howto_of_accounts_does_what_it_says(place: Place) -> None:
    require("kubectl", "curl")
    steps = blocks("secure-the-api.md")
    out = {}
    for name, (commands, told) in steps.items():
        out[name] = place.run(commands)
        if told is not None:
            assert out[name].split() == told.split(), name
        if name == "admin":
            place.start()
    assert re.search(r"^ann +system:masters", out["tenant"], re.MULTILINE)
    assert "logged in to https://" in out["login"]
    assert "shop" in out["login"]
    assert out["kubectl"].split("\n")[2:4] == ["yes", "no"]
    assert "shop" in out["kubectl"]
    assert (place.directory / "config").stat().st_mode & 0o777 == 0o600
    assert (place.directory / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert list(steps) == [
        "admin",
        "tenant",
        "login",
        "refused",
        "kubectl",
        "token",
        "certificate",
        "everywhere",
        "back",
    ]
    told = place.run('curl -s -k -H "Authorization: Bearer $(cat token)" https://127.0.0.1:8443/whoami')
    assert '"code":401' in told.replace(" ", "")
    secret = (place.directory / "token").read_text().strip()
    logs = "".join(path.read_text() for path in (place.directory / ".enmasse").rglob("*.log"))
    for word in (secret, "the horse of", (place.directory / ".enmasse/control/operator.token").read_text()):
        assert word not in logs


@pytest.mark.parametrize("place", [()], indirect=True)
def test_the_howto_of_certificates_does_what_it_says(place: Place) -> None:
    require("kubectl", "curl")
    place.start()
    place.run("enmasse login --kubeconfig")
    steps = blocks("endpoint-certificates.md")
    out = {}
    for name, (commands, told) in steps.items():
        out[name] = place.run(commands)
        if told is not None:
            assert told.split()[0] in out[name].split(), (name, out[name])
    assert "subject=CN = mq.shop.example" in out["bundle"]
    assert list(steps) == ["selfsigned", "grant", "bundle", "exports"]
    key = (place.directory / "shop.key").read_text().splitlines()[1]
    shown = place.run(
        "kubectl get addressspace shop -o yaml; kubectl get configmap -o yaml; kubectl get events -o yaml"
    )
    assert key not in shown


@pytest.mark.parametrize("place", [("--api-host", "0.0.0.0")], indirect=True)  # what is tried
def test_an_api_for_other_machines_needs_an_account_first(place: Place) -> None:
    require("curl")
    with pytest.raises(AssertionError, match="there are no accounts"):
        place.start()
    place.process = None
    place.run("echo 'the horse of ann' | enmasse account add ann --admin")
    place.start()
    refused = place.run("curl -s http://127.0.0.1:8080/apis")
    assert "Unauthorized" in refused
    place.run("echo 'the horse of ann' | enmasse login --user ann; enmasse get spaces; enmasse logout")
