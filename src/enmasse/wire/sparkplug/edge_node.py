"""Names of Sparkplug's messages, and what the messages of an edge node mean one after another.

Rules:
1. An alias means what the last birth said: that of the edge node for its own metrics, that of a device for the
   device's. A birth replaces the one before; a birth of the edge node makes all births of its devices void, and so
   does its death.
2. A death of an edge node whose ``bdSeq`` is not that of its last birth is of an earlier session and changes
   nothing.
3. Births, data and device's deaths of an edge node are numbered 0 to 255 together, beginning anew with its birth.
   Commands and deaths of edge nodes have no number.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from enmasse.wire.sparkplug.payload import Metric, Payload, described, moment, read_payload

NAMESPACE: Final = "spBv1.0"
"""The first word of the names of messages."""


class MessageType(StrEnum):
    """The types of messages."""

    NBIRTH = "NBIRTH"
    NDEATH = "NDEATH"
    DBIRTH = "DBIRTH"
    DDEATH = "DDEATH"
    NDATA = "NDATA"
    DDATA = "DDATA"
    NCMD = "NCMD"
    DCMD = "DCMD"


_TYPES: Final = frozenset(MessageType)
_BIRTHS: Final = (MessageType.NBIRTH, MessageType.DBIRTH)
_OF_SESSIONS: Final = (MessageType.NBIRTH, MessageType.NDEATH)
_UNNUMBERED: Final = (MessageType.NDEATH, MessageType.NCMD, MessageType.DCMD)
BD_SEQ: Final = "bdSeq"
"""The metric that says which birth a death belongs to."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The parts of a message's name.

    Attributes:
        type: the type of the message.
        group: the group of the edge node.
        edge_node: the edge node.
        device: the device; None: the message is of the edge node itself.
    """

    type: MessageType
    group: str
    edge_node: str
    device: str | None = None

    @property
    def node(self) -> str:
        """The edge node with its group, ``GROUP/EDGE``."""
        return f"{self.group}/{self.edge_node}"


def parse_topic(name: str) -> Topic | None:
    """Return the parts of ``spBv1.0/GROUP/TYPE/EDGE[/DEVICE]``; None: it is no such name, such as one of a host."""
    words = name.split("/")
    if len(words) not in (4, 5) or words[0] != NAMESPACE or words[2] not in _TYPES or not all(words):
        return None
    found = MessageType(words[2])
    if found.startswith("D") != (len(words) == 5):
        return None
    return Topic(found, words[1], words[3], words[4] if len(words) == 5 else None)


def is_name(name: str) -> bool:
    """Return whether a message of that name is to be one of Sparkplug."""
    return name.startswith(f"{NAMESPACE}/")


def is_host(name: str) -> bool:
    """Return whether a message of that name tells of a host, in JSON: ``spBv1.0/STATE/HOST``."""
    return name.startswith(f"{NAMESPACE}/STATE/")


@dataclass(slots=True)
class _Birth:
    """The metrics of a birth: names by alias, datatypes by name."""

    names: dict[int, str] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class EdgeNode:
    """The session of an edge node, as far as its messages have told.

    Attributes:
        gaps: the times that numbers were missing between its messages.
        missed: the messages missing there, of each gap less than 256.
        is_stale: True if the last message was a death that counts.
    """

    gaps: int = 0
    missed: int = 0
    is_stale: bool = False
    _last: int | None = None
    """The number of its last message; None: not known."""
    _bd_seq: int | None = None
    _births: dict[str, _Birth] = field(default_factory=dict)
    """By device; the edge node's own has no name."""

    def take(self, topic: Topic, payload: Payload) -> None:
        """Take the next message, and give its metrics the names and datatypes that births have said.

        A metric whose alias no birth has said stays without a name.

        Raises:
            SparkplugError: it is no message of an edge node; it counts as not taken.
        """
        device = topic.device or ""
        bd_seq = _bd_seq(payload) if topic.type in _OF_SESSIONS else None
        self._count(topic.type, payload.seq)
        self.is_stale = False
        if topic.type is MessageType.NDEATH:
            self.is_stale = None in (bd_seq, self._bd_seq) or bd_seq == self._bd_seq
            if self.is_stale:
                self._births.clear()
                self._last = None
            return
        if topic.type is MessageType.DDEATH:
            self._births.pop(device, None)
            self.is_stale = True
        elif topic.type in _BIRTHS:
            if topic.type is MessageType.NBIRTH:
                self._births.clear()
                self._bd_seq = bd_seq
            self._births[device] = _birth(payload)
        if birth := self._births.get(device):
            _resolve(payload.metrics, birth)

    def _count(self, of: MessageType, seq: int | None) -> None:
        if seq is None or of in _UNNUMBERED:
            return
        if of is not MessageType.NBIRTH and self._last is not None:
            between = (seq - self._last - 1) % 256
            self.gaps += between > 0
            self.missed += between
        self._last = seq

    def to_json(self) -> str:
        """Return what ``from_json`` makes the same of."""
        births = {device: [list(one.names.items()), one.types] for device, one in self._births.items()}
        found = [self.gaps, self.missed, self._last, self._bd_seq, births]
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> EdgeNode:
        """Return a session as it was."""
        gaps, missed, last, bd_seq, births = json.loads(text)
        known = {device: _Birth(dict(names), types) for device, (names, types) in births.items()}
        return cls(gaps, missed, _last=last, _bd_seq=bd_seq, _births=known)

    @property
    def size(self) -> int:
        """Return how much is remembered: one, and the metrics that births have said."""
        return 1 + sum(len(birth.types) for birth in self._births.values())


