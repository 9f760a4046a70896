"""Which space a connection means."""

from __future__ import annotations

import pytest

from enmasse.messaging.core import Core
from enmasse.messaging.space import Space
from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import Names, choose_space, named_space
from enmasse.testing.memory_storage import MemoryStorage


def raise_fault(_address: object, error: Exception) -> None:
    raise error


def spaces_named(*names: str) -> dict[str, Space]:
    core = Core(MemoryStorage(), lambda: None, raise_fault)
    return {name: Space(core, name, lambda: "id") for name in names}


TWO = ("default/shop", "default/factory")


@pytest.mark.parametrize("host", [None, "", "localhost", "127.0.0.1", "[::1]:5672", "broker.example.com"])
def test_a_host_that_names_nothing_means_the_only_space(host: str | None) -> None:
    spaces = spaces_named("default/shop")
    assert choose_space(spaces, login_host=host, user=None, open_host=host) is spaces["default/shop"]


@pytest.mark.parametrize("host", ["shop.default", "shop.default:5672", "shop.default.enmasse.local"])
def test_each_place_for_a_name_chooses_among_several(host: str) -> None:
    spaces = spaces_named(*TWO)
    shop = spaces["default/shop"]
    assert choose_space(spaces, login_host=host, user=None, open_host=None) is shop
    assert choose_space(spaces, login_host=None, user=None, open_host=host) is shop
    assert choose_space(spaces, login_host=None, user="jo@shop.default", open_host=None) is shop


def test_without_a_name_several_spaces_are_listed_in_the_refusal() -> None:
    with pytest.raises(TenancyError, match=r"factory\.default, shop\.default") as refused:
        choose_space(
            spaces_named(*TWO), login_host=None, user="jo", open_host="localhost", is_open=lambda name: name in TWO
        )
    assert refused.value.condition == "amqp:not-found"


def test_two_different_names_are_refused() -> None:
    with pytest.raises(TenancyError, match="two spaces") as refused:
        choose_space(spaces_named(*TWO), login_host="shop.default", user=None, open_host="factory.default")
    assert refused.value.condition == "amqp:not-allowed"


def test_an_unknown_name_below_the_domain_is_refused_even_with_one_space() -> None:
    with pytest.raises(TenancyError, match=r"other\.default"):
        choose_space(
            spaces_named("default/shop"), login_host=None, user=None, open_host="other.default.enmasse.local"
        )


def test_the_listener_s_default_is_meant_when_nothing_names_a_space() -> None:
    spaces = spaces_named(*TWO)
    chosen = choose_space(spaces, login_host=None, user=None, open_host="localhost", default="default/factory")
    assert chosen is spaces["default/factory"]
    with pytest.raises(TenancyError, match="does not exist"):
        choose_space(spaces, login_host=None, user=None, open_host=None, default="default/gone")


def test_no_space_at_all_says_how_to_create_one() -> None:
    with pytest.raises(TenancyError, match="enmasse create space"):
        choose_space({}, login_host=None, user=None, open_host=None)


def test_a_space_is_named_by_the_hosts_of_its_endpoints() -> None:
    spaces = spaces_named(*TWO)
    names = Names({"mq.example.org": "default/factory"}, "messaging.example.org")
    for host in (
        "mq.example.org",
        "MQ.example.org:5671",
        "factory.default.messaging.example.org",
        "Factory.Default.",
    ):
        chosen = choose_space(spaces, login_host=None, user=None, open_host=host, names=names)
        assert chosen is spaces["default/factory"]
    with pytest.raises(TenancyError, match="names no space"):
        choose_space(spaces, login_host=None, user=None, open_host="other.default.messaging.example.org", names=names)


def test_a_host_below_another_domain_names_nothing() -> None:
    spaces = spaces_named("default/shop")
    names = Names({}, "messaging.example.org")
    chosen = choose_space(spaces, login_host=None, user=None, open_host="x.y.enmasse.local", names=names)
    assert chosen is spaces["default/shop"]


