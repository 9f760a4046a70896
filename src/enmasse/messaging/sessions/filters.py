"""Topic filters of MQTT, and the part of an address's names that one of them stands for.

Rules:
1. ``+`` stands for one word, ``#`` at the end for any number of them, none included; each is a whole word, and
   nothing else is a wildcard [MQTT-4.7.1-1, 4.7.1-2].
2. A filter reaches a topic if it matches its name or one below it, and any other address by its whole name.
3. What it stands for within a topic is again a filter: the topic's name, and the rest of the filter below it.
4. A filter that begins with a wildcard matches no name that begins with ``$`` [MQTT-4.7.2-1]. No address has such a
   name, and the topic ``#`` takes none (``Space.find``).
"""

from __future__ import annotations

from typing import Final

from enmasse.messaging.errors import AttachError

ROOT: Final = "#"
"""The name of the topic that owns all names which no other address has."""

ONE: Final = "+"
REST: Final = "#"

_SHARE = "$share/"


class Filter:
    """A topic filter.

    Args:
        text: the text as the client wrote it, such as ``sensors/+/temperature`` or ``$share/workers/orders/#``.

    Attributes:
        group: the name of the group that shares it; empty if it is not shared.
        topic: the filter without the group.
        words: of ``topic``.
        is_wild: true if it stands for more than one name.

    Raises:
        AttachError: it is no topic filter.
    """

    __slots__ = ("group", "is_wild", "text", "topic", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.group, self.topic = _shared(text) if text.startswith(_SHARE) else ("", text)
        self.words = tuple(self.topic.split("/"))
        self.is_wild = ONE in self.words or REST in self.words
        if not self.topic or "\0" in text:
            raise _invalid(text)
        if any((ONE in word or REST in word) and word not in (ONE, REST) for word in self.words):
            raise _invalid(text)
        if REST in self.words[:-1]:
            raise _invalid(text)

    def part_of(self, name: str, *, owns_subtree: bool) -> str | None:
        """Return what it stands for at an address, as a filter; ``None`` if it does not reach the address.

        Args:
            name: the name of the address.
            owns_subtree: true if names below it belong to the address, too, as a topic's do.
        """
        if name == ROOT:
            return self.topic
        mine = self.words
        theirs = name.split("/")
        for at, word in enumerate(theirs):
            own = mine[at] if at < len(mine) else None
            if own == REST:
                return f"{name}/{REST}" if owns_subtree else name
            if own not in (word, ONE):
                return None
        rest = mine[len(theirs) :]
        if not rest:
            return name
        if owns_subtree:
            return "/".join((name, *rest))
        # ``a/#`` stands for ``a``, too.
        return name if rest == (REST,) else None


def _shared(text: str) -> tuple[str, str]:
    """Return the group and the filter of a shared subscription [MQTT-4.8.2-1, 4.8.2-2]."""
    group, slash, topic = text.removeprefix(_SHARE).partition("/")
    if not group or not slash or ONE in group or REST in group:
        raise _invalid(text)
    return group, topic


def _invalid(text: str) -> AttachError:
    return AttachError(
        "amqp:invalid-field",
        f"{text!r:.200} is no topic filter: + stands for one word, # for the rest of them at the end, "
        "and $share/GROUP/ may come before",
    )
