"""The link between a node and the device registry of the control process.

Over the administrator's socket the control process receives from ``$devices``, where the node asks and tells, and
sends to ``$registry``, where it answers and tells. Both are messages with one text of JSON.

To the control process:
    ``{"ask": N, "what": "credentials" | "device" | "review" | "store" | "provision" | "usage", ...}``: a question
    with a number;
    ``{"notes": [[what, tenant, device, time_ms], ...]}``: what has happened, of which some may be missing: a device
    ``connected`` or ``disconnected``, was ``seen``, is ``listening`` for commands, or is ``present``, as it was when
    the control process came.
To the node:
    ``{"answer": N, "found": {...} | null, "password-cost": ROUNDS}``, the last of credentials alone, or
    ``{"answer": N, "error": TEXT}``;
    ``{"tenant": {"id": ..., "space": ..., "document": {...}, "password-cost": ROUNDS}}``, ``{"gone": TENANT}``,
    ``{"only": [TENANT, ...]}``: a tenant, with what the check of a wrong password of its devices costs at most, one
    that is no more, and all that there are;
    ``{"changed": [TENANT, DEVICE, ...]}``: devices, or with an empty id any of the tenant's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.space import Service, Space
from enmasse.node.devices.directory import ANSWER_S
from enmasse.node.devices.tenants import Tenant

if TYPE_CHECKING:
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.delivery import Consumer, ConsumerPort
    from enmasse.node.devices.directory import Directory

ASKED, TOLD = "$devices", "$registry"

MAX_NOTES: Final = 20_000
NOTES_S: Final = 0.1
"""Notes wait so long for others that go with them."""

_NOTES_AT_ONCE: Final = 1_000

Answered = Callable[[dict[str, Any] | None], None]


class _Questions(Anycast):
    """The address from which the control process receives."""

    came: Callable[[], None]

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach the control process."""
        consumer = super().attach_consumer(port, options)
        self.came()
        return consumer


class RegistryLink:
    """The node's side of the link.

    Args:
        admin: the administrator's space.
    """

    def __init__(self, admin: Space) -> None:
        self.directory: Directory
        self.core = admin.core
        self._questions = _Questions(admin.core, ASKED)
        self._questions.came = self._came
        self.came: Callable[[], None] = lambda: None
        """Called when the control process has come, perhaps back."""
        admin.add(self._questions)
        admin.add(Service(admin.core, TOLD, self._serve))
        self._asked: dict[int, Answered] = {}
        self._number = 0
        self._notes: dict[tuple[str, str, str], int] = {}
        self._are_notes_due = False

    @property
    def is_up(self) -> bool:
        """True if the control process receives."""
        return bool(self._questions.consumers)

    def _came(self) -> None:
        # It may have been away, and have had changes that it could not tell.
        self.directory.doubt()
        self.came()

    def ask(self, question: dict[str, Any], answered: Answered) -> bool:
        """Ask the control process; return false if it cannot be asked now."""
        if not self.is_up:
            return False
        self._number += 1
        number = self._number
        self._asked[number] = answered
        self._send({"ask": number, **question})

        def late() -> None:
            waiting = self._asked.pop(number, None)
            if waiting is not None:
                waiting(None)

        self.core.call_later(ANSWER_S, late)
        return True

    def note(self, what: str, tenant: str, device: str) -> None:
        """Tell the control process of something; the latest of its kind of each device is told."""
        key = (what, tenant, device)
        if key not in self._notes and len(self._notes) >= MAX_NOTES:
            return
        self._notes.pop(key, None)  # they are told in the order of the latest: what was last is what counts
        self._notes[key] = self.core.wall_us // 1000
        if not self._are_notes_due:
            self._are_notes_due = True
            self.core.call_later(NOTES_S, self._send_notes)

    def _send_notes(self) -> None:
        self._are_notes_due = False
        notes, self._notes = self._notes, {}
        if not self.is_up:
            return
        rows = [[*key, time_ms] for key, time_ms in notes.items()]
        for at in range(0, len(rows), _NOTES_AT_ONCE):
            self._send({"notes": rows[at : at + _NOTES_AT_ONCE]})

    def _send(self, document: dict[str, Any]) -> None:
        self._questions.offer(encode_message(json.dumps(document)))

    def _serve(self, payload: bytes) -> None:
        try:
            document = json.loads(Sections(payload).body)
        except (RemoteError, TypeError, ValueError):
            return
        if "answer" in document:
            answered = self._asked.pop(document["answer"], None)
            if answered is not None:
                answered(document)
        elif "tenant" in document:
            given = document["tenant"]
            cost = given.get("password-cost", 0)
            self.directory.put_tenant(Tenant(given["id"], given["space"], given["document"], cost))
        elif "gone" in document:
            self.directory.remove_tenant(document["gone"])
        elif "only" in document:
            self.directory.keep_tenants(set(document["only"]))
        elif "changed" in document:
            tenant, *devices = document["changed"]
            self.directory.forget(tenant, *(() if "" in devices else devices))
