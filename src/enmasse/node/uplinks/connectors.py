"""The connectors of a node's spaces, as its management is told of them, and what they carry at the moment.

Of a space's attribute ``connectors`` each entry is one connector by its name: ``servers`` (``host`` and ``port`` of
each, the preferred one first), ``patterns`` of the addresses that are reached there, and what ``Remote`` reads of all
servers alike (``remote``). ``origins`` is not ours: control finds there of which Secrets the secrets are.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from enmasse.messaging.relay.receivers import RelayConsumer
from enmasse.messaging.relay.relay import Relay
from enmasse.messaging.relay.senders import RelayProducer
from enmasse.node.patterns import reach_of
from enmasse.node.uplinks.remote import remotes_of
from enmasse.node.uplinks.uplink import Together, Uplinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from enmasse.client.options import Options
    from enmasse.messaging.core import Core
    from enmasse.messaging.space import Space
    from enmasse.net.egress import Reach
    from enmasse.net.loop import Turn
    from enmasse.node.uplinks.uplink import Line

Given = dict[str, Any]


class _Connector:
    """A connector that is in effect."""

    def __init__(self, given: Given, relay: Relay, uplinks: Uplinks) -> None:
        self.given = given
        self.relay = relay
        self.uplinks = uplinks


class Connectors:
    """The connectors of a node.

    Args:
        core: the messaging core.
        turn: the turn of the loop that the node runs on.
        reach: the places to which the operator lets connectors go.
        installation: returns the part of our container's name that is the same for all spaces.
        changed: called when the state of a connector has changed.
    """

    def __init__(
        self, core: Core, turn: Turn, reach: Reach, installation: Callable[[], str], changed: Callable[[], None]
    ) -> None:
        self._changed = changed
        self._core = core
        self._turn = turn
        self._reach = reach
        self._installation = installation
        self._of_space: dict[str, dict[str, _Connector]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.line_made: Callable[[Line], None] = lambda _line: None
        """Called with each new connection of a connector."""

    def apply(self, space: Space, given: Mapping[str, Given]) -> None:
        """Have a space's connectors as they are given; what is the same as before goes on."""
        present = self._of_space.setdefault(space.name, {})
        for name in [name for name in present if name not in given]:
            self._end(space, name, present.pop(name))
        for name, whole in given.items():
            one = {key: value for key, value in whole.items() if key != "origins"}  # which nothing here depends on
            before = present.get(name)
            if before is None:
                present[name] = self._begin(space, name, one)
            elif before.given != one:
                earlier, before.given = before.given, one
                _let_reach(before.relay, one)
                before.uplinks.review(before.relay.reaches, before.relay.problem_of)
                if {**earlier, "patterns": one.get("patterns")} != one:
                    before.uplinks.renew(self._servers(space, one))
        if not present:
            del self._of_space[space.name]

    def space_closed(self, space: Space) -> None:
        """End the connectors of a space that is deleted."""
        for name, connector in self._of_space.pop(space.name, {}).items():
            self._end(space, name, connector)

    async def stop(self) -> None:
        """Close all connections, in order."""
        found = [connector.uplinks.close() for of in self._of_space.values() for connector in of.values()]
        self._of_space.clear()
        await asyncio.gather(*found, *self._closing, return_exceptions=True)

    def lines(self) -> Iterator[Line]:
        """Iterate over the connections of all connectors."""
        for of in self._of_space.values():
            for connector in of.values():
                yield from connector.uplinks.lines

    def status(self, space: str) -> list[dict[str, Any]]:
        """Return what is known of a space's connectors."""
        return [_status(name, connector) for name, connector in self._of_space.get(space, {}).items()]

    def _begin(self, space: Space, name: str, given: Given) -> _Connector:
        mark = f"{self._installation() or space.uid}/{space.uid}/{name}"
        servers = self._servers(space, given)
        others = self._of_space[space.name].values()
        together = next((each.uplinks.together for each in others), None) or Together(space.usage)
        uplinks = Uplinks(f"{space.name}/{name}", servers, self._turn, self._changed, mark, together)
        relay = Relay(self._core, name, uplinks, lambda _name: False, space.usage)
        uplinks.line_made = self._line_made
        _let_reach(relay, given)
        space.add_connector(relay)
        return _Connector(given, relay, uplinks)

    def _line_made(self, line: Line) -> None:
        self.line_made(line)

    def _end(self, space: Space, name: str, connector: _Connector) -> None:
        space.connectors.pop(name, None)
        space.version += 1
        task = asyncio.get_running_loop().create_task(connector.uplinks.close(), name=f"end of {name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _servers(self, space: Space, given: Given) -> Sequence[Callable[[], Options]]:
        # A subscription there is known by the container's name, which stays with the space.
        container = f"enmasse-{space.uid}"
        return [partial(remote.options, self._reach, container) for remote in remotes_of(given)]


def _let_reach(relay: Relay, given: Given) -> None:
    """Have the addresses reached that the connector has patterns for."""
    matchers = [reach_of(pattern) for pattern in given.get("patterns", ())]
    relay.reaches = lambda name: any(is_within(name) for is_within in matchers)
    relay.reaches_any = bool(matchers)


def _status(name: str, connector: _Connector) -> dict[str, Any]:
    relay, uplinks = connector.relay, connector.uplinks
    counts = relay.counts()
    senders = [end for end in relay.producers if isinstance(end, RelayProducer)]
    receivers = [end for end in relay.consumers if isinstance(end, RelayConsumer)]
    sent, received = uplinks.traffic
    return {
        "name": name,
        "connections": uplinks.connections,
        "problem": uplinks.problem,
        "reconnects": uplinks.reconnects,
        "senders": len(senders),
        "receivers": len(receivers),
        "creditGranted": counts["creditGranted"],
        "creditAsked": counts["creditAsked"],
        "unsettled": counts["unsettled"] + sum(end.unsettled for end in senders),
        "messagesIn": counts["messagesIn"],
        "messagesOut": counts["messagesOut"],
        "dropped": counts["dropped"],
        "bytesSent": sent,
        "bytesReceived": received,
        "silence": uplinks.silence_s,
    }
