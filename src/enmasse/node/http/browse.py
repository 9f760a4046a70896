"""Copies of messages that clients of HTTP look at, of which none is taken, and what they read of streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enmasse.message.text_search import ID_ANNOTATION
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.queues.places import IDS_CAPABILITY
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.streams.reader import PARTITION_FILTER, START_FILTER
from enmasse.messaging.streams.rows import OFFSET, PARTITION
from enmasse.node.http.cloudevents import BATCH_TYPE
from enmasse.node.http.documents import from_sections
from enmasse.node.http.receiving import JSON, MAX_MESSAGES, Receiving
from enmasse.node.http.routes import Route, check_query, number, seconds
from enmasse.node.http.sending import MAX_WAIT_S
from enmasse.node.http.values import INVALID, dumped
from enmasse.wire.http.answers import HttpError, head

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.node.http.connection import HttpConnection
    from enmasse.wire.http.heads import Request


class _Looking(Receiving):
    """A request for copies of messages, of which none is taken."""

    __slots__ = ("_after", "_has_drained", "_is_stream", "_offset", "_partition", "_selector")

    def __init__(self, connection: HttpConnection, route: Route) -> None:
        query = route.query
        check_query(route, "GET")
        most = number(query, "max", 10, 1, MAX_MESSAGES)
        super().__init__(connection, route.address, most, seconds(query, "wait", 0.0, MAX_WAIT_S))
        self._after = query.get("after")
        self._offset = query.get("offset")
        self._partition = query.get("partition")
        self._selector = query.get("selector")
        self._is_stream = self._has_drained = False

    def _options(self, address: Address) -> AttachOptions:
        options = super()._options(address)
        options.presettle = True
        self._is_stream = address.is_read_by_offset
        if not self._is_stream:
            options.browse = True
            options.capabilities = (IDS_CAPABILITY,)
        return options

    def _filters(self, address: Address) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._selector is not None:
            found[SELECTOR_FILTER] = self._selector
        if address.is_read_by_offset:
            if self._after is not None:
                raise HttpError(400, "a stream is read from an offset, and not after an id", INVALID)
            found[START_FILTER] = offset_of(self._offset or "first")
            if self._partition is not None:
                found[PARTITION_FILTER] = number({"partition": self._partition}, "partition", 0, 0, 1 << 30)
            elif len(address.partitions) > 1 and isinstance(found[START_FILTER], int):
                raise HttpError(
                    400, "the stream has several partitions: name the one of the offset by partition", INVALID
                )
            return found
        if self._offset is not None or self._partition is not None:
            raise HttpError(400, "offset and partition are for streams: name the id of a message by after", INVALID)
        if self._after is not None:
            found[START_FILTER] = self._after
        return found

    def _drains(self) -> bool:
        return True

    def drained(self) -> None:
        """Note that there is nothing more for now: then wait, if there was nothing at all."""
        super().drained()
        self._has_drained = True

    def on_turn(self, now: float) -> float | None:
        """Answer once all is here that there is, or time is up."""
        if self._deadline is None:
            self._deadline = now + self._wait_s
        if not (self._has_drained or self.credit <= 0 or (self._got and self._connection.engine.is_blocked)):
            # The journal is being read; it answers.
            return None
        if self._got or now >= self._deadline or self.credit < 0:
            self._end(now)
            return None
        if self._has_drained and self.credit == 0:
            self.credit = self._most
            self.consumer.on_credit(self._most, False)
        return self._deadline

    def _end(self, now: float) -> None:
        got, self._got = self._got, []
        documents = []
        following: dict[str, int] = {}
        last: str | None = self._after
        is_events = self._wants_events()
        events: list[dict[str, Any]] = []
        for _, payload in got[: self._most]:
            document = from_sections(payload)
            annotations = document.get("annotations", {})
            if self._is_stream and isinstance(annotations.get(OFFSET), int):
                following[str(annotations.get(PARTITION, 0))] = annotations[OFFSET] + 1
            elif ID_ANNOTATION in annotations:
                document["id"] = last = annotations.pop(ID_ANNOTATION)
                if not annotations:
                    del document["annotations"]
            documents.append(document)
            if is_events:
                events.append(self._event(payload, str(document.get("id") or annotations.get(OFFSET, ""))))
        self._leave()
        found: dict[str, Any] = {"messages": documents}
        if self._is_stream:
            found["next"] = following or self._unchanged()
        elif last is not None:
            found["next"] = last
        if is_events:
            following_as_text = json.dumps(found["next"]) if self._is_stream else found.get("next", "")
            start = head(200, BATCH_TYPE, (("X-Next", following_as_text),))
            self._connection.finish(start, dumped(events))
        else:
            self._connection.finish(JSON, dumped(found))

    def _unchanged(self) -> dict[str, int]:
        """Return where reading goes on if nothing came: where it was."""
        offset = self._offset or ""
        return {self._partition or "0": int(offset)} if offset.isdigit() else {}


def offset_of(text: str) -> Any:
    """Return where to begin to read a stream.

    Raises:
        HttpError: this is no such place.
    """
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise HttpError(400, f"offset is a number, first, last or next; not {text!r:.60}", INVALID)


def get_messages(connection: HttpConnection, request: Request, _body: bytes) -> None:
    """Look at messages, or read a stream."""
    connection.begin(_Looking(connection, request.route))
