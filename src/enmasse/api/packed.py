"""Documents that are served as they are: compressed once, not for each client, and told apart by their hash."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A document as bytes.

    Attributes:
        raw: uncompressed.
        packed: compressed.
        digest: the digest of the uncompressed bytes.
        media_type: the type of the document.
    """

    raw: bytes
    packed: bytes
    digest: str
    media_type: str

    @classmethod
    def of(cls, raw: bytes, media_type: str) -> PackedFile:
        """Return a document of some bytes."""
        # Without a time, the same document is compressed to the same bytes.
        return cls(raw, gzip.compress(raw, mtime=0), hashlib.sha512(raw).hexdigest().upper(), media_type)

    def answer(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """Return the answer to a request; a client that has the document already gets 304."""
        tag = f'"{self.digest}"'
        every = {"ETag": tag, "Vary": "Accept, Accept-Encoding", **(headers or {})}
        known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Response(status_code=304, headers=every)
        codings = [part.strip() for part in request.headers.get("accept-encoding", "").lower().split(",")]
        if "gzip" in codings:
            return Response(self.packed, headers=every | {"Content-Encoding": "gzip"}, media_type=self.media_type)
        return Response(self.raw, headers=every, media_type=self.media_type)
