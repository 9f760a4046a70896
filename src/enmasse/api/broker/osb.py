"""Routes of the Open Service Broker API 2.17, by which platforms order address spaces and users of them.

See https://github.com/openservicebrokerapi/servicebroker/blob/v2.17/spec.md; its terms are used here.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.broker.bindings import READY_S, Bindings
from enmasse.api.broker.catalog import Catalog
from enmasse.api.broker.instances import Caller, Instances, is_usable, reasons
from enmasse.api.broker.requests import (
    BrokerError,
    check_version,
    is_asynchronous,
    needed,
    osb_error,
    read_bind,
    read_provision,
    read_update,
)
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from enmasse.api.broker.bindings import Binding
    from enmasse.api.broker.instances import Instance
    from enmasse.control.store.registry import Registry

    Endpoint = Callable[[Request], Awaitable[Response]]

OSB_PATH = "/osbapi/v2"

_IDENTITY_HEADER = "X-Broker-API-Request-Identity"
_ASYNC = "this operation is asynchronous: send accepts_incomplete=true, and poll last_operation"
_PROVISION, _UPDATE, _DEPROVISION, _BIND = "provision", "update", "deprovision", "bind"

Document = dict[str, Any]


def broker_routes(registry: Registry, ready_s: float = READY_S) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of spaces and users.
        ready_s: the seconds that a request of a platform that does not poll waits for the user.
    """
    routes = _Routes(registry, ready_s)
    instance = "/service_instances/{instance}"
    binding = f"{instance}/service_bindings/{{binding}}"
    return [
        Route(f"{OSB_PATH}{path}", _in_form(endpoint), methods=[method])
        for path, method, endpoint in (
            ("/catalog", "GET", routes.catalog),
            (instance, "PUT", routes.provision),
            (instance, "GET", routes.fetch),
            (instance, "PATCH", routes.update),
            (instance, "DELETE", routes.deprovision),
            (f"{instance}/last_operation", "GET", routes.last_operation),
            (binding, "PUT", routes.bind),
            (binding, "GET", routes.fetch_binding),
            (binding, "DELETE", routes.unbind),
            (f"{binding}/last_operation", "GET", routes.last_operation_of_binding),
        )
    ]


