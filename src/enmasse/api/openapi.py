"""Serving the description of the API: built at the first question, then the same bytes for everybody.

Rules:
1. Each document has a hash as ETag; who has it already gets 304.
2. The index of version 3 names each document with its hash; under that address it may be kept for ever.
3. Bytes are compressed once, not for each client.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from enmasse.api.negotiation import JSON, MediaRange, choose
from enmasse.api.openapi_protobuf import encode_document
from enmasse.api.openapi_v2 import document_v2
from enmasse.api.openapi_v3 import documents_v3
from enmasse.api.status import answer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["openapi_routes"]

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PROTOBUF_OF_OLD: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _File:
    """Bytes as they are served.

    Attributes:
        raw: as they are.
        packed: compressed.
        digest: of the raw ones.
        media_type: what they are.
    """

    raw: bytes
    packed: bytes
    digest: str
    media_type: str


def openapi_routes() -> APIRouter:
    """Return the routes below ``/openapi``."""
    router = APIRouter(prefix="/openapi", tags=["discovery"])

    @router.get("/v2", summary="OpenAPI 2.0, as JSON or protobuf", response_class=Response)
    async def version_2(request: Request) -> Response:
        offers: list[tuple[str, Callable[[MediaRange], bool], Callable[[], _File]]] = [
            (JSON, _anyhow, _v2_json),
            (_PROTOBUF_OF_OLD, _anyhow, _v2_protobuf),
            (_PROTOBUF, _anyhow, _v2_protobuf),
        ]
        return _serve(request, choose(request, offers)())

    @router.get("/v3", summary="Where the OpenAPI 3.0 documents are", response_class=Response)
    async def index(request: Request) -> Response:
        return _serve(request, _v3_index())

    @router.get("/v3/{path:path}", summary="OpenAPI 3.0 of one group and version", response_class=Response)
    async def version_3(request: Request, path: str, hash: str = "") -> Response:  # noqa: A002  # Kubernetes calls it so
        file = _v3().get(path)
        if file is None:
            return answer(404, f"there is no group and version {path}; /openapi/v3 lists what is there")
        choose(request, [(JSON, _anyhow, None)])
        if hash and hash != file.digest:
            return RedirectResponse(_address(path, file), status_code=301)
        return _serve(request, file, {"Cache-Control": _FOR_EVER} if hash else {})

    return router


def _anyhow(_: MediaRange) -> bool:
    return True


def _serve(request: Request, file: _File, headers: dict[str, str] | None = None) -> Response:
    tag = f'"{file.digest}"'
    headers = {"ETag": tag, "Vary": "Accept, Accept-Encoding"} | (headers or {})
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    codings = [part.strip() for part in request.headers.get("accept-encoding", "").lower().split(",")]
    if "gzip" in codings:
        return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.raw, headers=headers, media_type=file.media_type)


def _file(raw: bytes, media_type: str) -> _File:
    # The time is left out of what is compressed, so that the same document gives the same bytes.
    return _File(raw, gzip.compress(raw, mtime=0), hashlib.sha512(raw).hexdigest().upper(), media_type)


def _json(document: dict[str, Any]) -> _File:
    return _file(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), JSON)


@cache
def _v2_json() -> _File:
    return _json(document_v2())


@cache
def _v2_protobuf() -> _File:
    return _file(encode_document(document_v2()), _PROTOBUF)


@cache
def _v3() -> dict[str, _File]:
    return {path: _json(document) for path, document in documents_v3().items()}


@cache
def _v3_index() -> _File:
    return _json({"paths": {path: {"serverRelativeURL": _address(path, file)} for path, file in _v3().items()}})


def _address(path: str, file: _File) -> str:
    return f"/openapi/v3/{path}?hash={file.digest}"
