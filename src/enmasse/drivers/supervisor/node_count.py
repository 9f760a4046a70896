"""The number of nodes of an installation, which is kept in its data directory.

Nodes are ``node-0``, ``node-1`` and so on. One alone is not written down, so an installation that never had several
is as it was before there could be.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enmasse.drivers.data_directory import Layout

MAX_NODES: Final = 64
"""More than a machine has cores for."""

_MOST_NAMED = 10

_HOMES = """
SELECT json_extract(body, '$.status.home'), namespace || '/' || name FROM objects
WHERE kind = 'AddressSpace' AND json_extract(body, '$.status.home') IS NOT NULL
"""


def choose_nodes(layout: Layout, count: int | None) -> list[str]:
    """Return the names of the nodes to run, and keep how many they are.

    Args:
        layout: the layout of the directory that keeps the number.
        count: the number; None: as many as there were, and one at first.

    Raises:
        ConfigError: the number cannot be read or written, or spaces are at home on other nodes.
    """
    kept = _kept(layout)
    chosen = kept if count is None else count
    if not 0 < chosen <= MAX_NODES:
        raise ConfigError(f"{chosen} nodes: from 1 to {MAX_NODES} are expected")
    names = _names(chosen)
    if layout.node_count.exists():
        _require_homes(layout.store, names)
    if chosen != kept:
        replace_file(layout.node_count, (json.dumps({"nodes": chosen}) + "\n").encode())
    return names


def kept_nodes(layout: Layout) -> list[str]:
    """Return the names of the nodes that an installation has.

    Raises:
        ConfigError: their number cannot be read.
    """
    return _names(_kept(layout))


def _names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(count)]


def _kept(layout: Layout) -> int:
    try:
        return int(json.loads(layout.node_count.read_text())["nodes"])
    except FileNotFoundError:
        return 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{layout.node_count} cannot be read as the number of nodes: {error!r}") from None


def _require_homes(store: Path, nodes: Sequence[str]) -> None:
    """Check that the home of each space is among the nodes.

    Raises:
        ConfigError: it is not.
    """
    elsewhere: dict[str, list[str]] = {}
    for home, space in _homes(store):
        if home not in nodes:
            elsewhere.setdefault(home, []).append(space)
    if not elsewhere:
        return
    told = []
    for home, spaces in sorted(elsewhere.items()):
        more = f" and {len(spaces) - _MOST_NAMED} more" if len(spaces) > _MOST_NAMED else ""
        told.append(f"{home} has {', '.join(sorted(spaces)[:_MOST_NAMED])}{more}")
    raise ConfigError(
        f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} would leave out spaces that are at home on others: "
        f"{'; '.join(told)}. Start as many nodes as before, and delete these spaces first"
    )


def _homes(store: Path) -> list[tuple[str, str]]:
    """Return the home and the name of each space that has a home."""
    if not store.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
            return database.execute(_HOMES).fetchall()
    except sqlite3.Error:  # control says what is wrong with it, and does not start
        return []
