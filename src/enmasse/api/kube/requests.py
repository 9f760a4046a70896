"""Reading requests: parameters of the query, bodies, and the validation of their fields.

Rules of ``fieldValidation``, for unknown and duplicate fields:
1. ``Strict`` refuses them; ``Warn`` drops them and lists them in Warning headers; ``Ignore`` drops them.
   Of duplicate fields, the last one counts.
2. The default is ``Warn``, as in Kubernetes: its clients rely on it. kubectl asks for ``Strict`` by itself, or checks
   before it sends; so does our own command line.
3. All other errors of an object are refused in any case.
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ValidationError

from enmasse.api.kube.protobuf import PROTOBUF, read_object
from enmasse.api.kube.status import RequestError
from enmasse.control.store.managed_fields import Manager
from enmasse.identity.rbac import LOCAL_OPERATOR, Requester
from enmasse.identity.throttle import network_of
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.manifest import read_documents
from enmasse.model.schema.names import is_label
from enmasse.model.schema.objects import decode
from enmasse.model.schema.schema import describe_value, join_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from enmasse.api.kube.served import Served
    from enmasse.model.schema.resource import Resource

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off", ""})
_POLICIES = ("Background", "Foreground", "Orphan")
_MANAGER_LIMIT = 128
_DIGITS_LIMIT = 18  # of a number: fits in 64 bits


class Options:
    """The parameters of a request's query, each validated when it is read.

    Args:
        request: the request.
        api_version: the group and version in its path.
    """

    def __init__(self, request: Request, api_version: str) -> None:
        self._query = request.query_params
        self._agent = request.headers.get("user-agent", "")
        self._api_version = api_version
        self.requester: Requester = getattr(request.state, "requester", LOCAL_OPERATOR)
        """The user who sends the request."""
        self.network = network_of(request.client.host) if request.client else ""
        """The network of the client."""

    def text(self, name: str) -> str:
        """Return a parameter as it is; empty when it is missing."""
        return self._query.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false; false when it is missing."""
        values = [value.lower() for value in self._query.getlist(name)]
        for value in values:
            if value not in _TRUE | _FALSE:
                raise RequestError(400, f"{name}: expected true or false, got '{value[:40]}'")
        return any(value in _TRUE for value in values)  # as the middleware reads it

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number, not negative; 0 when it is missing."""
        value = self.text(name)
        if not value:
            return 0
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_LIMIT):
            raise RequestError(400, f"{name}: expected a whole number, 0 or more, got '{value[:40]}'")
        return int(value)

    def seconds(self, name: str) -> float:
        """Return a parameter that is a number of seconds; 0 when it is missing."""
        value = self.text(name)
        try:
            found = float(value or 0)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise RequestError(400, f"{name}: expected seconds, 0 or more, got '{value[:40]}'")
        return found

    @property
    def is_dry(self) -> bool:
        """True if nothing is to be written."""
        values = [value for value in self._query.getlist("dryRun") if value]
        if values and values != ["All"]:
            raise RequestError(400, f"dryRun: expected All, got '{', '.join(values)[:40]}'")
        return bool(values)

    def manager(self, operation: Literal["Apply", "Update"] = "Update", subresource: str = "") -> Manager:
        """Return the manager of the fields that the request writes."""
        name = self.text("fieldManager")
        if len(name) > _MANAGER_LIMIT or not name.isprintable():
            raise RequestError(422, f"fieldManager: expected at most {_MANAGER_LIMIT} printable characters")
        if operation == "Apply" and not name:
            raise RequestError(422, "fieldManager: required for an apply patch: the name of the program that applies")
        if operation == "Update" and self.text("force"):
            raise RequestError(422, "force: only an apply patch can be forced")
        agent = self._agent.partition("/")[0][:_MANAGER_LIMIT]
        name = name or (agent if agent.isprintable() else "") or "unknown"
        return Manager(name, self._api_version, operation, subresource)

    def deletes_dependents(self, body_policy: object = None) -> bool:
        """Return whether the dependents of an object are deleted with it."""
        policy = body_policy or self.text("propagationPolicy")
        if policy and policy not in _POLICIES:
            raise RequestError(422, f"propagationPolicy: expected {', '.join(_POLICIES)}, got '{str(policy)[:40]}'")
        self.number("gracePeriodSeconds")  # deletion waits for finalizers alone; the parameter is only validated
        return policy != "Orphan" and not self.flag("orphanDependents")


class Query(BaseModel):
    """The parameters of a query; a subclass declares them, each with its bounds."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return those of a request, of which the last one counts where one comes twice.

        Raises:
            RequestError: when one is missing, or out of its bounds.
        """
        try:
            return cls.model_validate(dict(request.query_params))
        except ValidationError as error:
            found = [f"{item['loc'][-1]}: {item['msg']}" for item in error.errors()]
            raise RequestError(400, "; ".join(found)) from None


def place(request: Request) -> tuple[str, str]:
    """Return the namespace and the name in a request's path; empty where it has none."""
    return request.path_params.get("namespace", ""), request.path_params.get("name", "")


OBJECTS = ("application/json", "application/yaml")

