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

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

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


def openapi_routes() -> list[Route]:
    """Return the routes below ``/openapi``."""

    async def version_2(request: Request) -> Response:
        """Return OpenAPI 2.0, as JSON or protobuf."""
        offers: list[tuple[str, Callable[[MediaRange], bool], Callable[[], PackedFile]]] = [
            (JSON, _anyhow, _v2_json),
            (_OLD_PROTOBUF, _anyhow, _v2_protobuf),
            (_PROTOBUF, _anyhow, _v2_protobuf),
        ]
        return choose(request, offers)().answer(request)

    async def index(request: Request) -> Response:
        """List the OpenAPI 3.0 documents."""
        return _v3_index().answer(request)

    async def version_3(request: Request) -> Response:
        """Return OpenAPI 3.0 of one group and version."""
        path: str = request.path_params["path"]
        digest = request.query_params.get("hash", "")
        file = _v3().get(path)
        if file is None:
            return answer(404, f"there is no group and version {path}; /openapi/v3 lists those that are served")
        choose(request, [(JSON, _anyhow, None)])
        if digest and digest != file.digest:
            return RedirectResponse(_address(path, file), status_code=301)
        return file.answer(request, {"Cache-Control": _FOR_EVER} if digest else {})

    return [
        Route("/openapi/v2", version_2),
        Route("/openapi/v3", index),
        Route("/openapi/v3/{path:path}", version_3),
    ]


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
