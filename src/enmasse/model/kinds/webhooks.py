"""Webhook: messages of an address are posted to a URL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem
from enmasse.model.schema.resource import ResourceStatus, SpaceMember
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,1000}")
_OURS: Final = frozenset(("host", "content-length", "transfer-encoding", "connection", "content-type"))
_SECRET: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
_MAX_URL = 2_000
_MAX_TIMEOUT_MS = 120_000


class WebhookRetry(Model):
    """The fate of a message that the URL has not taken."""

    delay: Duration = "1s"
    """The time before the second attempt; each further one twice as long."""
    max_delay: Duration = "1m"
    """The longest time between two attempts. How many there are is the address's business."""


class WebhookSpec(Model):
    """The address, the URL, and how messages go there."""

    address: str
    """A queue, a subscription, an address for dead letters, or an anycast address of the space."""
    url: str
    """The URL to which messages are posted, `https://` or `http://`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of each request. Everybody who may read the webhook sees them."""
    headers_secret: str | None = None
    """A Secret of the namespace whose entries are headers, such as `Authorization`."""
    signing_secret: str | None = None
    """A Secret of the namespace with the entry `key`, which requests are signed with; left out: they are not."""
    ca_secret: str | None = None
    """A Secret of the namespace with the entry `ca.crt`: the authorities that the host's certificate is verified by,
    and no others; left out: those of the machine."""
    concurrency: int = Field(default=4, ge=1, le=64)
    """Requests at a time. With 1 messages go one after the other."""
    timeout: Duration = "10s"
    """The longest that an answer may take."""
    retry: WebhookRetry = WebhookRetry()
    """The fate of a message that was not taken."""
    paused: bool = False
    """True if messages wait."""


class WebhookStatus(ResourceStatus):
    """The findings about a webhook, and what it has done since the service started."""

    delivered: int = 0
    """Messages that the URL has taken."""
    failed: int = 0
    """Requests that were not answered with success."""
    rejected: int = 0
    """Times that the URL has refused a message for good."""
    last_error: str | None = None
    """Why the last of these was not."""


class Webhook(SpaceMember):
    """Posts the messages of an address to a URL."""

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["Webhook"] = "Webhook"
    spec: WebhookSpec
    status: WebhookStatus = WebhookStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if problem := address_problem(spec.address):
            yield Problem("spec.address", problem)
        if problem := _url_problem(spec.url):
            yield Problem("spec.url", problem)
        for name, value in spec.headers.items():
            if problem := header_problem(name, value):
                yield Problem("spec.headers", problem)
            elif name.lower() in _SECRET:
                yield Problem("spec.headers", f"{name} is secret: put it into the Secret that headersSecret names")
        if spec.ca_secret is not None and not spec.url.startswith("https://"):
            yield Problem("spec.caSecret", f"needs a url that begins with https://, not {describe_value(spec.url)}")
        if milliseconds(spec.timeout) > _MAX_TIMEOUT_MS:
            yield Problem("spec.timeout", f"expected at most {_MAX_TIMEOUT_MS // 1000}s")
        if milliseconds(spec.retry.max_delay) < milliseconds(spec.retry.delay):
            yield Problem("spec.retry.maxDelay", f"expected at least delay, {spec.retry.delay}")


def header_problem(name: str, value: str) -> str | None:
    """Return what is wrong with a header of requests; its value is not in the words."""
    if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
        return f"{describe_value(name)} and its value are no header of HTTP"
    if name.lower() in _OURS or name.lower().startswith("webhook-"):
        return f"{name} is said by the webhook itself"
    return None


def _url_problem(url: str) -> str | None:
    """Return what is wrong with a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"expected a URL, got {describe_value(url)}"
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        return f"expected a URL of at most {_MAX_URL} characters of ASCII"
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        return f"expected https://HOST/PATH, got {describe_value(url)}"
    if "@" in parts.netloc:
        return "a URL has no password in it: put the header Authorization into the Secret of headersSecret"
    if parts.fragment:
        return "expected no fragment ('#')"
    return None