_IN_THREAD_BYTES = 64 * 1024  # takes the parser about 0.1 s: more than other requests should wait

Document = dict[str, Any]


async def read_body(
    request: Request, accepted: tuple[str, ...], *, optional: bool = False, repeated: list[str] | None = None
) -> Document:
    """Return the body of a request as a map.

    Args:
        request: the request.
        accepted: the content types that are read.
        optional: an empty body is read as an empty map.
        repeated: collects duplicate keys of maps; None: they are errors.

    Raises:
        RequestError: when the body is missing, of another type, or no map.
        ManifestError: when it cannot be parsed.
    """
    if optional and not await request.body():
        return {}
    return expect_map(await read_value(request, accepted, repeated))


async def read_value(request: Request, accepted: tuple[str, ...], repeated: list[str] | None = None) -> Any:
    """Return the body of a request as any value.

    A content type is required even where it could be guessed: a web page of another origin can send none of the
    accepted ones without a CORS preflight request, which the API does not answer.

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
    """Refuse lone surrogates, which JSON can escape, but UTF-8 cannot encode."""
    if "\\u" in text or "\\U" in text:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RequestError(400, "the body has a half of a surrogate pair, which is not a character") from None


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

    A missing one means JSON, as in older kubectl; but not from a browser, which sends the origin of its pages: a page
    of another origin could send a body without a type and without a preflight request.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_of_browser = "origin" in request.headers or "sec-fetch-site" in request.headers
    return found or ("" if is_of_browser else "application/json")


def fit_to_path(document: Document, served: Served, namespace: str, name: str | None) -> Document:
    """Return an object with namespace and name of the path filled in.

    Raises:
        RequestError: when the object contradicts the path.
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
        says = f"the path says {namespace}" if namespace else f"a {served.kind.name} has none"
        raise RequestError(400, f"metadata.namespace: {says}, the object {describe_value(metadata['namespace'])}")
    if name is not None and metadata.get("name") not in (None, name):
        raise RequestError(400, f"metadata.name: the path says {name}, the object {describe_value(metadata['name'])}")
    filled = metadata | ({"namespace": namespace} if namespace else {}) | ({"name": name} if name is not None else {})
    return document | {"metadata": filled}


_MAX_WARNINGS = 20  # of about 100 characters each: a client's limit of 8 KiB of headers is far


class FieldValidation:
    """Reads the object in a request, and applies its ``fieldValidation``.

    Args:
        request: with the parameter.

    Attributes:
        warnings: for the client, after the object was decoded.

    Raises:
        RequestError: when the parameter is not one of the three.
    """

    def __init__(self, request: Request) -> None:
        policy = request.query_params.get("fieldValidation", "") or "Warn"
        if policy not in ("Strict", "Warn", "Ignore"):
            raise RequestError(400, f"fieldValidation: expected Ignore, Warn or Strict, got '{policy[:40]}'")
        self._request = request
        self._policy = policy
        self._found: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """The warnings of dropped fields."""
        if self._policy != "Warn":
            return []
        more = len(self._found) - _MAX_WARNINGS
        return self._found[:_MAX_WARNINGS] + ([f"{more} more fields were dropped"] if more > 0 else [])

    async def read_body(self, accepted: tuple[str, ...]) -> Document:
        """Return the body of the request as a map.

        Raises:
            RequestError: when the body is missing, of another type, or no map.
            ManifestError: when it cannot be parsed, or has duplicate fields and ``Strict`` applies.
        """
        repeated: list[str] | None = None if self._policy == "Strict" else []
        body = await read_body(self._request, accepted, repeated=repeated)
        self._found += [f'duplicate field "{name}"' for name in repeated or ()]
        return body

    def decode(self, document: Document) -> Resource:
        """Turn a document into a valid object.

        Raises:
            InvalidResourceError: with every problem that was found.
        """
        if self._policy == "Strict":
            return decode(document)
        try:
            return decode(document)
        except InvalidResourceError as error:
            unknown = [problem for problem in error.problems if problem.unknown]
            known = _without(document, unknown)
            if not unknown or known == document:
                raise
        try:
            resource = decode(known)
        except InvalidResourceError as error:  # a client that has to correct it gets all problems at once
            raise InvalidResourceError(error.subject, [*error.problems, *unknown]) from None
        for problem in unknown:
            warning = f'unknown field "{join_path(problem.unknown)}"{_hint(problem)}'
            if warning not in self._found:
                self._found.append(warning)
        return resource


def _hint(problem: Problem) -> str:
    _, separator, hint = problem.message.partition("; did you mean ")
    return f", did you mean {hint.rstrip('?')}?" if separator else ""


def _without(document: Document, problems: Sequence[Problem]) -> Document:
    known = deepcopy(document)
    for problem in problems:
        *parents, last = problem.unknown
        owner: Any = known
        for part in parents:
            is_there = isinstance(owner, dict) if isinstance(part, str) else isinstance(owner, list)
            owner = owner[part] if is_there and (isinstance(part, int) or part in owner) else None
        if isinstance(owner, dict):
            owner.pop(last, None)
    return known