@pytest.mark.parametrize("host", ["typo.default", "Typo.Default:5672", "shop.wrong", "shop.enmasse.local"])
@pytest.mark.parametrize("default", [None, "default/shop"])
def test_a_misspelt_name_does_not_mean_the_space_that_is_meant_without_one(host: str, default: str | None) -> None:
    spaces = spaces_named("default/shop", *([default.replace("shop", "factory")] if default else []))
    for login_host, open_host in ((host, None), (None, host)):
        with pytest.raises(TenancyError, match=r"<space>\.<namespace>\.enmasse\.local") as refused:
            choose_space(spaces, user=None, default=default, login_host=login_host, open_host=open_host)
        assert refused.value.condition == "amqp:not-found"
    with pytest.raises(TenancyError, match="names no space"):
        choose_space(spaces, login_host=None, open_host=None, user=f"jo@{host.partition(':')[0]}", default=default)


@pytest.mark.parametrize("host", ["typo", "typo.other", "Typo.Other:5672", "shop_1", "broker-2.lan."])
@pytest.mark.parametrize("default", [None, "default/shop"])
def test_an_unknown_short_name_is_misspelt_from_this_machine_and_may_be_any_host_s_from_elsewhere(
    host: str, default: str | None
) -> None:
    spaces = spaces_named("default/shop", *(["default/factory"] if default else []))
    here = Names(is_here=True)
    for login_host, open_host in ((host, None), (None, host)):
        chosen = choose_space(spaces, login_host=login_host, open_host=open_host, user=None, default=default)
        assert chosen is spaces["default/shop"]
        with pytest.raises(TenancyError, match="names no space") as refused:
            choose_space(spaces, login_host=login_host, open_host=open_host, user=None, default=default, names=here)
        assert refused.value.condition == "amqp:not-found"
        assert "default" not in refused.value.description
    named = choose_space(spaces, login_host=host, open_host=host, user="jo@shop.default", names=here)
    assert named is spaces["default/shop"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "[::1]:5672", "broker", "BROKER.lan.", "mq.org", "listed", "/", "a.b.c", "shop",
     "enmasse.local", "gateway", "gateway.lan", None, ""],
)  # fmt: skip
def test_known_names_and_what_cannot_be_a_space_s_name_nothing_from_this_machine_too(host: str | None) -> None:
    spaces = spaces_named("default/shop")
    names = Names(
        {"mq.org": "gone/space"},
        machine=frozenset({"broker", "broker.lan"}),
        aliases={"gateway"},
        is_called=lambda name: name == "listed",
        is_here=True,
    )
    chosen = choose_space(spaces, login_host=host, user=None, open_host=host, names=names)
    assert chosen is spaces["default/shop"]


def test_a_host_like_a_space_of_somebody_else_keeps_nobody_from_where_another_name_leads() -> None:
    spaces = spaces_named("default/shop", "evil/example")
    for user, port in (("jo@shop.default", None), ("jo", "default/shop")):
        chosen = choose_space(spaces, login_host="example.org", user=user, open_host="example.org", port_of=port)
        assert chosen is spaces["default/shop"]


def test_a_port_of_one_s_own_names_its_space_as_hosts_do() -> None:
    spaces = spaces_named(*TWO)
    names = Names({"mq.example.org": "default/factory"})
    for host in (None, "localhost", "10.1.2.3", "shop.default", "shop.default.enmasse.local"):
        assert named_space(spaces, host, port_of="default/shop", names=names) is spaces["default/shop"]
    for host in ("factory.default", "mq.example.org"):
        with pytest.raises(TenancyError, match="two spaces") as refused:
            named_space(spaces, host, port_of="default/shop", names=names)
        assert refused.value.condition == "amqp:not-allowed"
        assert "default/" not in refused.value.description
    with pytest.raises(TenancyError, match="does not exist any more"):
        named_space(spaces, None, port_of="default/gone")


def test_no_endpoint_s_host_stands_for_a_space_that_may_yet_be_made_or_for_this_machine() -> None:
    spaces = spaces_named("default/shop", "evil/thief")
    taken = dict.fromkeys(("late.default", "broker.lan", "broker"), "evil/thief")
    names = Names(taken, machine=frozenset({"broker", "broker.lan"}))
    with pytest.raises(TenancyError, match=r"late\.default"):
        named_space(spaces, "late.default", names=names)
    assert named_space(spaces, "broker.lan", "BROKER.lan.:5672", "broker", names=names) is None
