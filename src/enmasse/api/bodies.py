"""Bodies of requests: reading them, and what must agree with the path."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from enmasse.api.objects_protobuf import read_object
from enmasse.api.reviews_protobuf import PROTOBUF
from enmasse.api.status import RequestError
from enmasse.model.documents import read_documents
from enmasse.model.names import is_label
from enmasse.model.schema import describe_value

if TYPE_CHECKING:
    from starlette.requests import Request

    from enmasse.api.served import Served

__all__ = ["OBJECTS", "expect_map", "fit_to_path", "media_type", "read_body", "read_value"]

OBJECTS = ("application/json", "application/yaml")

_IN_THREAD_BYTES = 64 * 1024  # takes the parser about 0.1 s: more than the others should wait

Document = dict[str, Any]


async def read_body(
    request: Request, accepted: tuple[str, ...], *, optional: bool = False, repeated: list[str] | None = None
) -> Document:
    """Return the body of a request as a map.

    Args:
        request: the request.
        accepted: the content types that are understood.
        optional: an empty body stands for an empty map.
        repeated: takes the keys that occur twice in a map; None: that is an error.

    Raises:
        RequestError: when the body is missing, of another type, or no map.
        ManifestError: when it cannot be parsed.
    """
    if optional and not await request.body():
        return {}
    return expect_map(await read_value(request, accepted, repeated))


async def read_value(request: Request, accepted: tuple[str, ...], repeated: list[str] | None = None) -> Any:
    """Return the body of a request as the value that it is.

    A content type is asked for even where it could be guessed: none of the
    accepted ones can be sent by a web page of another origin without the
    browser asking us first, and we do not answer such questions.

    Raises:
        RequestError: when the body is of another type, or not one value.
        ManifestError: when it cannot be parsed.
    """
    raw = await request.body()
    content_type = media_type(request)
    if content_type == PROTOBUF and accepted == OBJECTS:
        return read_object(raw)
    if content_type not in accepted:
        raise RequestError(415, f"expected content type {' or '.join(accepted)}, got '{content_type}'")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is not UTF-8: {error}") from None
    if len(text) > _IN_THREAD_BYTES:
        documents = await asyncio.to_thread(read_documents, text, "the body", repeated)
    else:
        documents = read_documents(text, "the body", repeated)
    if len(documents) != 1:
        raise RequestError(400, f"expected one map as body, got {len(documents)} documents")
    _expect_text(text, documents[0])
    return documents[0]


def _expect_text(text: str, document: Any) -> None:
    """Refuse halves of characters, which JSON can escape, and nothing that is stored or sent can hold."""
    if "\\u" in text or "\\U" in text:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RequestError(400, "the body has a half of a surrogate pair, which is no character") from None


def expect_map(value: Any) -> Document:
    """Return a value that is a map.

    Raises:
        RequestError: when it is something else.
    """
    if not isinstance(value, dict):
        raise RequestError(400, f"expected one map as body, got {describe_value(value)}")
    return value


def media_type(request: Request) -> str:
    """Return the content type of a request, without parameters.

    Where it is missing it is JSON, as older kubectl means it; but not from a browser, which says where its pages come
    from: there a page of another origin could send a body without a type unasked.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_of_browser = "origin" in request.headers or "sec-fetch-site" in request.headers
    return found or ("" if is_of_browser else "application/json")


def fit_to_path(document: Document, served: Served, namespace: str, name: str | None) -> Document:
    """Return an object with what the path says filled in.

    Raises:
        RequestError: when the object says something else.
    """
    if served.is_namespaced and not is_label(namespace):
        raise RequestError(400, f"'{namespace}' is no namespace: expected lower-case letters, digits and '-'")
    for field, expected in (("kind", served.kind.name), ("apiVersion", served.api_version)):
        if document.get(field) != expected:
            raise RequestError(400, f"{field}: this path takes {expected}, got {describe_value(document.get(field))}")
    metadata = document.get("metadata")
    if metadata is None and name is not None:
        metadata = {}
    if not isinstance(metadata, dict):
        if name is None:
            return document  # refused by validation, with a better message
        raise RequestError(400, f"metadata: expected a map, got {describe_value(metadata)}")
    if metadata.get("namespace") not in (None, "", namespace):
        says = f"the path says {namespace}" if namespace else f"a {served.kind.name} lies in none"
        raise RequestError(400, f"metadata.namespace: {says}, the object {describe_value(metadata['namespace'])}")
    if name is not None and metadata.get("name") not in (None, name):
        raise RequestError(400, f"metadata.name: the path says {name}, the object {describe_value(metadata['name'])}")
    filled = metadata | ({"namespace": namespace} if namespace else {}) | ({"name": name} if name is not None else {})
    return document | {"metadata": filled}
