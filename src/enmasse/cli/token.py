"""``enmasse token``: tokens by which programs use the API."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from enmasse.cli.access import access_of
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table

__all__ = ["parse_period", "token"]

token = typer.Typer(no_args_is_help=True, help="Tokens by which programs use the API.")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@token.command("create")
def create(
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Whose it is; by default who has logged in.")
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.")] = "",
    valid_for: Annotated[
        str, typer.Option("--valid-for", metavar="TIME", help="Such as 12h or 90d; 0: until it is revoked.")
    ] = "90d",
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a token and print it, this one time.

    A request carries it as `Authorization: Bearer TOKEN`.
    """
    writer = Writer()
    seconds = parse_period(valid_for)
    with access_of(data, warn=writer.warn) as access:
        made = access.create_token(account, note, seconds)
    writer.say(made["token"])
    until = f"good until {made['expires']}" if made["expires"] else "good until it is revoked"
    writer.note(f"token {made['id']} of account {made['account']}, {until}; it is not shown again")


@token.command("list")
def list_tokens(data: Data = DEFAULT_DATA) -> None:
    """Show tokens: one's own, an administrator everybody's."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        found = access.tokens()
    rows = [
        [
            item["id"],
            item["account"],
            item["created"],
            item["expires"] or "never",
            item["lastUsed"] or "never",
            item["note"],
        ]
        for item in found
    ]
    writer.out.print(make_table(["ID", "ACCOUNT", "CREATED", "EXPIRES", "LAST USED", "NOTE"], rows))


@token.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `enmasse token list` shows it.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a token worth nothing, at once."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        access.revoke_token(token_id)
    writer.say(f"token {token_id} revoked")


def parse_period(text: str) -> int:
    """Return the seconds that a text such as ``12h`` stands for.

    Raises:
        UsageError: when it stands for nothing.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if found is None or (not found[2] and found[1] != "0"):
        raise UsageError(f"{text!r} is no period: a number with s, m, h or d is expected, such as 12h, or 0")
    return int(found[1]) * _UNITS.get(found[2], 0)
