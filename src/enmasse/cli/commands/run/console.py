"""``enmasse console``: the web pages of an installation."""

from __future__ import annotations

import html
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import operator_token
from enmasse.cli.contexts import read_contexts
from enmasse.cli.installation import find_url
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.drivers.data_directory import Layout, replace_file

if TYPE_CHECKING:
    from pathlib import Path


def console(
    data: Data = DEFAULT_DATA,
    print_link: Annotated[
        bool, typer.Option("--print", help="Print the link instead, which lets in whoever has it.")
    ] = False,
) -> None:
    """Open the console in the browser.

    In an installation of one's own the link logs in by itself; elsewhere the
    console asks who you are.
    """
    writer = Writer()
    if data == DEFAULT_DATA and (context := read_contexts().current) is not None:
        link = page = f"{context.server.rstrip('/')}/console/"
    else:
        link = console_link(data)
        page = link if print_link else _page_to(link, Layout(data).console_page)
    if print_link:
        writer.say(link)
    elif webbrowser.open(page):
        writer.say("The console is open in your browser.")
    else:
        writer.warn("there is no browser here: `enmasse console --print` prints the link for one elsewhere")
        raise typer.Exit(1)


def console_link(data: Path) -> str:
    """Return the link that opens the console of an installation of one's own.

    Raises:
        UnreachableError: when nothing has been started there.
    """
    token = operator_token(data)
    return f"{find_url(data, 'api')}/login?token={token}" if token else find_url(data, "console")


def _page_to(link: str, path: Path) -> str:
    """Write a page that leads to a link, and return its URL.

    Every user of the machine sees the arguments of a browser that is started, and only we can read the page.
    """
    text = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    replace_file(path, text.encode())
    return path.resolve().as_uri()
