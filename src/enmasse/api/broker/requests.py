"""Reading requests of the Open Service Broker API 2.17, and its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse

from enmasse.api.kube.requests import read_body
from enmasse.api.kube.status import answer_error
from enmasse.errors import ConfigError
from enmasse.model.schema.names import is_label, pattern_problem
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from starlette.requests import Request

    from enmasse.errors import EnmasseError

VERSION_HEADER: Final = "X-Broker-API-Version"
_VERSION = re.compile(r"2\.([0-9]{1,4})")
_OLDEST_MINOR = 13
_SPACE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_ID = 255
_JSON = ("application/json",)

INSTANCE_PARAMETERS: Final[dict[str, Any]] = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {
            "type": "string",
            "title": "Name of the address space",
            "pattern": f"^{_SPACE_NAME.pattern}$",
            "maxLength": 63,
        },
        "namespace": {"type": "string", "title": "Namespace of the address space", "maxLength": 63},
    },
}
BINDING_PARAMETERS: Final[dict[str, Any]] = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "sendAddresses": {
            "type": "string",
            "title": "Where the application may send: patterns, divided by commas",
            "default": "*",
        },
        "receiveAddresses": {
            "type": "string",
            "title": "From where the application may receive: patterns, divided by commas",
            "default": "*",
        },
        "consoleAccess": {"type": "boolean", "title": "May see the statistics of the space", "default": False},
        "consoleAdmin": {"type": "boolean", "title": "May manage the space", "default": False},
        "externalAccess": {"type": "boolean", "title": "Connects from outside; of no effect", "default": False},
    },
}

Document = dict[str, Any]


class BrokerError(ConfigError):
    """A request that a service broker refuses.

    Attributes:
        code: the code of HTTP.
        error: the error code of the specification; empty without one.
    """

    def __init__(self, code: int, description: str, error: str = "") -> None:
        super().__init__(description)
        self.code = code
        self.error = error


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """A request for an instance; the broker chooses an empty name or namespace."""

    service: str
    plan: str
    name: str
    namespace: str
    platform_namespace: str


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """A request for another plan; an empty one is the present."""

    service: str
    plan: str


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A request for a binding."""

    service: str
    plan: str
    send: tuple[str, ...]
    receive: tuple[str, ...]
    can_view: bool
    can_manage: bool
    parameters: Document


def osb_error(error: EnmasseError) -> JSONResponse:
    """Return the answer to an error, in the form of the specification."""
    if isinstance(error, BrokerError):
        word = {"error": error.error} if error.error else {}
        return JSONResponse(word | {"description": str(error)}, status_code=error.code)
    known = answer_error(error)
    return JSONResponse({"description": json.loads(bytes(known.body))["message"]}, status_code=known.status_code)


def check_version(request: Request) -> None:
    """Refuse a platform with an older version than 2.13.

    Raises:
        BrokerError: 412.
    """
    version = request.headers.get(VERSION_HEADER, "")
    found = _VERSION.fullmatch(version)
    if found is None or int(found[1]) < _OLDEST_MINOR:
        expected = f"expected the header {VERSION_HEADER} with 2.{_OLDEST_MINOR} or a later 2.x"
        raise BrokerError(412, f"{expected}, got {describe_value(version) if version else 'none'}")


def is_asynchronous(request: Request) -> bool:
    """Return whether the platform supports operations that continue after the answer."""
    return request.query_params.get("accepts_incomplete") == "true"


def needed(request: Request, *names: str) -> tuple[str, ...]:
    """Return required parameters of the query.

    Raises:
        BrokerError: 400 when one is missing.
    """
    for name in names:
        if not request.query_params.get(name):
            raise BrokerError(400, f"{name}: required in the query")
    return tuple(request.query_params[name] for name in names)


async def read_provision(request: Request) -> ProvisionRequest:
    """Read the body of a request.

    Raises:
        BrokerError: 400, naming the field.
    """
    body = await read_body(request, _JSON)
    for name in ("service_id", "plan_id", "organization_guid", "space_guid"):
        _text(body, name)
    context, parameters = _map(body, "context"), _parameters(body, INSTANCE_PARAMETERS)
    name, namespace = parameters.get("name", ""), parameters.get("namespace", "")
    if name and _SPACE_NAME.fullmatch(name) is None:
        expected = "expected a lower-case letter, then lower-case letters, digits and '-', at most 63 characters"
        raise BrokerError(400, f"parameters.name: {expected}, got {describe_value(name)}")
    if namespace and not is_label(namespace):
        raise BrokerError(400, f"parameters.namespace: {describe_value(namespace)} is no name of a namespace")
    platform = context.get("namespace") if context.get("platform") == "kubernetes" else ""
    return ProvisionRequest(
        service=body["service_id"],
        plan=body["plan_id"],
        name=name,
        namespace=namespace,
        platform_namespace=platform if isinstance(platform, str) and is_label(platform) else "",
    )


async def read_update(request: Request) -> UpdateRequest:
    """Read the body of a request.

    Raises:
        BrokerError: 400, naming the field.
    """
    body = await read_body(request, _JSON)
    _text(body, "service_id")
    if body.get("plan_id") is not None:
        _text(body, "plan_id")
    _map(body, "context")
    if _map(body, "parameters"):
        raise BrokerError(400, "parameters: an instance cannot be renamed or moved; only its plan can be changed")
    return UpdateRequest(body["service_id"], body.get("plan_id") or "")


async def read_bind(request: Request) -> BindRequest:
    """Read the body of a request.

    Raises:
        BrokerError: 400, naming the field.
    """
    body = await read_body(request, _JSON)
    for name in ("service_id", "plan_id"):
        _text(body, name)
    for name in ("context", "bind_resource"):
        _map(body, name)
    parameters = _parameters(body, BINDING_PARAMETERS)
    return BindRequest(
        service=body["service_id"],
        plan=body["plan_id"],
        send=_patterns(parameters, "sendAddresses"),
        receive=_patterns(parameters, "receiveAddresses"),
        can_view=parameters.get("consoleAccess", False),
        can_manage=parameters.get("consoleAdmin", False),
        parameters=parameters,
    )


def _text(body: Mapping[str, Any], name: str) -> None:
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_ID:
        raise BrokerError(400, f"{name}: expected text of 1 to {_MAX_ID} characters, got {describe_value(value)}")


def _map(body: Mapping[str, Any], name: str) -> Document:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise BrokerError(400, f"{name}: expected a map, got {describe_value(value)}")
    return value or {}


def _parameters(body: Mapping[str, Any], schema: Document) -> Document:
    """Validate the parameters; those that are null are left out."""
    types = {"string": (str, "text"), "boolean": (bool, "true or false")}
    parameters = {name: value for name, value in _map(body, "parameters").items() if value is not None}
    for name, value in parameters.items():
        field = schema["properties"].get(name)
        if field is None:
            raise BrokerError(400, f"parameters.{name}: unknown; expected {', '.join(schema['properties'])}")
        kind, word = types[field["type"]]
        if not isinstance(value, kind):
            raise BrokerError(400, f"parameters.{name}: expected {word}, got {describe_value(value)}")
    return parameters


def _patterns(parameters: Document, name: str) -> tuple[str, ...]:
    """Return the patterns of a parameter; an empty text has none."""
    text = parameters.get(name, BINDING_PARAMETERS["properties"][name]["default"])
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for pattern in found:
        if problem := pattern_problem(pattern):
            raise BrokerError(400, f"parameters.{name}: {problem}")
    return found
