"""The ``Status`` of Kubernetes: the answer to every error, and to deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from enmasse.control.errors import (
    ConflictError,
    ExpiredVersionError,
    FieldConflictError,
    ForbiddenError,
    FutureVersionError,
    NodeRefusedError,
    ResourceExistsError,
    ResourceNotFoundError,
    StoreBrokenError,
    StoreFullError,
    StoreReadOnlyError,
)
from enmasse.control.store.listing import ExpiredListError
from enmasse.errors import ConfigError, EnmasseError, UnavailableError
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import kind_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.model.schema.kinds import Kind

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
    507: "InsufficientStorage",
}

_PAUSE_S = 6  # after a 429

_FORWARDED = frozenset({400, 404, 409})
"""Codes of a node that concern the request; all others are failures of the node, and become 503."""

Document = dict[str, Any]


class RequestError(ConfigError):
    """A request that cannot be served as it was sent.

    Attributes:
        code: the HTTP status code of the answer.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def status_of(code: int, message: str, *, reason: str = "", details: Document | None = None) -> Document:
    """Return a Status object for a failure."""
    status: Document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(code, "Unknown"),
        "code": code,
    }
    return status | ({"details": details} if details else {})


def answer(code: int, message: str) -> JSONResponse:
    """Return a failure as a response."""
    return JSONResponse(status_of(code, message), status_code=code)


def answer_error(error: EnmasseError) -> JSONResponse:
    """Return the response to an error; its type decides on the code."""
    details: Document = {}
    more: Document = {}
    match error:
        case RequestError():
            code, reason = error.code, ""
            details = _retry_after(_PAUSE_S) if error.code == 429 else {}
            if error.code == 422:  # without a cause kubectl keeps the message to itself
                field, _, message = str(error).partition(": ")
                details = _causes([Problem(field, message)])
        case ForbiddenError():
            code, reason = 403, "Forbidden"
            details = {"causes": [{"reason": error.cause, "message": str(error)}]} if error.cause else {}
        case ResourceNotFoundError():
            code, reason, details = 404, "NotFound", _about(error.kind, error.name)
        case ResourceExistsError():
            code, reason, details = 409, "AlreadyExists", _about(error.kind, error.name)
        case ConflictError():
            code, reason, details = 409, "Conflict", _about(*error.subject.partition(" ")[::2])
        case FieldConflictError():
            code, reason, details = 409, "Conflict", _conflicts(error)
        case ExpiredVersionError():
            code, reason = 410, "Expired"
            more = {"metadata": {"continue": error.token.encode()}} if isinstance(error, ExpiredListError) else {}
        case InvalidResourceError():
            code, reason = 422, "Invalid"
            details = _about(*error.subject.partition(" ")[::2]) | _causes(error.problems)
        case NodeRefusedError():
            return answer(error.status if error.status in _FORWARDED else 503, error.description)
        case FutureVersionError():
            code, reason = 504, "Timeout"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            details = _retry_after(1) | {"causes": causes}
        case StoreFullError():
            code, reason, details = 507, "InsufficientStorage", _retry_after(30)
        case StoreReadOnlyError():
            code, reason, details = 503, "ServiceUnavailable", _retry_after(30)
        case UnavailableError():
            code, reason, details = 503, "ServiceUnavailable", _retry_after(1)
        case StoreBrokenError():
            code, reason = 500, "InternalError"
        case ConfigError():
            code, reason = 400, "BadRequest"
        case _:
            code, reason = 500, "InternalError"
    status = status_of(code, str(error), reason=reason, details=details) | more
    response = JSONResponse(status, status_code=code)
    if "retryAfterSeconds" in details:
        response.headers["Retry-After"] = str(details["retryAfterSeconds"])
    return response


def deleted(kind: Kind, document: Document) -> Document:
    """Return the Status of a deletion that succeeded."""
    metadata = document["metadata"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": metadata["name"],
            "group": kind.group,
            "kind": kind.plural,
            "uid": metadata["uid"],
        },
    }


def _about(kind: str, name: str) -> Document:
    known = kind_named(kind)
    named = {"name": name} if name else {}
    return named | ({"kind": kind} if known is None else {"group": known.group, "kind": known.plural})


def _retry_after(seconds: int) -> Document:
    return {"retryAfterSeconds": seconds}


def _conflicts(error: FieldConflictError) -> Document:
    return {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{manager}" using {version}',
                "field": path,
            }
            for manager, version, path in error.conflicts
        ]
    }


def _causes(problems: Sequence[Problem]) -> Document:
    return {
        "causes": [
            {"reason": "FieldValueInvalid", "field": problem.path, "message": problem.message} for problem in problems
        ]
    }
