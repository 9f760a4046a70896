"""Writes ``docs/reference/tenancy.md``: run ``python -m tests.tenancy.tenancy_page``."""

from __future__ import annotations

from pathlib import Path

from tests.tenancy import ways_amqp, ways_api, ways_pipelines

__all__ = ["PAGE", "WAYS", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tenancy.md"

WAYS = (*ways_amqp.WAYS, *ways_api.WAYS)

SECTIONS = (
    ("Over AMQP", ways_amqp.WAYS),
    ("Over the API", ways_api.WAYS),
    ("With pipelines", (*ways_pipelines.PYTHON_WAYS, *ways_pipelines.SQL_WAYS, *ways_pipelines.REQUEST_WAYS)),
)

HEAD = """\
# What keeps tenants apart

Tenants share an installation and never see each other. Which space a connection belongs to is told
[here](limits.md#who-may-be-in-which-space), who may do what with the API [here](rbac.md).

Below is every way in which the tests have one tenant, red, try to reach what another, blue, has: both in one
installation and one node, with users, addresses, links and containers of the same names. After each attempt what
blue has, stores and is told must be what it was. This page is made from the tests, in
[tests/tenancy](../../tests/tenancy), by `python -m tests.tenancy.tenancy_page`.
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
