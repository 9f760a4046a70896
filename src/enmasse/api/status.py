"""Answers that are no objects: the ``Status`` of the Kubernetes API, for every error alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse

from enmasse.control.errors import (
    ConflictError,
    ExpiredVersionError,
    ForbiddenError,
    NodeRefusedError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from enmasse.errors import ConfigError, EnmasseError, UnavailableError
from enmasse.model.errors import InvalidResourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.model.errors import Problem
    from enmasse.model.kinds import Kind

__all__ = ["RequestError", "answer", "answer_error", "deleted", "status_of"]

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
}

_PASSED_ON = frozenset({400, 404, 409})
"""What a node says of the request itself; all else is the node's own trouble."""

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
    """Return the response to an error of ours: whose fault it is decides on the code."""
    match error:
        case RequestError():
            return answer(error.code, str(error))
        case ForbiddenError():
            return answer(403, str(error))
        case ResourceNotFoundError():
            code, reason, details = 404, "NotFound", _about(error.kind, error.name)
        case ResourceExistsError():
            code, reason, details = 409, "AlreadyExists", _about(error.kind, error.name)
        case ConflictError():
            code, reason, details = 409, "Conflict", {}
        case ExpiredVersionError():
            code, reason, details = 410, "Expired", {}
        case InvalidResourceError():
            code, reason, details = 422, "Invalid", _causes(error.problems)
        case NodeRefusedError():
            return answer(error.status if error.status in _PASSED_ON else 503, error.description)
        case UnavailableError():
            code, reason, details = 503, "ServiceUnavailable", {}
        case ConfigError():
            code, reason, details = 400, "BadRequest", {}
        case _:
            code, reason, details = 500, "InternalError", {}
    return JSONResponse(status_of(code, str(error), reason=reason, details=details), status_code=code)


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
    return {"kind": kind, "name": name}


def _causes(problems: Sequence[Problem]) -> Document:
    return {
        "causes": [
            {"reason": "FieldValueInvalid", "field": problem.path, "message": problem.message} for problem in problems
        ]
    }
