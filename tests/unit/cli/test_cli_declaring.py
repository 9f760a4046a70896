"""apply, create, get, describe and delete, against a real API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from enmasse.cli.api_client import ApiClient
from enmasse.model.schema.kinds import MAX_IN_LIST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("api")

SPACE = "apiVersion: enmasse.io/v1beta1\nkind: AddressSpace\nmetadata: {name: shop}\n"
QUEUE = """apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders}
spec: {address: orders, type: queue}
"""


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.yaml"
    path.write_text(f"{QUEUE}---\n{SPACE}")
    return str(path)


def test_a_file_is_applied_spaces_first_and_again_without_effect(cli: Cli, shop: str) -> None:
    first = cli("apply", "-f", shop)
    assert (first.code, first.out) == (0, "addressspace/shop created\naddress/shop.orders created\n")
    assert cli("apply", "-f", shop).out == "addressspace/shop unchanged\naddress/shop.orders unchanged\n"


def test_a_changed_file_changes_the_object_and_keeps_foreign_labels(cli: Cli, tmp_path: Path, shop: str) -> None:
    labelled = tmp_path / "labelled.yaml"
    labelled.write_text(SPACE.replace("{name: shop}", "{name: shop, labels: {a: b}}"))
    cli("apply", "-f", str(labelled))
    assert cli("apply", "-f", shop).out.startswith("addressspace/shop unchanged")
    changed = tmp_path / "changed.yaml"
    changed.write_text(QUEUE.replace("type: queue", "type: queue, plan: standard-large-queue"))
    assert cli("apply", "-f", str(changed)).out == "address/shop.orders configured\n"
    labels = json.loads(cli("get", "space", "shop", "-o", "json").out)["metadata"]["labels"]
    assert labels == {"a": "b"}


def test_standard_input_and_directories_are_applied(cli: Cli, tmp_path: Path) -> None:
    assert cli("apply", "-f", "-", stdin=SPACE.encode()).out == "addressspace/shop created\n"
    directory = tmp_path / "many"
    directory.mkdir()
    (directory / "b.yml").write_text(SPACE)
    (directory / "a.json").write_text(json.dumps(yaml.safe_load(QUEUE)))
    (directory / "notes.txt").write_text("not for us")
    assert cli("apply", "-f", str(directory)).out == ("addressspace/shop unchanged\naddress/shop.orders created\n")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (QUEUE.replace("kind: Address", "kind: Adress"), "got 'Adress'; did you mean Address?"),
        (QUEUE.replace("type:", "typ:"), "document 2: spec.typ: unknown field; did you mean 'type'?"),
        (QUEUE.replace("orders, type", "7, type"), "document 2: spec.address: expected a string, got 7; put it"),
        (QUEUE.replace("spec: {", "spec: [{"), "not valid YAML: line"),
        (f"{QUEUE}metadata:\n\tlabels: {{}}\n", "column 1: a tab where YAML wants spaces; indent with spaces"),
    ],
)
def test_nothing_of_a_file_with_a_mistake_is_applied(cli: Cli, tmp_path: Path, broken: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(f"{SPACE}---\n{broken}")
    result = cli("apply", "-f", str(path))
    assert result.code == 1
    assert str(path) in result.err
    assert message in result.err
    assert json.loads(cli("get", "spaces", "-o", "json").out)["items"] == []


def test_nothing_is_applied_when_the_api_would_refuse_a_later_object(cli: Cli, tmp_path: Path, shop: str) -> None:
    cli("apply", "-f", shop)
    path = tmp_path / "change.yaml"
    path.write_text(f"{SPACE.replace('shop', 'other')}---\n{QUEUE.replace('type: queue', 'type: topic')}")
    result = cli("apply", "-f", str(path))
    assert result.code == 1
    assert "spec.type: cannot change from 'queue' to 'topic'" in result.err
    assert "nothing was changed" in result.err
    assert cli("get", "spaces", "-o", "name").out == "addressspace/shop\n"


def test_a_dry_run_changes_nothing(cli: Cli, shop: str) -> None:
    assert "addressspace/shop created (dry run)" in cli("apply", "-f", shop, "--dry-run").out
    assert cli("get", "spaces", "-o", "name").out == ""


def test_an_object_that_two_files_declare_differently_is_refused(cli: Cli, tmp_path: Path, shop: str) -> None:
    other = tmp_path / "zz.yaml"
    other.write_text(QUEUE.replace("queue", "topic"))
    result = cli("apply", "-f", shop, "-f", str(other))
    assert result.code == 1
    assert f"{other}: Address shop.orders is declared otherwise in {shop}" in result.err


def test_a_place_that_does_not_exist_is_not_found(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cli("apply", "-f", str(tmp_path / "nowhere.yaml")).code == 3
    assert cli("apply", "-f", str(tmp_path / "empty")).code == 3
    assert cli("apply", "-f", "-", stdin=b"# nothing\n").code == 2
    assert cli("apply", "-f", "-", stdin=b"\xff\xfe").code == 1


def test_a_namespace_is_filled_in_and_must_not_be_contradicted(cli: Cli) -> None:
    cli("apply", "-n", "team-a", "-f", "-", stdin=SPACE.encode())
    assert cli("get", "spaces", "-n", "team-a", "-o", "name").out == "addressspace/shop\n"
    elsewhere = SPACE.replace("{name: shop}", "{name: shop, namespace: team-b}")
    result = cli("apply", "-n", "team-a", "-f", "-", stdin=elsewhere.encode())
    assert (result.code, "contradicts --namespace team-a" in result.err) == (1, True)


def test_what_has_no_effect_yet_is_warned_of(cli: Cli) -> None:
    queue = QUEUE.replace("type: queue", "type: anycast, messageTtl: {maximum: 5}")
    result = cli("apply", "-f", "-", stdin=queue.encode())
    assert result.err.startswith("warning: shop.orders: spec.messageTtl has no effect: it is for messages that wait")


def test_spaces_and_addresses_are_created_from_words(cli: Cli) -> None:
    assert cli("create", "space", "shop", "--wait", "0").out == "addressspace/shop created\n"
    cli("create", "address", "Orders/EU", "--type", "stream", "--partitions", "3", "--wait", "0")
    arguments = ("create", "address", "reader", "-t", "subscription", "--topic", "news", "--max-consumers", "2")
    created = json.loads(cli(*arguments, "-o", "json", "--wait", "0").out)
    assert created["spec"] == {
        "address": "reader",
        "type": "subscription",
        "topic": "news",
        "subscription": {"maxConsumers": 2},
    }
    found = json.loads(cli("get", "address", "Orders/EU", "-o", "json").out)
    assert found["metadata"]["name"].startswith("shop.orders-eu.")
    assert (found["spec"]["address"], found["spec"]["partitions"]) == ("Orders/EU", 3)


def test_a_space_may_be_created_with_a_topic_for_any_name(cli: Cli) -> None:
    assert cli("create", "space", "shop", "--any-name", "--wait", "0").out.startswith("addressspace/shop created\n")
    (topic,) = json.loads(cli("get", "addresses", "-o", "json").out)["items"]
    assert (topic["spec"]["address"], topic["spec"]["type"]) == ("#", "topic")
    (space,) = json.loads(cli("get", "addressspaces", "-o", "json").out)["items"]
    assert space["spec"]["mqtt"] == {"undeliverable": "acknowledge"}


def test_a_second_space_is_created_with_a_warning_that_it_has_to_be_named_now(cli: Cli) -> None:
    first = cli("create", "space", "shop", "--wait", "0")
    second = cli("create", "space", "plant", "-n", "team-a", "--wait", "0")
    third = cli("create", "space", "third", "--wait", "0")
    assert "warning" not in first.err + third.err
    assert "name shop.default or plant.team-a" in second.err


def test_options_are_given_in_words(cli: Cli) -> None:
    cli("create", "space", "shop", "--wait", "0")
    words = ("--deadletter", "dead", "--expiry", "late", "--ttl", "1.5", "--max-bytes", "9", "--storage", "memory")
    created = json.loads(cli("create", "address", "q", "-t", "queue", *words, "-o", "json", "--wait", "0").out)
    assert created["spec"] == {
        "address": "q",
        "type": "queue",
        "deadletter": "dead",
        "expiry": "late",
        "messageTtl": {"maximum": 1_500},
        "limits": {"maxBytes": 9},
        "storage": "memory",
    }
    direct = ("-t", "anycast", "--fallback", "q", "-o", "json", "--wait", "0")
    assert json.loads(cli("create", "address", "d", *direct).out)["spec"]["fallback"] == "q"
    wrong = cli("create", "address", "r", "-t", "anycast", "--storage", "memory")
    assert (wrong.code, "spec.storage: only a queue, topic, subscription or deadletter has it" in wrong.err) == (
        1,
        True,
    )


def test_creating_says_when_it_cannot_be_used_yet(cli: Cli) -> None:
    result = cli("create", "space", "shop", "--wait", "0.1")
    assert (result.code, result.err) == (0, "warning: it cannot be used yet: not looked at yet\n")


def test_an_address_needs_a_space_that_is_clear(cli: Cli) -> None:
    none = cli("create", "address", "orders", "--type", "queue")
    assert (none.code, "enmasse create space NAME" in none.err) == (3, True)
    for name in ("a", "b"):
        cli("create", "space", name, "--wait", "0")
    several = cli("create", "address", "orders", "--type", "queue")
    assert (several.code, "name one with --space: a, b" in several.err) == (2, True)
    assert cli("create", "address", "orders", "-t", "queue", "-s", "b", "--wait", "0").code == 0
    assert cli("get", "addresses", "-o", "name").out == "address/b.orders\n"


def test_what_is_created_is_validated_and_exists_once(cli: Cli) -> None:
    wrong = cli("create", "space", "Shop")
    assert (wrong.code, "metadata.name" in wrong.err) == (1, True)
    cli("create", "space", "shop", "--wait", "0")
    again = cli("create", "space", "shop")
    assert (again.code, "exists already" in again.err) == (1, True)
    wrong = cli("create", "address", "orders", "--type", "quue")
    assert (wrong.code, "spec.type: expected one of anycast" in wrong.err) == (1, True)


def test_objects_are_shown_as_table_names_yaml_and_json(cli: Cli, shop: str) -> None:
    cli("apply", "-f", shop)
    table = cli("get", "addresses").out.splitlines()
    assert table[0].split() == ["NAME", "ADDRESS", "TYPE", "PLAN", "READY", "PHASE", "AGE"]
    assert table[1].split()[:3] == ["shop.orders", "orders", "queue"]
    assert "not looked at yet" in cli("get", "addr", "-o", "wide").out
    assert cli("get", "spaces", "-o", "name").out == "addressspace/shop\n"
    assert yaml.safe_load(cli("get", "addr", "orders", "-o", "yaml").out)["spec"]["type"] == "queue"
    listed = json.loads(cli("get", "addresses", "-o", "json").out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["shop.orders"]
    assert cli("apply", "-f", "-", stdin=json.dumps(listed).encode()).out == "address/shop.orders unchanged\n"


def test_plans_are_listed_from_the_operators_namespace(cli: Cli) -> None:
    assert "addressplan/standard-small-queue" in cli("get", "plans", "-o", "name").out
    assert "standard-medium" in cli("get", "spaceplans").out


def test_lists_are_narrowed_by_space_labels_and_namespace(cli: Cli) -> None:
    for name in ("a", "b"):
        cli("create", "space", name, "--wait", "0")
        cli("create", "address", "x", "-t", "queue", "-s", name, "--wait", "0")
    assert cli("get", "addresses", "--space", "b", "-o", "name").out == "address/b.x\n"
    assert cli("get", "addresses", "-l", "none=such").err == "There are no addresses in namespace default.\n"
    cli("create", "space", "c", "-n", "other", "--wait", "0")
    assert "other" in cli("get", "spaces", "-A").out
    assert cli("get", "addr", "x").code == 2


def test_an_object_is_described(cli: Cli, shop: str) -> None:
    cli("apply", "-f", shop)
    described = cli("describe", "address", "orders").out
    for words in ("Kind:       Address", "Name:       shop.orders", "  type: queue", "Conditions: none yet"):
        assert words in described


def test_what_has_become_of_an_object_is_described(cli: Cli, shop: str, api: str) -> None:
    cli("apply", "-f", shop)
    hook = {"apiVersion": "enmasse.io/v1beta1", "kind": "Webhook", "metadata": {"name": "shop.tell"}}
    spec = {"address": "orders", "url": "http://10.0.0.1/"}
    cli("apply", "-f", "-", stdin=json.dumps(hook | {"spec": spec}).encode())
    url = f"{api}/apis/enmasse.io/v1beta1/namespaces/default/webhooks/shop.tell"
    changed = httpx.get(url).json() | {"status": {"failed": 4, "lastError": "10.0.0.1 is not public"}}
    assert httpx.put(f"{url}/status", json=changed).status_code == 200
    described = cli("describe", "webhook", "shop.tell").out
    for words in ("Observed:", "  failed: 4", "  lastError: 10.0.0.1 is not public"):
        assert words in described


def test_objects_are_deleted_by_name_address_and_file(cli: Cli, shop: str) -> None:
    cli("apply", "-f", shop)
    assert cli("delete", "address", "orders").out == "address/shop.orders deleted\n"
    cli("apply", "-f", shop)
    assert cli("delete", "-f", shop).out == "address/shop.orders deleted\naddressspace/shop deleted\n"
    again = cli("delete", "-f", shop)
    assert (again.code, "addressspace/shop does not exist" in again.err) == (0, True)
    assert cli("delete", "space", "shop").code == 3
    assert cli("delete", "space", "shop", "--ignore-not-found").code == 0


def test_what_does_not_exist_is_not_found_with_what_does(cli: Cli, shop: str) -> None:
    cli("apply", "-f", shop)
    result = cli("get", "space", "shopp")
    assert result.code == 3
    assert result.err == "error: there is no AddressSpace 'shopp' in namespace default; there are shop\n"
    assert cli("describe", "address", "nope").code == 3


def addresses(tmp_path: Path, count: int, **spec: str) -> str:
    path = tmp_path / "addresses.json"
    items = [
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Address",
            "metadata": {"name": f"shop.a{number:03}"},
            "spec": {"address": f"a{number:03}", "type": "queue", **spec},
        }
        for number in range(count)
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def test_more_objects_than_one_request_writes_are_applied_in_order(cli: Cli, tmp_path: Path, shop: str) -> None:
    cli("apply", "-f", shop)
    many = 2 * MAX_IN_LIST + 1
    done = cli("apply", "-f", addresses(tmp_path, many))
    assert done.out.splitlines() == [f"address/shop.a{number:03} created" for number in range(many)]
    assert done.err == ""
    again = cli("apply", "-f", addresses(tmp_path, many)).out.splitlines()
    assert again == [f"address/shop.a{number:03} unchanged" for number in range(many)]


def test_what_another_one_writes_meanwhile_is_applied_one_by_one(
    cli: Cli, tmp_path: Path, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("apply", "-f", shop)
    cli("apply", "-f", addresses(tmp_path, 2))
    find_present = ApiClient.find_present

    def find_too_early(self: ApiClient, documents: list[dict[str, Any]]) -> dict[Any, Any]:
        present = find_present(self, documents)
        return {key: value for key, value in present.items() if value["metadata"]["name"] != "shop.a001"}

    monkeypatch.setattr(ApiClient, "find_present", find_too_early)
    done = cli("apply", "-f", addresses(tmp_path, 4, plan="standard-large-queue"))
    assert done.out.splitlines() == [
        "address/shop.a000 configured",
        "address/shop.a001 configured",
        "address/shop.a002 created",
        "address/shop.a003 created",
    ]


LAKE = """apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.lake}
spec: {builtin: {name: lake, parameters: {address: telemetry}}}
"""


def test_what_a_file_is_about_to_bring_is_not_warned_of(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(f"{LAKE}---\n{SPACE}")
    assert "space shop has no address 'telemetry' yet" in cli("apply", "-f", str(path)).err
    cli("delete", "pipeline", "shop.lake")
    stream = QUEUE.replace("orders", "telemetry").replace("queue", "stream")
    path.write_text(f"{LAKE}---\n{SPACE}---\n{stream}")
    done = cli("apply", "-f", str(path))
    assert (done.code, done.err) == (0, "")
