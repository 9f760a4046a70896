"""explain, events and import, against a real API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]


def test_explain_shows_fields_with_types_texts_and_choices(cli: Cli) -> None:
    shown = cli("explain", "address.spec")
    assert shown.code == 0
    assert "FIELD:    spec <Object>" in shown.out
    assert "address <string> -required-" in shown.out
    assert "One of anycast, multicast, queue" in shown.out


def test_explain_goes_into_lists_and_to_the_bottom(cli: Cli) -> None:
    shown = cli("explain", "addr.spec.forwarders", "--recursive").out
    assert "forwarders <[]Object>" in shown
    assert "remoteAddress <string> -required-" in shown


def test_explain_names_the_fields_there_are(cli: Cli) -> None:
    refused = cli("explain", "address.spec.colour")
    assert refused.code == 3
    assert "has no field 'colour'; there are address, type" in refused.err


@pytest.mark.usefixtures("api")
def test_two_files_become_objects(cli: Cli, tmp_path: Path) -> None:
    addresses, flavors = tmp_path / "addresses.json", tmp_path / "flavors.json"
    stored = {"store_and_forward": True, "multicast": False, "flavor": "vanilla", "group_id": "g"}
    addresses.write_text(json.dumps({"orders": stored, "news": {"store_and_forward": False, "multicast": True}}))
    flavors.write_text(json.dumps({"vanilla": {"templateName": "queue-persisted"}}))
    arguments = ("import", str(addresses), "--flavors", str(flavors), "--space", "shop")
    written = cli(*arguments)
    assert (written.code, "group 'g' is kept" in written.err) == (0, True)
    applied = cli(*arguments, "--apply")
    assert "address/shop.orders created" in applied.out
    again = cli("apply", "-f", "-", stdin=written.out.encode())
    assert again.code == 0
    assert "created" not in again.out
    refused = cli("import", str(tmp_path / "nowhere.json"), "--space", "shop")
    assert refused.code == 3


@pytest.mark.usefixtures("api")
def test_events_of_nothing_are_none(cli: Cli) -> None:
    assert "There are no events in namespace default." in cli("events").err
    refused = cli("events", "shop")
    assert (refused.code, "expected KIND/NAME" in refused.err) == (2, True)
