"""The sink's side of the network: one connection, its links, and transfers with their outcomes.

Everything that the node's absence can cause comes out as ``UnavailableError``, so that callers know what to
wait for. What an address answers is given for each transfer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from enmasse.client import (
    Connection,
    ConnectionDeniedError,
    Outcome,
    Sender,
    TlsError,
    UrlError,
    connect,
)
from enmasse.client.background import Background
from enmasse.errors import EnmasseError, LocalError, UnavailableError
from enmasse.pipeline.errors import AccessError, OptionError, UnansweredError
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.packing import AddressInfo, LinkKey, Parcel

FRAME_FORMAT = 0x454D4601
FRAMES = "enmasse:frames"
PARTITION = "enmasse:partition"
PRODUCER = "enmasse:producer"
ADDRESS_TYPE = "enmasse:address-type"
PARTITIONS = "enmasse:partitions"

ANSWER_S = 10.0
"""Seconds to wait for what a node answers at once; a longer silence means that it is gone."""

MAX_LINKS = 256
"""Links that are kept open: the sink may have many targets, of which few are in use at a time."""

STEP_S = 0.25
"""Seconds between two checks for progress."""

MAX_MESSAGE_BYTES = 16 << 20
"""The limit where the node reports none; it is the node's own."""

_SHUT_OUT = frozenset({"amqp:unauthorized-access", "amqp:not-allowed", "amqp:not-found"})

Result = Outcome | EnmasseError | None
"""The result of a transfer: its outcome, why there is none, or nothing within the time."""


