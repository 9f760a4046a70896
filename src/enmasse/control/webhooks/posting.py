"""Post the messages of one address, and settle each by its answer.

Rules:
1. A message is settled when its request is answered; a process that dies before leaves it to the address, which gives
   it out again. So each comes at least once, and ``webhook-id`` says which it is: the message's own id, or one that
   is made of where it lies on disk.
2. As many messages are held as there may be requests. One whose request has failed is held until it may be tried
   again: a URL that is away is not asked for everything that waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.control.webhooks.request import (
    as_header,
    backoff_s,
    body_of,
    headers_of,
    retry_after_s,
    signed_headers,
    verdict_of,
)
from enmasse.errors import EnmasseError
from enmasse.message.text_search import ID_ANNOTATION
from enmasse.net.egress import EgressError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from enmasse.client import Connection, Delivery, Message, Receiver
    from enmasse.control.webhooks.request import Verdict

    Visit = Callable[[str], AbstractAsyncContextManager[Connection]]

_AGAIN_S: Final = 2.0
_STORED_S: Final = 0.01
"""The time that a message which was handed out before it was on disk, and has no id, is left to be written."""
_MAX_ANSWER: Final = 500
_MAX_ERROR: Final = 300


@dataclass(frozen=True, slots=True)
class Posting:
    """The address whose messages are posted, the URL, and how.

    Attributes:
        space: ``<namespace>/<space>``.
        address: the address of the space.
        url: the URL to which it posts.
        headers: the headers of each request; what is in them is secret.
        key: the key that requests are signed with; None: they are not.
        authorities: certificates in PEM that the host is verified by; None: those of this machine.
        concurrency: requests at a time.
        timeout_s: the longest that an answer may take.
        delay_s: the time before the second attempt.
        max_delay_s: the longest time between two.
    """

    space: str
    address: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    key: bytes | None = field(repr=False)
    authorities: str | None = field(repr=False)
    concurrency: int
    timeout_s: float
    delay_s: float
    max_delay_s: float


@dataclass(slots=True)
class Figures:
    """The counts of a webhook since the control process started.

    Attributes:
        delivered: messages that were taken.
        failed: requests without success.
        rejected: times that a message was refused for good.
        last_error: why the last of them was not taken.
    """

    delivered: int = 0
    failed: int = 0
    rejected: int = 0
    last_error: str | None = None


class Poster:
    """Posts the messages of an address until it is cancelled.

    Args:
        posting: the address and the URL.
        figures: the counts of the webhook.
        visit: connects to a space at its node.
        transport: to the outside.
        changed: called when the figures have changed.
    """

    def __init__(
        self,
        posting: Posting,
        figures: Figures,
        visit: Visit,
        transport: httpx.AsyncBaseTransport,
        changed: Callable[[], None],
    ) -> None:
        self._posting = posting
        self._figures = figures
        self._visit = visit
        self._transport = transport
        self._changed = changed

    async def run(self) -> None:
        """Go on until cancelled: again when the node was away."""
        client = httpx.AsyncClient(
            transport=self._transport, timeout=self._posting.timeout_s, follow_redirects=False, trust_env=False
        )
        async with client:
            while True:
                try:
                    async with (
                        self._visit(self._posting.space) as connection,
                        connection.receiver(
                            self._posting.address, credit=0, capabilities=("enmasse:ids",)
                        ) as receiver,
                    ):
                        await self._serve(receiver, client)
                except* (EnmasseError, OSError, ValueError) as errors:
                    self._note(str(errors.exceptions[0]))
                await asyncio.sleep(_AGAIN_S)

    async def _serve(self, receiver: Receiver, client: httpx.AsyncClient) -> None:
        receiver.grant(self._posting.concurrency)
        async with asyncio.TaskGroup() as tasks:
            while (delivery := await receiver.receive()) is not None:
                tasks.create_task(self._post(delivery, receiver, client))

    async def _post(self, delivery: Delivery, receiver: Receiver, client: httpx.AsyncClient) -> None:
        try:
            message = delivery.message
        except EnmasseError as error:
            delivery.reject(description=str(error))
            self._figures.rejected += 1
            self._note(str(error))
        else:
            identity = self._identity(message)
            if identity is None:
                await asyncio.sleep(_STORED_S)
                delivery.release()
            else:
                await self._settle(delivery, message, identity, client)
        if not receiver.is_ended:
            receiver.grant(1)

    async def _settle(self, delivery: Delivery, message: Message, identity: str, client: httpx.AsyncClient) -> None:
        posting, figures = self._posting, self._figures
        verdict, why, asked_s = await self._ask(message, identity, client)
        if verdict == "accepted":
            delivery.accept()
            figures.delivered += 1
            self._changed()
            return
        figures.failed += 1
        self._note(why)
        if verdict == "rejected":
            delivery.reject("enmasse:webhook-failed", f"{posting.url}: {why}")
            figures.rejected += 1
            return
        wait_s = backoff_s(message.delivery_count + 1, posting.delay_s, posting.max_delay_s, asked_s)
        await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311  # those that failed together come apart
        delivery.modify(failed=True)

    async def _ask(self, message: Message, identity: str, client: httpx.AsyncClient) -> tuple[Verdict, str, float]:
        """Return what an answer means, why, and the seconds that it asks to wait."""
        posting = self._posting
        body, content_type = body_of(message)
        headers = headers_of(message, posting.address) | {"Content-Type": as_header(content_type)}
        headers |= posting.headers
        headers |= signed_headers(posting.key, identity, int(time.time()), body)
        try:
            async with (
                asyncio.timeout(posting.timeout_s),
                client.stream("POST", posting.url, content=body, headers=headers) as answer,
            ):
                said = b"" if answer.is_success else await _beginning(answer)
        except EgressError as error:
            return "again", str(error), 0.0
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            return "again", f"no answer: {error or type(error).__name__}", 0.0
        text = " ".join(said.decode(errors="replace").split())
        why = f"{answer.status_code} {answer.reason_phrase} {text}".strip()
        return verdict_of(answer.status_code), why, retry_after_s(answer.headers)

    def _identity(self, message: Message) -> str | None:
        """Return what is the same at each attempt to post a message; None: it is known once the message is stored."""
        if message.message_id is not None:
            return as_header(message.message_id)
        place = message.annotations.get(ID_ANNOTATION)
        if place is None:
            # One that is not durable lies on no disk, and does not outlive the node.
            return None if message.durable else secrets.token_hex(16)
        name = f"{self._posting.space}/{self._posting.address}/{place}"
        return hashlib.sha256(name.encode()).hexdigest()[:32]

    def _note(self, error: str) -> None:
        self._figures.last_error = error[:_MAX_ERROR]
        self._changed()


async def _beginning(answer: httpx.Response) -> bytes:
    """Return the first bytes of an answer, however long it is."""
    async for part in answer.aiter_raw(_MAX_ANSWER):
        return part
    return b""
