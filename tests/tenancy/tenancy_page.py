"""Writes ``docs/reference/tenancy.md``: run ``python -m tests.tenancy.tenancy_page``."""

from __future__ import annotations

from pathlib import Path

from tests.tenancy import (
    ways_amqp,
    ways_api,
    ways_certificates,
    ways_console,
    ways_devices,
    ways_hosts,
    ways_http,
    ways_pipelines,
)

__all__ = ["PAGE", "WAYS", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tenancy.md"

WAYS = (*ways_amqp.WAYS, *ways_http.WAYS, *ways_api.WAYS, *ways_console.WAYS, *ways_devices.WAYS)

SECTIONS = (
    ("Over AMQP", ways_amqp.WAYS),
    ("Over HTTP", ways_http.WAYS),
    ("Over the API", ways_api.WAYS),
    ("By what the console asks", ways_console.WAYS),
    ("With devices and webhooks", ways_devices.WAYS),
    ("By certificates of devices", ways_certificates.WAYS),
    ("By host names", ways_hosts.WAYS),
    ("With pipelines", (*ways_pipelines.PYTHON_WAYS, *ways_pipelines.SQL_WAYS, *ways_pipelines.REQUEST_WAYS)),
)

HEAD = """\
# What keeps tenants apart

Tenants share an installation and never see each other. Which space a connection belongs to is told
[here](limits.md#who-may-be-in-which-space), who may do what with the API [here](rbac.md). A space has hosts beside
its own only where an operator [granted](../howto/endpoint-certificates.md#a-host-of-your-own) their domain; a host
never outranks a space's port or a user's realm, and a misspelt space is refused.

Below is every way in which the tests have one tenant, red, try to reach what another, blue, has: both in one
installation and one node, with users, addresses, links and containers of the same names. After each attempt what
blue has, stores and is told must be what it was. This page is made from the tests, in
[tests/tenancy](../../tests/tenancy), by `python -m tests.tenancy.tenancy_page`.

How much a tenant may have at all is bounded, too, by [quotas of its namespace](limits.md#what-a-namespace-may-have)
and by plans that are for some namespaces alone. Red goes against them in `test_tenancy_quotas.py`, many times at once
and by every verb that writes, and gets nothing that blue would miss.

What a pipeline reaches beside that is told [with the host of pipelines](pipeline-host.md#what-a-runner-reaches).
Requests that the platform makes for a tenant, to webhooks and to providers of identities that a space names, go to
[public addresses](webhooks.md#where-they-may-go) alone unless an operator lists others; `test_tenancy_requests.py`
tries every such way with every form of an address.

What clients come back to is [its owner's](users.md#what-a-user-leaves-behind), and goes with that one:
`test_tenancy_owners.py` leaves something behind by every protocol, has the owner go in every way, and comes as the
next of the name, also after the node has died in between.

Web pages of strangers, in a browser that stands in the same network, use neither the node nor the API by
[a name that they have turned to it](http.md#hosts); `test_tenancy_laptop.py` tries that in Chromium.
"""


def page() -> str:
    """The page as it should be."""
    out = [HEAD]
    for title, ways in SECTIONS:
        out.append(f"## {title}\n")
        out += [f"{number}. {way.words}" for number, way in enumerate(ways, start=1)]
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page())