def _bd_seq(payload: Payload) -> int | None:
    for metric in payload.metrics:
        if metric.name == BD_SEQ:
            value = metric.value()
            return value if isinstance(value, int) else None
    return None


def _birth(payload: Payload) -> _Birth:
    birth = _Birth()
    for metric in payload.metrics:
        if metric.name is not None:
            if metric.alias is not None:
                birth.names[metric.alias] = metric.name
            birth.types[metric.name] = metric.datatype or 0
    return birth


def _resolve(metrics: list[Metric], birth: _Birth) -> None:
    for metric in metrics:
        if metric.name is None and metric.alias is not None:
            metric.name = birth.names.get(metric.alias)
        if metric.datatype is None and metric.name is not None:
            metric.datatype = birth.types.get(metric.name)


MAX_KNOWN: Final = 200_000
"""Metrics of births that a reader of messages remembers; those of the edge nodes not heard for longest go first."""


class Reader:
    """Shows messages of Sparkplug B, in the order in which they come, with the names that births have said."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[str, EdgeNode] = OrderedDict()
        self._known = 0

    def read(self, name: str, body: bytes) -> dict[str, Any] | None:
        """Return a message as a map; None: one of that name is none of Sparkplug's.

        Raises:
            SparkplugError: its body is no payload.
        """
        topic = parse_topic(name)
        if topic is None:
            return None
        payload = read_payload(body)
        self._take(topic, payload)
        found: dict[str, Any] = {"type": str(topic.type), "group": topic.group, "edgeNode": topic.edge_node}
        if topic.device is not None:
            found["device"] = topic.device
        if payload.timestamp is not None:
            found["timestamp"] = moment(payload.timestamp)
        if payload.seq is not None:
            found["seq"] = payload.seq
        found["metrics"] = [described(metric, metric.value()) for metric in payload.metrics]
        rest = {"uuid": payload.uuid, "body": payload.body}
        return found | {name: value for name, value in rest.items() if value is not None}

    def _take(self, topic: Topic, payload: Payload) -> None:
        node = self._nodes.pop(topic.node, None)
        if node is None:
            node = EdgeNode()
        else:
            self._known -= node.size
        node.take(topic, payload)
        self._nodes[topic.node] = node
        self._known += node.size
        while self._known > MAX_KNOWN and len(self._nodes) > 1:
            self._known -= self._nodes.popitem(last=False)[1].size
