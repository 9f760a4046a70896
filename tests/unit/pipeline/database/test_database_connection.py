from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from enmasse.model.kinds.pipelines.databases import Database
from enmasse.pipeline.database.connection import addresses_of, transaction
from enmasse.pipeline.errors import AccessError, DatabaseAwayError
from enmasse.pipeline.host.reach import RELAYED


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    # No resolver of a machine that runs tests has such names.
    def answer(*_: Any, **__: Any) -> list[Any]:
        return [(None, None, None, "", (address, 5432)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fd00:ec2::254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "168.63.129.16"]
)
@pytest.mark.parametrize("is_relayed", [True, False])
def test_no_name_leads_to_where_clouds_tell_secrets(
    monkeypatch: pytest.MonkeyPatch, address: str, is_relayed: bool
) -> None:
    if is_relayed:
        monkeypatch.setenv(RELAYED, "1")
    resolve_to(monkeypatch, address)
    with pytest.raises(DatabaseAwayError, match="leads to no address that a name may lead to"):
        addresses_of("db.example.com", 5432)
    resolve_to(monkeypatch, address, "10.1.2.3")
    assert addresses_of("db.example.com", 5432) == ["10.1.2.3"]


def test_a_name_leads_to_this_machine_where_a_relay_has_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.1.0.1")
    with pytest.raises(DatabaseAwayError, match=r"127\.1\.0\.1"):
        addresses_of("db.example.com", 5432)
    monkeypatch.setenv(RELAYED, "1")
    assert addresses_of("db.example.com", 5432) == ["127.1.0.1"]


def test_an_address_leads_to_itself() -> None:
    assert addresses_of("127.0.0.1", 5432) == ["127.0.0.1"]


def test_without_an_authority_no_password_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(tmp_path))
    (tmp_path / "warehouse.json").write_text('{"user": "ann", "password": "pa55"}')
    with socket.create_server(("127.0.0.1", 0)) as listening:
        database = Database.model_validate(
            {
                "type": "postgresql",
                "host": "127.0.0.1",
                "port": listening.getsockname()[1],
                "database": "plant",
                "table": "machines",
                "credentialsSecret": "warehouse",
            }
        )
        with pytest.raises(AccessError, match=r"no entry ca\.crt"), transaction(database, "test"):
            pytest.fail("there is no connection")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
