"""The how-to of OpenID Connect does what it says, command by command, at a real Keycloak."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.keycloak.conftest import Installation, Keycloak
from tests.support.ready_commands import command_path

HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "sign-in-with-openid-connect.md").read_text()
BLOCK = re.compile(r"<!-- (run|write): ([\w. ]+) -->\n```(\w+)\n(.*?)```", re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("keycloak")]

COMPANY: dict[str, Any] = {
    "realm": "company", "enabled": True,
    "clients": [
        {
            "clientId": "messaging", "secret": "what the provider gave", "directAccessGrantsEnabled": True,
            "protocolMappers": [
                {
                    "name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
                    "config": {"included.client.audience": "messaging", "access.token.claim": "true"},
                },
            ],
        },
    ],
    "users": [
        {
            "username": "ida", "enabled": True, "email": "ida@example.com", "firstName": "Ida", "lastName": "X",
            "emailVerified": True, "credentials": [{"type": "password", "value": "sesame"}],
        },
    ],
}  # fmt: skip


def test_every_command_of_the_howto(installation: Installation, keycloak: Keycloak, tmp_path: Path) -> None:
    keycloak.admin("POST", "", COMPANY)
    here = {
        "https://id.example.com": keycloak.url,
        "https://keycloak.example.com": keycloak.url,
        "secret of the administrator": keycloak.password,
        "amqps://127.0.0.1:5672": installation.url("amqps"),
    }
    path = command_path()
    environment = {**os.environ, "PATH": path, "ENMASSE_DATA": str(installation.data), "COLUMNS": "100"}
    said = {}
    for verb, name, language, content in BLOCK.findall(HOWTO):
        for there, place in here.items():
            content = content.replace(there, place)  # noqa: PLW2901
        if verb == "write":
            (tmp_path / name).write_text(content)
            continue
        if name == "miller":
            keycloak.until(lambda: keycloak.knows("default-mill", "miller", "grind"))
        command = ["bash", "-euc"] if language == "sh" else [sys.executable, "-W", "error", "-c"]
        done = subprocess.run(
            [*command, content], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
        said[name] = done.stdout
    assert said["by token"] == "accepted\n"
    assert "from ida" in said["by password"]
    assert len(said) == len(re.findall("<!-- run:", HOWTO))
