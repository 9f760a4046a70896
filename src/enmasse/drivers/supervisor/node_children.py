"""The nodes of an installation as its supervisor sees them: their processes, their journals, and who is open.

Several nodes share one process that checks passwords.

Rules:
1. A node is opened, by its *word* on its standard input, once ``endpoints.json`` names its new process ids, and what
   all nodes use is there.
2. All nodes accept from the same sockets. Clients that come while no node is open wait, for ``WAIT_S`` at most: then
   they are refused, until a node is open again, as clients may know other places to go to.
3. Several nodes hand connections over to each other. They, and the process that they share, know each other by a
   secret that is made anew at each start of the installation, and comes to each on its standard input alone: never in
   arguments, the environment or a file.
4. A node whose journal is gone is not started, is named with what can be done, and is started once the journal is
   there. The others serve meanwhile. All that there are having failed at their first start is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from enmasse.drivers.data_directory import make_private
from enmasse.drivers.supervisor.child import Child
from enmasse.drivers.supervisor.endpoints import Process
from enmasse.errors import ConfigError
from enmasse.net.connection_limiter import ConnectionLimits
from enmasse.net.shared_listener import no_counts
from enmasse.storage.presence import marker_path, require_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from enmasse.drivers.data_directory import Layout
    from enmasse.drivers.supervisor.child import Event
    from enmasse.drivers.supervisor.ports import ClientSockets

WAIT_S: Final = 10.0
"""A node is there again within two seconds, unless something is wrong with it; clients give up after ten or more."""


_SECRET_BYTES: Final = 32


def require_node_journal(layout: Layout, name: str) -> None:
    """Check that a node's journal is there if there ever was one.

    Raises:
        JournalMissingError: it is gone.
    """
    require_journal(str(layout.data / "nodes" / name / "journal"), marker_path(layout.data, name))


class NodeChildren:
    """The processes of all nodes.

    Args:
        names: the names of the nodes.
        arguments: those of every node.
        layout: the layout of the data directory.
        sockets: the sockets of the ports for clients.
        published: called when the processes that are to be in ``endpoints.json`` have become others.
        settled: called with the name of a node that listens, or is not started now.
        report: shows a sentence to the user.

    Attributes:
        children: the processes of the nodes, by their names.
        passwords: the process that checks passwords; None: the only node has its own.
    """

    def __init__(
        self,
        names: Sequence[str],
        arguments: Iterable[str],
        layout: Layout,
        sockets: ClientSockets,
        *,
        published: Callable[[], None],
        settled: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        self._published = published
        self._layout = layout
        self._settled = settled
        self._sockets = sockets
        self._processes: dict[tuple[str, str], int] = {}
        self._loaded: dict[str, int] = {}  # the process ids of nodes that wait to be opened
        self._awaited = {"control"}  # what is to be there before a node is opened
        self._failed: set[str] = set()  # the nodes that ended before they had ever listened
        self._open: set[str] = set()
        self._refusing: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._counts: int | None = None  # the memory in which several nodes tell how many connections they have
        descriptors = [each.fileno() for each in sockets.by_protocol.values()]
        common = ["--data", str(layout.data), "--supervised", *arguments]
        for protocol, each in sockets.by_protocol.items():
            common += ["--listen", f"{protocol}=fd:{each.fileno()}"]
        self._word: dict[str, object] = {"open": True}
        self.passwords: Child | None = None
        if len(names) > 1:
            self._counts = os.memfd_create("siblings")
            os.write(self._counts, no_counts(len(names)))
            descriptors.append(self._counts)
            make_private(layout.peers)
            common += ["--peers", str(layout.peers)]
            # All of them may have as many half-open connections as one alone: each has its share of those that come.
            common += ["--max-handshakes", str(-(-ConnectionLimits().max_handshakes // len(names)))]
            self._word["peers"] = secrets.token_hex(_SECRET_BYTES)
            self.passwords = self._passwords_of(layout, report)
        self.children: dict[str, Child] = {}
        for index, name in enumerate(names):
            own = ["--siblings", f"{self._counts}:{index}"] if len(names) > 1 else []
            admin = layout.admin_socket(name)
            make_private(admin.parent)
            self.children[name] = Child(
                name,
                [sys.executable, "-m", "enmasse", "node", "--name", name, "--admin", str(admin), *own, *common],
                log=layout.logs / f"{name}.log",
                on_end=partial(self._ended, name, index),
                on_event=partial(self.on_event, name),
                report=report,
                descriptors=descriptors,
                check=partial(self._check, name),
                is_needed=partial(self._is_last_hope, name),
            )

    @property
    def processes(self) -> list[Process]:
        """The processes that are to be in ``endpoints.json``: those of nodes that have been loaded."""
        return [
            Process(kind, name, self._processes[kind, name])
            for name in self.children
            for kind in ("node", "journal")
            if ("node", name) in self._processes and (kind, name) in self._processes
        ]

    @property
    def all(self) -> list[Child]:
        """The processes of the nodes, and what they share."""
        return [*([] if self.passwords is None else [self.passwords]), *self.children.values()]

    def _passwords_of(self, layout: Layout, report: Callable[[str], None]) -> Child:
        """Return the process that checks passwords for all nodes."""
        # The only node of an installation starts its own, with the first password.
        from enmasse.node.users.password_checker import PASSWORDS_SOCKET, PROCESS  # noqa: PLC0415

        def tell(_pid: int) -> None:
            passwords.send(str(self._word["peers"]))

        self._awaited.add("passwords")
        passwords = Child(
            "passwords",
            [sys.executable, "-m", PROCESS, "--listen", str(layout.peers / PASSWORDS_SOCKET)],
            log=layout.logs / "passwords.log",
            on_start=tell,
            on_event=lambda _event: self.open("passwords"),
            report=report,
            is_needed=lambda: False,
        )
        return passwords

    def open(self, there: str) -> None:
        """Open the nodes that are loaded, and from now on each that is, once all that they need is there.

        Args:
            there: what is there now: ``control``, as those who read of a node have to find the API, or ``passwords``.
        """
        self._awaited.discard(there)
        if not self._awaited:
            for name in list(self._loaded):
                self._open_loaded(name)

    async def stop(self, patience_s: float) -> None:
        """Stop all of them at once, in order or by force after ``patience_s`` seconds each."""
        self._is_stopping = True
        self._sockets.close()
        if self._refusing is not None:
            self._refusing.cancel()
        await asyncio.gather(*(child.stop(patience_s) for child in self.children.values()))
        if self.passwords is not None:
            await self.passwords.stop(patience_s)

    def on_event(self, name: str, event: Event) -> None:
        """Handle what a node says on its standard output."""
        match event:
            case {"event": "loaded", "pid": int(pid), "journal_pid": int(journal)}:
                self._processes["journal", name] = journal
                self._loaded[name] = pid
                if not self._awaited:
                    self._open_loaded(name)
            case {"event": "journal", "journal_pid": int(journal)}:
                self._processes["journal", name] = journal
                self._published()
            case {"event": "listening"}:
                self._settled(name)

    def _check(self, name: str) -> None:
        """Raise ``JournalMissingError`` if a node's journal is gone; everything else runs without that node."""
        try:
            require_node_journal(self._layout, name)
        except ConfigError:
            self._settled(name)
            raise

    def _ended(self, name: str, index: int) -> None:
        """Note that a node is not open any more: no other one leaves connections to it."""
        if self._counts is not None:
            os.pwrite(self._counts, no_counts(1), index * len(no_counts(1)))
        was_open = name in self._open
        self._open.discard(name)
        if was_open and not self._open and not self._is_stopping:
            self._refusing = asyncio.get_running_loop().call_later(WAIT_S, self._sockets.refuse)

    def _open_loaded(self, name: str) -> None:
        self._processes["node", name] = self._loaded.pop(name)
        self._published()
        self._open.add(name)
        if self._refusing is not None:
            self._refusing.cancel()
            self._refusing = None
        self.children[name].send(json.dumps(self._word))

    def _is_last_hope(self, name: str) -> bool:
        """Return true if a node that failed was the last one that had not."""
        self._failed.add(name)
        return len(self._failed) == len(self.children)
