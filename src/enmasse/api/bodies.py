"""Bodies of requests: reading, merge patches, and what must agree with the path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.api.status import RequestError
from enmasse.model.documents import read_documents
from enmasse.model.names import is_label
from enmasse.model.schema import describe_value

if TYPE_CHECKING:
    from starlette.requests import Request

    from enmasse.model.kinds import Kind

__all__ = ["MERGE_PATCH", "OBJECTS", "fit_to_path", "merge", "read_body"]

OBJECTS = ("application/json", "application/yaml")
MERGE_PATCH = ("application/merge-patch+json",)

Document = dict[str, Any]


async def read_body(
    request: Request, accepted: tuple[str, ...], *, optional: bool = False, repeated: list[str] | None = None
) -> Document:
    """Return the body of a request as a map.

    A content type is asked for even where it could be guessed: none of the
    accepted ones can be sent by a web page of another origin without the
    browser asking us first, and we do not answer such questions.

    Args:
        request: the request.
        accepted: the content types that are understood.
        optional: an empty body stands for an empty map.
        repeated: takes the keys that occur twice in a map; None: that is an error.

    Raises:
        RequestError: when the body is missing, of another type, or no map.
        ManifestError: when it cannot be parsed.
    """
    raw = await request.body()
    if optional and not raw:
        return {}
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in accepted:
        raise RequestError(415, f"expected content type {' or '.join(accepted)}, got '{content_type}'")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is not UTF-8: {error}") from None
    documents = read_documents(text, "the body", repeated)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = describe_value(documents[0]) if len(documents) == 1 else f"{len(documents)} documents"
        raise RequestError(400, f"expected one map as body, got {found}")
    return documents[0]


def fit_to_path(document: Document, kind: Kind, namespace: str, name: str | None) -> Document:
    """Return an object with what the path says filled in.

    Raises:
        RequestError: when the object says something else.
    """
    if not is_label(namespace):
        raise RequestError(400, f"'{namespace}' is no namespace: expected lower-case letters, digits and '-'")
    for field, expected in (("kind", kind.name), ("apiVersion", kind.api_version)):
        if document.get(field) != expected:
            raise RequestError(400, f"{field}: this path takes {expected}, got {describe_value(document.get(field))}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document  # refused by validation, with a better message
    if metadata.get("namespace") not in (None, "", namespace):
        raise RequestError(
            400,
            f"metadata.namespace: the path says {namespace}, the object {describe_value(metadata['namespace'])}",
        )
    if name is not None and metadata.get("name") not in (None, name):
        raise RequestError(400, f"metadata.name: the path says {name}, the object {describe_value(metadata['name'])}")
    filled = metadata | {"namespace": namespace} | ({"name": name} if name is not None else {})
    return document | {"metadata": filled}


def merge(target: Any, patch: Any) -> Any:
    """Return ``target`` changed by a merge patch [RFC 7396 2]; neither is changed in place."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
