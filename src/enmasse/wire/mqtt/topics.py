"""Checks topic names and topic filters [MQTT 5.0, 4.7 and 4.8.2]."""

from __future__ import annotations

from enmasse.wire.mqtt.packets import PacketError, Reason

SHARE = "$share/"
"""The beginning of the filter of a shared subscription: then comes the name of its group, and after a ``/`` the
filter."""


def check_name(topic: str) -> None:
    """Require that a topic name has a character [MQTT-4.7.3-1], and no wildcard [MQTT-3.3.2-2].

    Raises:
        PacketError: it is no topic name.
    """
    if not topic:
        raise PacketError(Reason.TOPIC_NAME_INVALID, "a topic name has at least one character")
    if "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_NAME_INVALID, f"the topic name {topic!r:.100} has a wildcard")


def check_filter(text: str) -> None:
    """Require that a topic filter has a character, its wildcards at their places, and a group if it is shared.

    Raises:
        PacketError: it is no topic filter.
    """
    if not text:
        raise _invalid("a topic filter has at least one character")  # [MQTT-4.7.3-1]
    rest = text
    if text.startswith(SHARE):
        group, _, rest = text[len(SHARE) :].partition("/")
        if not group or "+" in group or "#" in group:  # [MQTT-4.8.2-1]
            raise _invalid(f"the name of the group in {text!r:.100} has a character, and no wildcard")
        if not rest:  # [MQTT-4.8.2-2]
            raise _invalid(f"a topic filter follows the name of the group in {text!r:.100}")
    at = rest.find("#")
    if at >= 0 and (at < len(rest) - 1 or (at and rest[at - 1] != "/")):  # [MQTT-4.7.1-1]
        raise _invalid(f"in {text!r:.100}, '#' is not the last level")
    at = rest.find("+")
    while at >= 0:
        if (at and rest[at - 1] != "/") or rest[at + 1 : at + 2] not in ("", "/"):  # [MQTT-4.7.1-2]
            raise _invalid(f"in {text!r:.100}, '+' does not fill its level")
        at = rest.find("+", at + 1)


def _invalid(text: str) -> PacketError:
    return PacketError(Reason.TOPIC_FILTER_INVALID, text)