def _in_form(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint with the check of the version, and errors in the form of the specification."""

    @wraps(endpoint)
    async def served(request: Request) -> Response:
        try:
            check_version(request)
            response = await endpoint(request)
        except EnmasseError as error:
            response = osb_error(error)
        if identity := request.headers.get(_IDENTITY_HEADER):
            response.headers[_IDENTITY_HEADER] = identity[:255]
        return response

    return served


class _Routes:
    def __init__(self, registry: Registry, ready_s: float) -> None:
        self._catalog = Catalog(registry.store)
        self._instances = Instances(registry, self._catalog)
        self._bindings = Bindings(registry, ready_s)

    async def catalog(self, _request: Request) -> Response:
        return JSONResponse(self._catalog.document())

    # Instances

    async def provision(self, request: Request) -> Response:
        wanted = await read_provision(request)
        if not is_asynchronous(request):
            raise BrokerError(422, _ASYNC, "AsyncRequired")
        found, is_new = await self._instances.provision(_instance_id(request), wanted, _caller(request))
        if not is_new and is_usable(found.space):
            return JSONResponse({})
        return JSONResponse({"operation": _PROVISION}, status_code=202)

    async def fetch(self, request: Request) -> Response:
        found = self._instances.known(_instance_id(request), _caller(request), "get")
        if not is_usable(found.space) and not _was_usable(found):
            raise BrokerError(404, f"the instance is not ready yet: {reasons(found.space)}")
        kept = found.kept
        parameters = {"name": kept.name, "namespace": kept.namespace}
        return JSONResponse({"service_id": kept.service, "plan_id": kept.plan, "parameters": parameters})

    async def update(self, request: Request) -> Response:
        wanted = await read_update(request)
        if not is_asynchronous(request):
            raise BrokerError(422, _ASYNC, "AsyncRequired")
        _, is_changed = await self._instances.update(_instance_id(request), wanted, _caller(request))
        return JSONResponse({"operation": _UPDATE}, status_code=202) if is_changed else JSONResponse({})

    async def deprovision(self, request: Request) -> Response:
        service, _ = needed(request, "service_id", "plan_id")
        if not is_asynchronous(request):
            raise BrokerError(422, _ASYNC, "AsyncRequired")
        try:
            self._instances.deprovision(_instance_id(request), service, _caller(request))
        except BrokerError as error:
            return _gone_or(error)
        return JSONResponse({"operation": _DEPROVISION}, status_code=202)

    async def last_operation(self, request: Request) -> Response:
        identity, operation = _instance_id(request), request.query_params.get("operation", "")
        gone = 410 if operation in ("", _DEPROVISION) else 404
        try:
            found = self._instances.known(identity, _caller(request), "get", gone=gone)
        except BrokerError as error:
            return _gone_or(error)
        return JSONResponse(_state(found))

    # Bindings

    async def bind(self, request: Request) -> Response:
        wanted = await read_bind(request)
        identity, caller = _binding_id(request), _caller(request)
        instance = self._instances.known(_instance_id(request), caller, "get", gone=400)
        binding, is_new = await self._bindings.bind(instance, identity, wanted, caller)
        if not binding.is_usable:
            if is_asynchronous(request):
                return JSONResponse({"operation": _BIND}, status_code=202)
            binding = await self._bindings.until_usable(instance, identity)
        # The endpoints of the space may have been set while waiting for the user.
        instance = self._instances.known(_instance_id(request), caller, "get")
        credentials = self._bindings.credentials(instance, binding)
        return JSONResponse({"credentials": credentials}, status_code=201 if is_new else 200)

    async def fetch_binding(self, request: Request) -> Response:
        instance, binding = self._known_binding(request, gone=404)
        if not binding.is_usable or binding.is_being_deleted:
            raise BrokerError(404, f"the binding is not ready: {binding.reasons}")
        credentials = self._bindings.credentials(instance, binding)
        return JSONResponse({"credentials": credentials, "parameters": binding.kept["parameters"]})

    async def unbind(self, request: Request) -> Response:
        needed(request, "service_id", "plan_id")
        caller = _caller(request)
        try:
            instance = self._instances.known(_instance_id(request), caller, "get", gone=410)
            self._bindings.unbind(instance, _binding_id(request), caller)
        except BrokerError as error:
            return _gone_or(error)
        return JSONResponse({})

    async def last_operation_of_binding(self, request: Request) -> Response:
        gone = 404 if request.query_params.get("operation") == _BIND else 410
        try:
            _, binding = self._known_binding(request, gone=gone)
        except BrokerError as error:
            return _gone_or(error)
        if binding.is_usable and not binding.is_being_deleted:
            return JSONResponse({"state": "succeeded"})
        return JSONResponse({"state": "in progress", "description": binding.reasons})

    def _known_binding(self, request: Request, *, gone: int) -> tuple[Instance, Binding]:
        caller = _caller(request)
        instance = self._instances.known(_instance_id(request), caller, "get", gone=gone)
        # The answer has a password: a caller who may not create a user may not have it either.
        caller.require("create", "user.enmasse.io", "messagingusers", instance.namespace)
        binding = self._bindings.find(instance, _binding_id(request))
        if binding is None:
            raise BrokerError(gone, f"there is no binding '{_binding_id(request):.100}'")
        return instance, binding


def _state(found: Instance) -> Document:
    if found.is_being_deleted:
        return {"state": "in progress", "description": f"the address space is being deleted: {reasons(found.space)}"}
    if is_usable(found.space):
        return {"state": "succeeded"}
    has_failed = (found.space.get("status") or {}).get("phase") == "Failed"
    return {"state": "failed" if has_failed else "in progress", "description": reasons(found.space)}


def _was_usable(found: Instance) -> bool:
    """Return whether an instance can be used, although its present plan may not be in effect yet."""
    return bool((found.space.get("status") or {}).get("isReady"))


def _gone_or(error: BrokerError) -> Response:
    """Return the answer to an error; 410 has an empty body."""
    return JSONResponse({}, status_code=410) if error.code == 410 else osb_error(error)


def _caller(request: Request) -> Caller:
    return Caller(request.state.requester, request.state.rights)


def _instance_id(request: Request) -> str:
    return str(request.path_params["instance"])


def _binding_id(request: Request) -> str:
    return str(request.path_params["binding"])
