"""What can be done to the messages of an address, in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    Cli = Callable[..., Any]


@pytest.fixture
def shop(cli: Cli, api: str) -> Cli:
    """A space with a queue, a topic and a stream."""
    assert cli("create", "space", "shop", "--wait", "0").code == 0
    for name, kind in (("orders", "queue"), ("news", "topic"), ("clicks", "stream")):
        assert cli("create", "address", name, "--type", kind, "--wait", "0").code == 0
    return cli


@pytest.mark.parametrize("name", ["orders", "shop.orders"])
def test_an_address_is_named_as_applications_call_it_or_by_its_object(shop: Cli, name: str) -> None:
    assert shop("address", "purge", name).out == "1 message deleted from 'orders' in space shop\n"
    assert shop("address", "move", name, "late").out == "1 message moved from 'orders' to 'late' in space shop\n"


def test_the_count_is_told_to_programs(shop: Cli) -> None:
    told = shop("address", "move", "orders", "late", "--selector", "a = 1", "-o", "json").out
    assert json.loads(told) == {"address": "orders", "action": "move", "count": 1, "space": "shop"}


def test_what_the_node_refuses_is_told_with_its_reason(shop: Cli) -> None:
    result = shop("address", "purge", "orders", "--selector", "(")
    assert (result.code, result.err) == (1, "error: the selector is not understood at character 2\n")


def test_a_node_that_is_away_is_exit_code_4(shop: Cli) -> None:
    result = shop("address", "replay", "orders")
    assert (result.code, "not connected" in result.err) == (4, True)


@pytest.mark.parametrize("action", [["purge"], ["move"], ["replay"], ["browse"]])
def test_what_stores_nothing_for_one_receiver_each_is_refused(shop: Cli, action: list[str]) -> None:
    more = ["orders"] if action == ["move"] else []
    result = shop("address", *action, "news", *more)
    assert (result.code, "its subscriptions do" in result.err) == (2, True)


def test_a_stream_is_not_purged_nor_selected_from(shop: Cli) -> None:
    purge = shop("address", "purge", "clicks")
    assert (purge.code, "its retention deletes what is old" in purge.err) == (2, True)
    browse = shop("address", "browse", "clicks", "--selector", "a = 1")
    assert (browse.code, "a stream has no selectors" in browse.err) == (2, True)


def test_an_address_that_is_not_there_is_not_found(shop: Cli) -> None:
    result = shop("address", "purge", "nowhere")
    assert (result.code, "there is no Address 'nowhere'" in result.err) == (3, True)


def test_an_address_of_two_objects_is_read_as_the_one_that_counts_and_deleted_by_its_objects_name(
    shop: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(
        "apiVersion: enmasse.io/v1beta1\nkind: Address\nmetadata: {name: shop.zz}\n"
        "spec: {address: orders, type: queue}\n"
    )
    assert shop("apply", "-f", str(file)).code == 0
    assert shop("get", "address", "orders", "-o", "name").out == "address/shop.orders\n"
    refused = shop("delete", "address", "orders")
    assert (refused.code, refused.err) == (
        2,
        "error: address orders is declared several times: give one of shop.orders, shop.zz\n",
    )
