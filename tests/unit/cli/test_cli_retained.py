"""The retained values of a space, listed and cleared in words; reading one is tested with a node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Cli = Callable[..., Any]


@pytest.fixture
def shop(cli: Cli, api: str) -> Cli:
    assert cli("create", "space", "shop", "--wait", "0").code == 0
    return cli


def test_values_are_listed_over_all_pages(shop: Cli) -> None:
    lines = shop("retained", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "ADDRESS", "BYTES", "AGE", "EXPIRES"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["lamps/1", "lamps", "7"],
        ["lamps/2", "lamps", "7"],
        ["[red]lamps[/red]", "lamps", "7"],
    ]
    assert [value["name"] for value in json.loads(shop("retained", "list", "lamps/2", "-o", "json").out)] == [
        "lamps/2"
    ]


def test_a_list_ends_where_it_is_to_and_says_so(shop: Cli) -> None:
    result = shop("retained", "list", "--count", "1")
    assert len(result.out.splitlines()) == 2
    assert "these are the first 1; --count shows more" in result.err
    assert shop("retained", "list", "--count", "3").err == ""


def test_that_there_are_no_values_is_said(shop: Cli) -> None:
    assert shop("retained", "list", "lamps/9").err == "no name that matches 'lamps/9' has one\n"
    assert shop("retained", "clear", "#").out == "3 retained values cleared\n"
    assert shop("retained", "list").err == "there are no retained values\n"
    assert json.loads(shop("retained", "list", "-o", "json").out) == []


def test_values_are_cleared_by_name_or_pattern_and_counted(shop: Cli) -> None:
    assert shop("retained", "clear", "lamps/1").out == "1 retained value cleared\n"
    assert json.loads(shop("retained", "clear", "#", "-o", "json").out) == {"filter": "#", "count": 2}
    assert shop("retained", "clear").code == 2


def test_the_space_is_the_only_one_or_named(shop: Cli) -> None:
    assert shop("create", "space", "factory", "--wait", "0").code == 0
    result = shop("retained", "list")
    assert (result.code, "name one with --space: factory, shop" in result.err) == (2, True)
    assert shop("retained", "list", "--space", "shop").code == 0
    assert shop("retained", "list", "--space", "none").code == 3


@pytest.mark.parametrize("name", ["lamps/#", "+/1", "*"])
def test_a_pattern_is_no_name_of_one_value(shop: Cli, name: str) -> None:
    result = shop("retained", "get", name)
    assert (result.code, f"'{name}' is a pattern" in result.err) == (2, True)