class SpaceConnection:
    """One connection to a space; given up when it is lost.

    Args:
        options: the options, with node, space and user.

    Raises:
        UnavailableError: the node cannot be reached.
        OptionError: the options lead nowhere.
        AccessError: the node does not let us in.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._place = options.url
        self._links: OrderedDict[LinkKey, Sender] = OrderedDict()
        self._background = Background.acquire()
        try:
            self._connection: Connection = self._background.run(self._open(options))
        except BaseException:
            self._background.release()
            raise

    @staticmethod
    async def _open(options: SinkOptions) -> Connection:
        who = options.login.arguments()
        try:
            return await connect(
                options.url,
                hostname=options.space or None,
                reconnect=False,
                timeout=ANSWER_S,
                **who,
            )
        except (UrlError, TlsError) as error:
            raise OptionError(str(error)) from error
        except ConnectionDeniedError as error:
            if error.condition in _SHUT_OUT:
                denied = f"{options.url} does not let in {options.login.describe(who['user'])}"
                raise AccessError(f"{denied}: {error.condition}: {error.description}") from error
            raise UnavailableError(str(error)) from error
        except LocalError as error:
            raise UnavailableError(str(error)) from error

    @property
    def is_usable(self) -> bool:
        """True if the connection is up."""
        return self._connection.is_connected

    def info(self, address: str, producer: str) -> AddressInfo:
        """Return what an address is; the link for numbered messages is made on the way.

        Raises:
            LinkRefusedError: the node does not let us send there; the condition says why.
            UnavailableError: the node cannot be reached.
            OptionError: the node is none of ours.
        """
        return self._background.run(self._info(LinkKey(address, producer)))

    async def _info(self, key: LinkKey) -> AddressInfo:
        sender = await self._link(key)
        properties = sender.remote_properties
        kind = properties.get(ADDRESS_TYPE)
        if not isinstance(kind, str):
            raise OptionError(
                f"{self._place} does not report what {key.address!r} is: the sink needs a node of this version"
            )
        info = AddressInfo(kind, int(properties.get(PARTITIONS) or 1), sender.max_message_size or MAX_MESSAGE_BYTES)
        if kind == "stream" and self._links.pop(key, None) is not None:
            # A stream gets frames, by links of their own.
            await sender.close()
        return info

    def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
        """Send, and wait for the outcomes as long as some come.

        Args:
            parcels: the parcels to send.
            stall_s: the seconds that nothing may happen; what has no outcome then is ``None``, and is not sent if it
                was not yet.

        Raises:
            UnavailableError: the connection is not up.
        """
        return self._background.run(self._ship(parcels, stall_s))

    def ship_direct(self, parcels: Sequence[Parcel], credit_s: float, answer_s: float) -> list[Result]:
        """Send as much as receivers ask for, and wait for their outcomes.

        Args:
            parcels: the parcels to send.
            credit_s: the seconds that a receiver is waited for; what has no credit then is not sent, and ``None``.
            answer_s: the seconds that nothing may happen to what was sent; it is given as a ``UnansweredError`` then.

        Raises:
            UnavailableError: the connection is not up.
        """
        return self._background.run(self._ship_direct(parcels, credit_s, answer_s))

    async def _ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
        results: list[Result] = [None] * len(parcels)
        links = await self._attach(parcels, results)
        places: dict[asyncio.Future[Outcome], int] = {}
        for place, parcel in enumerate(parcels):
            sender = links.get(parcel.link)
            if sender is not None:
                self._send(sender, place, parcel, places, results)
        await self._watch(places, results, stall_s)
        return results

    async def _ship_direct(self, parcels: Sequence[Parcel], credit_s: float, answer_s: float) -> list[Result]:
        results: list[Result] = [None] * len(parcels)
        links = await self._attach(parcels, results)
        found = await asyncio.gather(*(_credit(sender, credit_s) for sender in links.values()))
        credit = dict(zip(links, found, strict=True))
        places: dict[asyncio.Future[Outcome], int] = {}
        for place, parcel in enumerate(parcels):
            if credit.get(parcel.link, 0) > 0:
                credit[parcel.link] -= 1
                self._send(links[parcel.link], place, parcel, places, results)
        await self._watch(places, results, answer_s)
        for place in places.values():
            if results[place] is None:
                name = parcels[place].link.address
                results[place] = UnansweredError(f"the receiver of {name!r} did not answer within {answer_s:g} s")
        return results

    async def _attach(self, parcels: Sequence[Parcel], results: list[Result]) -> dict[LinkKey, Sender]:
        """Return the links that parcels want; why there is none goes to the results."""
        links: dict[LinkKey, Sender] = {}
        refused: dict[LinkKey, EnmasseError] = {}
        for place, parcel in enumerate(parcels):
            key = parcel.link
            if key in links:
                continue
            if key not in refused:
                try:
                    links[key] = await self._link(key)
                    continue
                except EnmasseError as error:
                    refused[key] = error
            results[place] = refused[key]
        return links

    @staticmethod
    def _send(
        sender: Sender,
        place: int,
        parcel: Parcel,
        places: dict[asyncio.Future[Outcome], int],
        results: list[Result],
    ) -> None:
        message_format = 0 if parcel.link.partition < 0 else FRAME_FORMAT
        try:
            places[sender.send_payload_nowait(parcel.payload, message_format=message_format)] = place
        except EnmasseError as error:
            results[place] = error

    @staticmethod
    async def _watch(places: dict[asyncio.Future[Outcome], int], results: list[Result], stall_s: float) -> None:
        idle_s = 0.0
        loop = asyncio.get_running_loop()
        pending = set(places)
        try:
            while pending and idle_s < stall_s:
                begun = loop.time()
                done, pending = await asyncio.wait(pending, timeout=min(STEP_S, stall_s - idle_s))
                for future in done:
                    error = future.exception()
                    if error is not None and not isinstance(error, EnmasseError):
                        raise error
                    results[places[future]] = future.result() if error is None else error
                idle_s = 0.0 if done else idle_s + loop.time() - begun
        finally:
            # What was not sent is not to be sent later.
            for future in pending:
                future.cancel()

    async def _link(self, key: LinkKey) -> Sender:
        kept = self._links.get(key)
        if kept is not None and not kept.is_ended:
            self._links.move_to_end(key)
            return kept
        idle = [old for old, link in self._links.items() if not link.pending]
        for old in idle[: max(0, len(self._links) + 1 - MAX_LINKS)]:
            with suppress(EnmasseError):
                await self._links.pop(old).close()
        properties: dict[str, object] = {}
        if key.producer:
            properties[PRODUCER] = key.producer
        if key.partition >= 0:
            properties[PARTITION] = key.partition
        made = self._links[key] = await self._connection.sender(
            key.address,
            resend=False,
            max_pending=1 << 20,
            max_pending_bytes=1 << 30,
            capabilities=(ADDRESS_TYPE,) if key.partition < 0 else (FRAMES,),
            properties=properties or None,
            timeout=ANSWER_S,
        )
        return made

    def close(self) -> None:
        """Close the connection."""
        with suppress(EnmasseError):
            self._background.run(self._close())
        self._background.release()

    async def _close(self) -> None:
        self._links.clear()
        await self._connection.close()


async def _credit(sender: Sender, timeout_s: float) -> int:
    """Return how many messages the peer takes now; waits until it takes one."""
    try:
        async with asyncio.timeout(timeout_s):
            return await sender.wait_for_credit()
    except (TimeoutError, EnmasseError):
        return 0
