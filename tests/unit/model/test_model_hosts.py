"""Which hosts may stand for a space, and whose domains they are in."""

from __future__ import annotations

import pytest

from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.names import ROUTE_DOMAINS, domain_problem, granted_domains, host_problem, is_granted
from enmasse.model.schema.objects import decode

NOBODYS = [
    "localhost", "LocalHost", "localhost.", "x.localhost", "localhost.localdomain", "broker.localdomain",
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.01", "127.0.0.0x1", "10.0.0.256",
    "::1", "[::1]", "::ffff:127.0.0.1", "fe80::1%eth0", "127.0.0.1.", "a.0x", "broker", "ip6-localhost", "*",
    "*.example.org", "mq.*", "mq.example.org.", "mq..example.org", ".example.org", "mq.example.org:5671",
    "mq example.org", "mq_1.example.org", "mq.ex\xe4mple.org", "\uff11\uff12\uff17.0.0.1", "mq\u3002example.org",
    f"{'a' * 64}.example.org", ".".join(["abc"] * 70), "mq.example.org/x", "a@b.example",
]  # fmt: skip


@pytest.mark.parametrize("host", NOBODYS)
def test_a_host_that_means_a_machine_or_everything_is_no_space_s(host: str) -> None:
    assert "expected a host name of the space alone" in str(host_problem(host))
    document = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "endpoints": [{"name": "a", "service": "messaging", "expose": {"type": "route", "routeHost": host}}]
        },
    }
    with pytest.raises(InvalidResourceError, match=r"spec\.endpoints\[0\]\.expose\.routeHost"):
        decode(document)


@pytest.mark.parametrize("host", ["mq.example.org", "MQ.Example.org", "a.b", "1.example.org", "xn--mq-eka.example"])
def test_a_name_with_a_domain_may_be_a_space_s(host: str) -> None:
    assert host_problem(host) is None


def test_the_machine_s_own_name_is_no_space_s() -> None:
    machine = {"broker", "broker.example.org"}
    assert "name of the machine" in str(host_problem("Broker.example.org", machine))
    assert host_problem("mq.example.org", machine) is None


@pytest.mark.parametrize(
    ("listed", "host", "granted"),
    [
        (None, "mq.example.org", False),
        ("", "mq.example.org", False),
        ("example.org", "mq.example.org", True),
        ("example.org", "example.org", True),
        ("example.org", "badexample.org", False),
        ("example.org", "example.org.evil.net", False),
        ("shop.net , Example.ORG,", "a.b.example.org", True),
        ("mq.example.org", "example.org", False),
        ("*", "anything.net", True),
    ],
)
def test_a_domain_covers_itself_and_the_names_below_it(listed: str | None, host: str, granted: bool) -> None:
    annotations = {} if listed is None else {ROUTE_DOMAINS: listed}
    assert is_granted(host, granted_domains(annotations)) == granted
    assert is_granted(host, granted_domains(annotations, is_everything=True)) == (granted or listed is None)


def test_what_is_no_list_of_domains_is_named() -> None:
    assert domain_problem("example.org, *") is None
    assert domain_problem("") is None
    assert "'*.example.org'" in str(domain_problem("example.org, *.example.org"))
    assert "'example.org shop.net'" in str(domain_problem("example.org shop.net"))
