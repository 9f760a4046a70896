"""The device registry without HTTP: what is refused, what is found, what is gone, and that nothing is left behind."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.errors import ConfigError
from enmasse.iot.bulk import read_csv, read_json_lines, write_csv
from enmasse.iot.documents import RegistryError, RegistryUnavailableError
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.search import read_query
from enmasse.iot.store import DeviceStore
from enmasse.iot.tenant_registry import Expected
from tests.unit.iot.conftest import PLANT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GREEN = "green.plant"


def refused(code: int, act: Callable[[], object]) -> str:
    """Why something is refused."""
    with pytest.raises(RegistryError) as caught:
        act()
    assert caught.value.code == code, caught.value
    return str(caught.value)


def ids(registry: DeviceRegistry, *parameters: tuple[str, str], key: str = PLANT) -> list[str]:
    return [item["id"] for item in registry.search_devices(key, read_query(parameters))[1]]


def where(field: str, value: str) -> tuple[str, str]:
    return "filterJson", f'{{"field": "{field}", "value": {value}}}'


def by(field: str, direction: str = "asc") -> tuple[str, str]:
    return "sortJson", f'{{"field": "{field}", "direction": "{direction}"}}'


@pytest.fixture
def fleet(registry: DeviceRegistry) -> DeviceRegistry:
    """Gateways `gw-1` and `gw-2` and three sensors."""
    for identity, document in {
        "gw-1": {},
        "gw-2": {"memberOf": ["hall"]},
        "s-1": {"via": "gw-1", "ext": {"brand": "Acme", "n": 1, "new": True}},
        "s-2": {"via": ["gw-1", "gw-9"], "enabled": False, "ext": {"brand": "ACME", "n": 2, "new": False}},
        "s-3": {"viaGroups": ["hall"], "ext": {"brand": "Ac[me", "n": 10}},
    }.items():
        registry.create_device(PLANT, identity, document, "me")
    return registry


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ([], ["gw-1", "gw-2", "s-1", "s-2", "s-3"]),
        ([where("/id", '"s-2"')], ["s-2"]),
        ([where("/id", '"s-?"')], ["s-1", "s-2", "s-3"]),
        ([where("/enabled", "true")], ["gw-1", "gw-2", "s-1", "s-3"]),
        ([where("/enabled", "false")], ["s-2"]),
        ([where("/via", '"gw-1"')], ["s-1", "s-2"]),
        ([where("/via", '"gw-*"'), where("/enabled", "true")], ["s-1"]),
        ([where("/viaGroups", '"hall"')], ["s-3"]),
        ([where("/memberOf", '"hall"')], ["gw-2"]),
        ([where("/ext/brand", '"Acme"')], ["s-1"]),
        ([where("/ext/brand", '"A*"')], ["s-1", "s-2", "s-3"]),
        ([where("/ext/brand", '"Ac[*"')], ["s-3"]),
        ([where("/ext/n", "1")], ["s-1"]),
        ([where("/ext/new", "true")], ["s-1"]),
        ([where("/ext/new", "1")], []),
        ([where("/ext/n", '"1"')], []),
        ([where("/status/created", '"2026-01-01T00:00:00Z"'), where("/id", '"s-1"')], ["s-1"]),
        ([by("/ext/n", "desc"), ("pageSize", "2")], ["s-3", "s-2"]),
        ([by("/enabled"), by("/id", "desc")], ["s-2", "s-3", "s-1", "gw-2", "gw-1"]),
        ([("pageSize", "2"), ("pageOffset", "3")], ["s-2", "s-3"]),
        ([("pageSize", "3"), ("pageOffset", "3")], ["s-2", "s-3"]),
        ([("pageSize", "1"), ("pageOffset", "3"), where("/enabled", "true")], ["s-3"]),
        ([("pageOffset", "5")], []),
        ([("pageOffset", "500")], []),
        ([("isGateway", "true")], ["gw-1", "gw-2"]),
        ([("isGateway", "false")], ["s-1", "s-2", "s-3"]),
        ([("pageSize", "0")], []),
    ],
)
def test_a_search_finds_what_its_filters_say_in_the_order_asked_for(
    fleet: DeviceRegistry, parameters: list[tuple[str, str]], found: list[str]
) -> None:
    assert ids(fleet, *parameters) == found


def test_the_total_of_a_search_is_of_all_pages(fleet: DeviceRegistry) -> None:
    assert fleet.search_devices(PLANT, read_query([("pageSize", "1")]))[0] == 5
    assert fleet.search_devices(PLANT, read_query([("pageSize", "1"), where("/via", '"gw-1"')]))[0] == 2
    fleet.update_device(PLANT, "gw-1", {"enabled": False}, "me")
    fleet.delete_device(PLANT, "gw-2")
    for value, count in (("true", 2), ("false", 2)):
        assert fleet.search_devices(PLANT, read_query([("pageSize", "0"), where("/enabled", value)]))[0] == count


@pytest.mark.parametrize(
    "parameters",
    [
        [("pageSize", "201")],
        [("pageSize", "-1")],
        [("pageOffset", "x")],
        [("isGateway", "yes")],
        [("filterJson", "{")],
        [("filterJson", "[" * 900)],
        [("filterJson", '{"field": "/a"}')],
        [("filterJson", '{"field": "a", "value": 1}')],
        [("filterJson", '{"field": "/a", "value": null}')],
        [("filterJson", '{"field": "/a", "value": Infinity}')],
        [("filterJson", '{"field": "/a", "value": NaN}')],
        [("filterJson", '{"field": "/a", "value": 1, "op": "gt"}')],
        [("filterJson", '{"field": "/a\\"b", "value": 1}')],
        [("filterJson", '{"field": "/a", "value": 1, "more": 1}')],
        [("sortJson", '{"field": "/a", "direction": "up"}')],
        [("sortJson", '{"field": "/a"}')] * 11,
    ],
)
def test_a_search_that_is_wrong_is_refused(parameters: list[tuple[str, str]]) -> None:
    refused(400, lambda: read_query(parameters))


def test_a_search_that_takes_too_long_is_ended_and_says_so(tmp_path: Path, registry: DeviceRegistry) -> None:
    lines = "\n".join(f'{{"id": "d-{n}"}}' for n in range(1000))
    registry.import_devices(PLANT, read_json_lines(lines), "fail", "me")
    with DeviceStore(tmp_path / "devices.db", read_s=0) as hasty:
        slow = DeviceRegistry(hasty, now=str, new_id=str, new_version=str)
        query = read_query([by(f"/ext/{n}") for n in range(10)])
        with pytest.raises(RegistryUnavailableError, match="takes longer"):
            slow.search_devices(PLANT, query)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"enabled": "yes"}, "enabled: expected true or false"),
        ({"colour": "red"}, "colour"),
        ({"via": ["a b"]}, "via"),
        ({"via": ["a"], "memberOf": ["g"]}, "memberOf"),
        ({"command-endpoint": {}}, "uri"),
        ([], "map"),
        ({"ext": {"a": float("inf")}}, "number"),
        ({"ext": {"a": "\ud800"}}, "surrogate"),
    ],
)
def test_a_device_that_is_wrong_is_refused_by_its_field(registry: DeviceRegistry, document: Any, said: str) -> None:
    assert said in refused(400, lambda: registry.create_device(PLANT, "a", document, "me"))


def test_what_is_too_large_or_too_deep_is_refused(registry: DeviceRegistry) -> None:
    deep: Any = {}
    for _ in range(20):
        deep = {"a": deep}
    refused(400, lambda: registry.create_device(PLANT, "a", {"ext": deep}, "me"))
    refused(413, lambda: registry.create_device(PLANT, "a", {"ext": {"a": "b" * 70_000}}, "me"))
    refused(400, lambda: registry.create_device(PLANT, "a/b", {}, "me"))
    refused(400, lambda: registry.create_device(PLANT, "..", {}, "me"))
    refused(400, lambda: registry.create_device(PLANT, "a" * 256, {}, "me"))


def test_a_change_may_say_which_version_it_expects(registry: DeviceRegistry) -> None:
    _, first = registry.create_device(PLANT, "a", {"ext": {"n": 1}}, "me")
    second = registry.update_device(PLANT, "a", {"ext": {"n": 2}}, "you", Expected((first,)))
    refused(412, lambda: registry.update_device(PLANT, "a", {}, "me", Expected((first,))))
    refused(412, lambda: registry.delete_device(PLANT, "a", Expected((first,))))
    document, version = registry.device(PLANT, "a")
    assert version == second != first
    assert document["ext"] == {"n": 2}
    assert document["status"]["last-user"] == "you"
    registry.delete_device(PLANT, "a", Expected(("x", second)))
    refused(404, lambda: registry.device(PLANT, "a"))


def test_a_status_that_is_sent_back_changes_nothing(registry: DeviceRegistry) -> None:
    registry.create_device(PLANT, "a", {"status": {"created": "1999"}}, "me")
    assert registry.device(PLANT, "a")[0]["status"]["created"] == "2026-01-01T00:00:00Z"


def test_limits_of_a_tenant_hold(registry: DeviceRegistry) -> None:
    limits = {"registration-limits": {"max-devices": 2, "max-credentials-per-device": 1}}
    registry.update_tenant(PLANT, limits)
    registry.create_device(PLANT, "a", {}, "me")
    done = registry.import_devices(PLANT, read_json_lines('{"id": "b"}\n{"id": "c"}'), "fail", "me")
    assert (done.created, [item["code"] for item in done.failed]) == (1, [403])
    refused(403, lambda: registry.create_device(PLANT, "d", {}, "me"))
    two = [{"type": "psk", "auth-id": name, "secrets": [{"key": "YQ=="}]} for name in "xy"]
    refused(403, lambda: registry.update_credentials(PLANT, "a", two))
    registry.delete_device(PLANT, "a")
    registry.create_device(PLANT, "d", {}, "me")


def test_tenants_of_two_namespaces_know_nothing_of_each_other(fleet: DeviceRegistry) -> None:
    fleet.create_tenant(GREEN, {})
    fleet.create_device(GREEN, "s-1", {"via": "gw-1"}, "me")
    psk = [{"type": "psk", "auth-id": "x", "secrets": [{"key": "YQ=="}]}]
    fleet.update_credentials(PLANT, "s-1", psk)
    fleet.update_credentials(GREEN, "s-1", psk)  # an auth-id is unique within a tenant alone
    assert ids(fleet, where("/via", '"gw-1"'), key=GREEN) == ["s-1"]
    assert ids(fleet, ("isGateway", "true"), key=GREEN) == []
    fleet.delete_devices(GREEN)
    assert len(ids(fleet)) == 5
    total, found = fleet.search_tenants(read_query([]), ["green"])
    assert (total, [item["id"] for item in found]) == (1, ["green.plant"])


def test_what_is_gone_leaves_no_row(fleet: DeviceRegistry, store: DeviceStore, tmp_path: Path) -> None:
    fleet.create_tenant(GREEN, {})
    for key in (PLANT, GREEN):
        psk = [{"type": "psk", "auth-id": "x", "secrets": [{"key": "YQ=="}]}]
        lines = json.dumps({"id": "x", "via": ["gw"], "credentials": psk})
        fleet.import_devices(key, read_json_lines(lines), "fail", "me")
    fleet.forget_namespace("blue")
    refused(404, lambda: fleet.tenant(PLANT))
    fleet.delete_devices(GREEN)
    assert fleet.search_devices(GREEN, read_query([])) == (0, [])
    fleet.delete_tenant(GREEN)
    with sqlite3.connect(tmp_path / "devices.db") as database:
        tables = ("tenants", "authorities", "proofs", "devices", "links", "credentials", "costs", "logins", "gone")
        for table in tables:
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    database.close()


def test_what_a_crash_has_left_is_removed_later_and_a_closed_file_is_refused(
    fleet: DeviceRegistry, store: DeviceStore
) -> None:
    with store.writing() as tables:  # as a deletion does before it removes the rows
        row = tables.tenant(PLANT)
        assert row is not None
        tables.remove_tenant(row.number)
    refused(404, lambda: fleet.device(PLANT, "s-1"))
    fleet.sweep(lambda: True)
    with store.reading() as tables:
        assert tables.device(row.number, "s-1") is not None
    fleet.sweep(lambda: False)
    with store.reading() as tables:
        assert tables.device(row.number, "s-1") is None
    store.close()
    for act in (lambda: fleet.tenant(PLANT), lambda: fleet.create_tenant(PLANT, {}), lambda: fleet.tenant(PLANT)):
        with pytest.raises(RegistryUnavailableError, match="closed"):
            act()


def test_an_alias_is_one_tenants(registry: DeviceRegistry) -> None:
    registry.update_tenant(PLANT, {"alias": "plant"})
    assert "alias" in refused(409, lambda: registry.create_tenant(GREEN, {"alias": "plant"}))
    registry.create_tenant(GREEN, {})
    refused(409, lambda: registry.create_tenant("plant", {}))
    registry.delete_devices(PLANT)  # which keeps the tenant's own
    refused(409, lambda: registry.update_tenant(GREEN, {"alias": "plant"}))
    refused(409, lambda: registry.create_tenant(PLANT, {}))


@pytest.mark.parametrize(
    "document",
    [
        {"adapters": []},
        {"adapters": [{"type": "mqtt"}, {"type": "mqtt"}]},
        {"alias": "Plant"},
        {"trusted-ca": [{"subject-dn": "CN=ca"}]},
        {"trusted-ca": [{"cert": "YQ=="}]},
        {"resource-limits": {"max-ttl": -2}},
        {"resource-limits": {"data-volume": {"max-bytes": 1}}},
        {"resource-limits": {"data-volume": {"effective-since": "yesterday"}}},
        {"registration-limits": {"max-devices": True}},
        {"tracing": {"sampling-mode": "some"}},
    ],
)
def test_a_tenant_that_is_wrong_is_refused(registry: DeviceRegistry, document: Any) -> None:
    refused(400, lambda: registry.create_tenant(GREEN, document))


def test_a_line_that_is_wrong_holds_up_no_other(fleet: DeviceRegistry) -> None:
    lines = [
        '{"id": "n-1", "via": ["gw-1"]}',
        '{"id": "s-1"}',
        '{"id": "n-1"}',
        '{"id": "n-2", "enabled": 1}',
        '{"id": "n-3", "id": "n-4"}',
        "nothing",
        "[" * 5000,
        '"n-5"',
        '{"id": "\\ud800"}',
        '{"id": "n-6", "credentials": [{"type": "psk", "auth-id": "x", "secrets": [{"key": "YQ=="}]}]}',
        '{"id": "n-7", "credentials": [{"type": "psk", "auth-id": "x", "secrets": [{"key": "YQ=="}]}]}',
        "",
        '{"id": "n-8"}',
    ]
    done = fleet.import_devices(PLANT, read_json_lines("\n".join(lines)), "fail", "me").to_dict()
    assert (done["created"], done["updated"]) == (3, 0)
    codes = {item["line"]: item["code"] for item in done["failed"]}
    assert codes == {2: 409, 3: 409, 4: 400, 5: 400, 6: 400, 7: 400, 8: 400, 9: 400, 11: 409}
    assert ids(fleet, where("/id", '"n-*"')) == ["n-1", "n-6", "n-8"]
    refused(413, lambda: read_json_lines("{}\n" * 1001))


def test_devices_that_are_there_are_replaced_or_left(fleet: DeviceRegistry) -> None:
    csv = "id,via,enabled\ns-1,gw-2 gw-3,false\nn-1,,\n"
    done = fleet.import_devices(PLANT, read_csv(csv), "skip", "me")
    assert (done.created, done.skipped) == (1, 1)
    done = fleet.import_devices(PLANT, read_csv(csv), "replace", "me")
    assert (done.created, done.updated) == (0, 2)
    assert fleet.device(PLANT, "s-1")[0]["via"] == ["gw-2", "gw-3"]
    assert ids(fleet, where("/via", '"gw-1"')) == ["s-2"]
    assert ids(fleet, where("/via", '"gw-3"'), where("/enabled", "false")) == ["s-1"]
    written = b"".join(write_csv(some, with_head=True) for some in fleet.all_devices(PLANT)).decode()
    assert "s-1,false,gw-2 gw-3\n" in written
    assert fleet.import_devices(PLANT, read_csv(written), "replace", "me").updated == 6


def test_an_id_that_a_spreadsheet_would_compute_is_written_as_a_text_and_read_as_it_was(
    registry: DeviceRegistry,
) -> None:
    lines = ['{"id": "=1:2", "via": ["-gw"]}', '{"id": "-3", "enabled": false}', '{"id": "s-1"}']
    assert registry.import_devices(PLANT, read_json_lines("\n".join(lines)), "fail", "me").created == 3
    written = b"".join(write_csv(some, with_head=True) for some in registry.all_devices(PLANT)).decode()
    assert sorted(written.splitlines()) == ["'-3,false,", "'=1:2,true,'-gw", "id,enabled,via", "s-1,true,"]
    done = registry.import_devices(PLANT, read_csv(written), "replace", "me")
    assert (done.updated, done.failed) == (3, [])
    assert registry.device(PLANT, "=1:2")[0]["via"] == ["-gw"]


@pytest.mark.parametrize("text", ["", "name\na", "id,id\na,b", "id,colour\na,b", 'id\n"a'])
def test_csv_without_known_columns_is_refused(text: str) -> None:
    refused(400, lambda: read_csv(text))


def test_a_line_of_csv_that_is_wrong_says_so(registry: DeviceRegistry) -> None:
    done = registry.import_devices(PLANT, read_csv("id,enabled\na,maybe\nb\n,true\nc,TRUE\n"), "fail", "me")
    assert [(item["line"], item["code"]) for item in done.failed] == [(2, 400), (3, 400), (4, 400)]
    assert done.created == 1


def test_a_file_of_a_newer_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at as one" * 100)
    with pytest.raises(ConfigError, match="cannot be opened"):
        DeviceStore(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "new.db") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="newer version"):
        DeviceStore(tmp_path / "new.db")
