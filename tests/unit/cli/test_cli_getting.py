"""Choosing objects on the command line: several kinds, names, columns, order, changes and waiting."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import values_at
from enmasse.cli.errors import UsageError
from enmasse.cli.objects import ObjectWriter, parse_form
from enmasse.cli.output import Writer
from enmasse.model.schema.kinds import kind_named
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]


@pytest.fixture
def shop(api: str, cli: Cli) -> None:
    cli("create", "space", "shop", "--wait", "0")
    for name, kind in (("orders", "queue"), ("prices", "multicast"), ("Clicks/EU", "stream")):
        cli("create", "address", name, "-t", kind, "--wait", "0")


@pytest.mark.usefixtures("shop")
def test_several_kinds_are_listed_with_their_kind(cli: Cli) -> None:
    both = cli("get", "spaces,addr").out
    assert [line.split()[0] for line in both.splitlines() if line.strip()] == [
        "NAME",
        "addressspace/shop",
        "NAME",
        *sorted(f"address/{item['metadata']['name']}" for item in _items(cli, "addresses")),
    ]
    refused = cli("get", "spaces,addr", "shop")
    assert (refused.code, "write them as addressspace/shop" in refused.err) == (2, True)


@pytest.mark.usefixtures("shop")
def test_objects_are_named_with_their_kind_or_after_it(cli: Cli) -> None:
    names = {item["spec"]["address"]: item["metadata"]["name"] for item in _items(cli, "addresses")}
    chosen = [f"address/{names['orders']}", f"address/{names['prices']}"]
    assert cli("get", "address/orders", "addr/prices", "-o", "name").out.split() == chosen
    assert cli("get", "addresses", "orders", "prices", "-o", "name").out.split() == chosen
    assert cli("get", "address", "Clicks/EU", "-o", "name").out == cli("get", "address/Clicks/EU", "-o", "name").out
    assert f"Name:       {names['orders']}" in cli("describe", "address/orders").out
    deleted = cli("delete", "address/orders", "address/prices").out
    assert deleted.splitlines() == [f"{label} deleted" for label in chosen]
    mixed = cli("get", "address/Clicks/EU", "orders")
    assert (mixed.code, "expected KIND/NAME" in mixed.err) == (2, True)


@pytest.mark.usefixtures("shop")
def test_a_command_reads_no_authorities_where_nothing_is_encrypted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(
        ssl.SSLContext, "load_verify_locations", lambda _, *given, **named: read.append(named or given)
    )
    assert cli("get", "addresses").code == 0
    assert read == []


def _items(cli: Cli, kinds: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("get", kinds, "-o", "json").out)["items"]
    return found


@pytest.mark.usefixtures("shop")
def test_columns_and_order_are_paths(cli: Cli) -> None:
    table = cli(
        "get", "addr", "--sort-by", "{.spec.type}", "-o", "custom-columns=TYPE:.spec.type,NOT:.spec.nothing"
    ).out
    assert [line.split() for line in table.splitlines()] == [
        ["TYPE", "NOT"],
        ["multicast", "<none>"],
        ["queue", "<none>"],
        ["stream", "<none>"],
    ]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        ("$.a['c.d']", ["x"]),
        (".list[*].n", [5, 6]),
        (".list[-1].n", [6]),
        (".list[7].n", []),
        (".a.missing", []),
    ],
)
def test_a_path_leads_into_an_object(path: str, found: list[object]) -> None:
    assert values_at({"a": {"b": 1, "c.d": "x"}, "list": [{"n": 5}, {"n": 6}]}, path) == found


@pytest.mark.parametrize("path", ["", ".", ".a[", ".a[x]", "a..b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="no path into an object"):
        values_at({}, path)


@pytest.mark.parametrize("form", ["custom-columns", "custom-columns=", "custom-columns=NAME", "custom-columns=N:.a["])
def test_columns_that_are_none_are_refused(cli: Cli, form: str) -> None:
    assert cli("get", "spaces", "-o", form).code == 2


@pytest.mark.usefixtures("api")
def test_changes_follow_what_was_there(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli("create", "space", "shop", "--wait", "0")
    kind = kind_named("space")
    assert kind is not None
    written = ObjectWriter(Writer(), parse_form("table"), with_kind=False, with_namespace=False)
    rows: list[list[str]] = []
    with ApiClient.find(tmp_path / "data", warn=pytest.fail) as api:
        changes = api.watch(kind, "default")

        def write_next() -> str:
            some = next(changes)
            written.write_changes(kind, some)
            rows.extend(line.split() for line in capsys.readouterr().out.splitlines())
            return some[-1][0]

        write_next()
        cli("create", "space", "a-space-of-a-longer-name", "--wait", "0")
        write_next()
        cli("delete", "space", "shop")
        while write_next() != "DELETED":
            pass
    assert rows[0] == ["NAME", "TYPE", "PLAN", "READY", "PHASE", "AGE"]
    assert [(row[0], row[4]) for row in rows[1:3]] == [("shop", "Pending"), ("a-space-of-a-longer-name", "Pending")]
    assert (rows[-1][0], rows[-1][4]) == ("shop", "Deleted")


@pytest.mark.usefixtures("shop")
def test_waiting_ends_when_objects_have_come_so_far(cli: Cli) -> None:
    assert (
        cli("wait", "addr/orders", "addr/prices", "--for", "jsonpath={.spec.type}=queue", "--timeout", "0").code == 4
    )
    met = cli("wait", "addr/orders", "--for", "jsonpath={.spec.type}=queue")
    assert (met.code, met.out) == (0, "address/orders condition met\n")
    late = cli("wait", "spaces", "--timeout", "0.05")
    assert (late.code, late.err) == (
        4,
        "error: after 0.05 s still waiting for condition=Ready: addressspace/shop (not looked at yet)\n",
    )
    assert cli("wait", "space/other", "--for", "delete").out == "addressspace/other deleted\n"
    assert cli("wait", "space/other").code == 3
    unknown = cli("wait", "space/shop", "--for", "frob")
    assert (unknown.code, "cannot wait for 'frob'" in unknown.err) == (2, True)


@pytest.mark.usefixtures("api")
def test_applying_waits_if_asked_to(cli: Cli) -> None:
    space = b"apiVersion: enmasse.io/v1beta1\nkind: AddressSpace\nmetadata: {name: shop}\n"
    late = cli("apply", "-f", "-", "--wait", "0.05", stdin=space)
    assert (late.code, late.out) == (4, "addressspace/shop created\n")
    assert "after 0.05 s not everything is ready: addressspace/shop" in late.err
    # Nothing ever says of a namespace that it is ready.
    namespace = b"apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n"
    assert cli("apply", "-f", "-", "--wait", "0.05", stdin=namespace).code == 0


@pytest.mark.usefixtures("api")
def test_the_versions_of_both_sides_are_told(cli: Cli) -> None:
    assert cli("version").out == f"Client: {__version__}\nServer: {__version__}\n"


def test_without_an_installation_only_the_client_has_a_version(cli: Cli) -> None:
    alone = cli("version")
    assert (alone.code, alone.out) == (0, f"Client: {__version__}\n")
    assert "nothing runs in" in alone.err


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("get addr or", {"orders"}),
        ("get address/pri", {"address/prices"}),
        ("get spaces,sp", {"spaces,space", "spaces,spaces"}),
        ("delete spaces ", {"shop"}),
        ("describe space/", {"space/shop"}),
        ("get nonsense ", set()),
    ],
)
def test_a_shell_is_told_kinds_and_names(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str, found: set[str]
) -> None:
    line = f"enmasse {words}"
    monkeypatch.setenv("_ENMASSE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    assert found <= set(cli().out.split())
    assert bool(found) == bool(cli().out.split())
