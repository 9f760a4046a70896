"""Which form of an answer a client asks for in its Accept header.

kubectl lists the forms that it prefers, the best first, and ends with plain
JSON: a table, an aggregated discovery document, a protocol buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from enmasse.api.status import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

__all__ = ["JSON", "Form", "MediaRange", "accepted", "choose", "form_of"]

JSON = "application/json"
T = TypeVar("T")

_LONGEST = 4096  # kubectl's longest has 250 characters


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One thing that the client would take.

    Attributes:
        name: as in ``application/json``, or with ``*`` for any.
        parameters: what follows it, without ``q``.
    """

    name: str
    parameters: dict[str, str]

    def covers(self, name: str) -> bool:
        """Tell whether a media type, without parameters, is one of these."""
        return self.name in ("*/*", "*", name) or self.name == f"{name.partition('/')[0]}/*"


@dataclass(frozen=True, slots=True)
class Form:
    """How objects are answered.

    Attributes:
        name: ``Table``, ``PartialObjectMetadata``, ``PartialObjectMetadataList``; empty: as they are.
        version: of the group ``meta.k8s.io``.
    """

    name: str = ""
    version: str = ""

    @property
    def api_version(self) -> str:
        """As ``apiVersion`` has it."""
        return f"meta.k8s.io/{self.version}"


def accepted(request: Request) -> list[MediaRange]:
    """Return what the client takes, the best first; without a header, anything.

    Raises:
        RequestError: when the header is longer than any that makes sense.
    """
    text = ",".join(request.headers.getlist("accept")) or "*/*"
    if len(text) > _LONGEST:
        raise RequestError(400, f"the Accept header is longer than {_LONGEST} characters")
    ranges = [_range(part) for part in text.split(",") if part.strip()]
    chosen = [(quality, item) for quality, item in ranges if quality > 0]
    chosen.sort(key=lambda pair: -pair[0])  # a stable sort: the client's order among equals
    return [item for _, item in chosen]


def choose(request: Request, offers: Sequence[tuple[str, Callable[[MediaRange], bool], T]]) -> T:
    """Return the offer that the client likes best.

    Args:
        request: whose Accept header counts.
        offers: the media type of each, what its parameters must be, and what it stands for;
            the first is preferred where the client does not care.

    Raises:
        RequestError: 406, when the client takes none of them.
    """
    for wanted in accepted(request):
        for name, fits, offer in offers:
            if wanted.covers(name) and fits(wanted):
                return offer
    names = ", ".join(dict.fromkeys(name for name, _, _ in offers))
    raise RequestError(406, f"only the following media types are accepted: {names}")


def form_of(request: Request, *, listing: bool = False) -> Form:
    """Return the form in which objects are wanted.

    Args:
        request: whose Accept header counts.
        listing: whether the answer is a list.

    Raises:
        RequestError: 406, when it is none that is known.
    """
    partial = "PartialObjectMetadataList" if listing else "PartialObjectMetadata"
    for wanted in accepted(request):
        if not wanted.covers(JSON):
            continue
        name, version = wanted.parameters.get("as", ""), wanted.parameters.get("v", "")
        if not name:
            return Form()
        is_known = wanted.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1")
        if is_known and name in ("Table", partial):
            return Form(name, version)
    raise RequestError(
        406,
        f"only the following media types are accepted: {JSON}, also with as=Table or {partial};v=v1;g=meta.k8s.io",
    )


def _range(text: str) -> tuple[float, MediaRange]:
    name, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for item in rest:
        key, _, value = item.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return quality, MediaRange(name.lower(), parameters)
