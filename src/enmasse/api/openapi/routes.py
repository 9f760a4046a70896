"""Routes of the OpenAPI documents, which are built once, at the first request.

Rules:
1. Each document has its hash as ETag; a client that has it already gets 304.
2. The index of version 3 links each document with its hash; at that URL it can be cached for ever.
3. Documents are compressed once, not for each client.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from enmasse.api.kube.negotiation import JSON, MediaRange, choose
from enmasse.api.kube.status import answer
from enmasse.api.openapi.v2 import document_v2, encode_document
from enmasse.api.openapi.v3 import documents_v3
from enmasse.api.packed import PackedFile

if TYPE_CHECKING:
    from collections.abc import Callable

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_FOR_EVER: Final = "public, max-age=31536000, immutable"


def openapi_routes() -> APIRouter:
    """Return the routes below ``/openapi``."""
    router = APIRouter(prefix="/openapi", tags=["discovery"])

    @router.get("/v2", summary="OpenAPI 2.0, as JSON or protobuf", response_class=Response)
    async def version_2(request: Request) -> Response:
        offers: list[tuple[str, Callable[[MediaRange], bool], Callable[[], PackedFile]]] = [
            (JSON, _anyhow, _v2_json),
            (_OLD_PROTOBUF, _anyhow, _v2_protobuf),
            (_PROTOBUF, _anyhow, _v2_protobuf),
        ]
        return choose(request, offers)().answer(request)

    @router.get("/v3", summary="List the OpenAPI 3.0 documents", response_class=Response)
    async def index(request: Request) -> Response:
        return _v3_index().answer(request)

    @router.get("/v3/{path:path}", summary="OpenAPI 3.0 of one group and version", response_class=Response)
    async def version_3(request: Request, path: str, hash: str = "") -> Response:  # noqa: A002  # Kubernetes calls it so
        file = _v3().get(path)
        if file is None:
            return answer(404, f"there is no group and version {path}; /openapi/v3 lists those that are served")
        choose(request, [(JSON, _anyhow, None)])
        if hash and hash != file.digest:
            return RedirectResponse(_address(path, file), status_code=301)
        return file.answer(request, {"Cache-Control": _FOR_EVER} if hash else {})

    return router


def _anyhow(_: MediaRange) -> bool:
    return True


def _json(document: dict[str, Any]) -> PackedFile:
    return PackedFile.of(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), JSON)


@cache
def _v2_json() -> PackedFile:
    return _json(document_v2())


@cache
def _v2_protobuf() -> PackedFile:
    return PackedFile.of(encode_document(document_v2()), _PROTOBUF)


@cache
def _v3() -> dict[str, PackedFile]:
    return {path: _json(document) for path, document in documents_v3().items()}


@cache
def _v3_index() -> PackedFile:
    return _json({"paths": {path: {"serverRelativeURL": _address(path, file)} for path, file in _v3().items()}})


def _address(path: str, file: PackedFile) -> str:
    return f"/openapi/v3/{path}?hash={file.digest}"
