"""Routes of the device registry; paths, codes and bodies are those of Eclipse Hono's registry management.

Rules:
1. A tenant's id is ``NAMESPACE.NAME``: roles bound in the namespace count for it, and for all that it has. A tenant
   without a namespace is for those whom a role for the whole installation allows it.
2. Who may not read a tenant is told that there is none, as of one that there is not.
3. The registry blocks, and so is called in threads of its own. Searches that look at every device are done two at a
   time, so that others find a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from enmasse.api.kube.requests import media_type, read_value
from enmasse.api.kube.status import RequestError, answer_error
from enmasse.api.registry.operations import CSV, JSON_LINES, MAX_WAIT_S, OPERATIONS, PREFIX, openapi_document
from enmasse.api.registry.rows import ms_of, time_of
from enmasse.control.access.roles import DEVICE_REGISTRY
from enmasse.errors import EnmasseError
from enmasse.identity.rbac import AccessRequest, describe_refusal
from enmasse.iot.bulk import read_csv, read_json_lines, write_csv, write_json_lines
from enmasse.iot.command_store import MAX_IN_PAGE, PAGE
from enmasse.iot.commands import read_command
from enmasse.iot.documents import RegistryError, RegistryFullError
from enmasse.iot.search import read_query
from enmasse.iot.tenant_registry import Expected, namespace_of, no_tenant
from enmasse.model.kinds.projects import IoTProject
from enmasse.model.schema.kinds import IOT_PROJECT, NAMESPACE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from enmasse.control.access.rights import Rights
    from enmasse.control.projects.commands import CommandDispatcher
    from enmasse.control.store.registry import Registry
    from enmasse.identity.rbac import Requester
    from enmasse.iot.bulk import Existing
    from enmasse.iot.registry import DeviceRegistry
    from enmasse.iot.search import Query

    Endpoint = Callable[[Request], Awaitable[Response]]

T = TypeVar("T")

_THREADS: Final = 6
_SLOW: Final = 2

TENANTS: Final = "tenants"
DEVICES: Final = "devices"
CREDENTIALS: Final = "credentials"
COMMANDS: Final = "commands"
VOUCH: Final = "tenants/vouch"
ALIAS: Final = "tenants/alias"

_EXISTING: Final[tuple[Existing, ...]] = ("fail", "replace", "skip")


def registry_routes(
    devices: DeviceRegistry, registry: Registry, commands: CommandDispatcher | None = None
) -> list[Route]:
    """Return the routes.

    Args:
        devices: the device registry.
        registry: the registry of the resources, for the namespaces.
        commands: delivers commands to devices; None: they are refused.
    """
    routes = _Routes(devices, registry, commands)
    return [
        Route(PREFIX + operation.path, _answering(getattr(routes, operation.name)), methods=[operation.method])
        for operation in OPERATIONS
    ]


def _answering(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint that answers errors in the form of Hono."""

    async def safe(request: Request) -> Response:
        try:
            return await endpoint(request)
        except EnmasseError as error:
            return _refusal(error)

    return safe


def _refusal(error: EnmasseError) -> Response:
    if isinstance(error, RegistryError):
        code = error.code
    elif isinstance(error, RegistryFullError):
        code = 507
    elif isinstance(error, RequestError):
        code = 400 if error.code == 415 else error.code  # Hono knows no 415
    else:
        code = answer_error(error).status_code
    answer = JSONResponse({"error": str(error)}, status_code=code)
    if code == 503:
        answer.headers["Retry-After"] = "1"
    return answer


class _Routes:
    def __init__(self, devices: DeviceRegistry, registry: Registry, commands: CommandDispatcher | None) -> None:
        self._devices = devices
        self._commands = commands
        self._store = registry.store
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="device registry")
        self._slow = asyncio.Semaphore(_SLOW)

    async def _run(self, act: Callable[..., T], *arguments: Any) -> T:
        """Have something done in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(act, *arguments))

    async def _search(self, search: Callable[..., tuple[int, list[Any]]], query: Query, *arguments: Any) -> Response:
        """Answer a search, in its turn if it is slow."""
        if query.is_slow:
            async with self._slow:
                total, found = await self._run(search, *arguments)
        else:
            total, found = await self._run(search, *arguments)
        if not total:
            raise RegistryError(404, "nothing matches")  # as Hono has it
        return JSONResponse({"total": total, "result": found})

    # Tenants

    async def create_tenant(self, request: Request) -> Response:
        namespace = request.query_params.get("namespace", "")
        made = self._devices.new_tenant_id()
        return await self._create_tenant(request, f"{namespace}.{made}" if namespace else made)

    async def create_tenant_with_id(self, request: Request) -> Response:
        return await self._create_tenant(request, _tenant_id(request))

    async def _create_tenant(self, request: Request, identity: str) -> Response:
        tenant = self._tenant(request, identity, "create", TENANTS)
        self._expect_namespace(namespace_of(tenant))
        document = await _body(request, optional=True)
        create = partial(self._devices.create_tenant, is_granted=_may(request, namespace_of(tenant), ALIAS))
        version = await self._run(create, tenant, document)
        try:
            self._expect_namespace(namespace_of(tenant))
        except RegistryError:  # it went meanwhile, and its tenants with it, but perhaps before this one came
            await self._run(self._devices.forget_namespace, namespace_of(tenant))
            raise
        return _created(request, f"{PREFIX}/tenants/{identity}", identity, version)

    async def search_tenants(self, request: Request) -> Response:
        query = read_query(request.query_params.multi_items())
        rights, requester = _who(request)
        seen = [
            namespace
            for namespace in await self._run(self._devices.namespaces)
            if rights.allows(requester, AccessRequest("list", DEVICE_REGISTRY, TENANTS, namespace))
        ]
        return await self._search(self._devices.search_tenants, query, query, seen)

    async def tenant(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", TENANTS)
        return _found(*await self._run(self._devices.tenant, tenant))

    async def usage(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", TENANTS)
        found = await self._run(self._devices.usage, tenant)
        answer: dict[str, Any] = {}
        for name, unit, size in (("data-volume", "bytes", 1), ("connection-duration", "minutes", 60_000)):
            if name in found:
                since, used = found[name]
                answer[name] = {"since": time_of(since * 1000), unit: used // size}
        return JSONResponse(answer)

    async def update_tenant(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "update", TENANTS)
        project = self._project_of(tenant)
        if project is not None and project["spec"].get("configuration") is not None:
            raise RegistryError(409, f"the IoTProject {tenant} says what this tenant is, in its configuration")
        document = await _body(request)
        update = partial(self._devices.update_tenant, is_granted=_may(request, namespace_of(tenant), ALIAS))
        return _updated(await self._run(update, tenant, document, _expected(request)))

    async def delete_tenant(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "delete", TENANTS)
        if self._project_of(tenant) is not None:
            raise RegistryError(409, f"the tenant is that of the IoTProject {tenant}: delete this")
        await self._run(self._devices.delete_tenant, tenant, _expected(request))
        return Response(status_code=204)

    async def grant_alias(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "create", ALIAS)
        return JSONResponse({"alias": await self._run(self._devices.grant_alias, tenant)})

    # Authorities

    async def authorities(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", TENANTS)
        return JSONResponse({"authorities": await self._run(self._devices.authorities, tenant)})

    async def nonce(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "update", TENANTS)
        found = await self._run(self._devices.nonce, tenant, _authority_id(request))
        return JSONResponse(found | {"ends": time_of(found["ends"] * 1000)})

    async def prove_authority(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "update", TENANTS)
        given = await _body(request)
        await self._run(self._devices.prove_authority, tenant, _authority_id(request), given)
        return Response(status_code=204)

    async def vouch_for_authority(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "create", VOUCH)
        await self._run(self._devices.vouch_for_authority, tenant, _authority_id(request))
        return Response(status_code=204)

    # Devices

    async def create_device(self, request: Request) -> Response:
        return await self._create_device(request, None)

    async def create_device_with_id(self, request: Request) -> Response:
        return await self._create_device(request, _device_id(request))

    async def _create_device(self, request: Request, device: str | None) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "create", DEVICES)
        document, user = await _body(request, optional=True), _who(request)[1].name
        identity, version = await self._run(self._devices.create_device, tenant, device, document, user)
        return _created(request, f"{PREFIX}/devices/{tenant}/{identity}", identity, version)

    async def search_devices(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "list", DEVICES)
        query = read_query(request.query_params.multi_items())
        return await self._search(self._devices.search_devices, query, tenant, query)

    async def device(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", DEVICES)
        device = _device_id(request)
        document, version = await self._run(self._devices.device, tenant, device)
        since_ms = ms_of(document["status"].get("created"))
        seen = None if self._commands is None else self._commands.seen(tenant, device, since_ms)
        if seen is None and self._commands is not None:
            kept = await self._run(self._commands.store.last_seen, tenant, [device])
            if kept.get(device, 0) >= since_ms:
                document["status"]["last-seen"] = time_of(kept[device])
        if seen is not None:
            document["status"] |= {
                "connected": seen.is_connected,
                "last-seen": time_of(seen.at_ms),
                "connection-events": [{"event": event, "time": time_of(at)} for event, at in seen.events],
            }
        return _found(document, version)

    async def update_device(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "update", DEVICES)
        document, user = await _body(request), _who(request)[1].name
        device, expected = _device_id(request), _expected(request)
        return _updated(await self._run(self._devices.update_device, tenant, device, document, user, expected))

    async def delete_device(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "delete", DEVICES)
        await self._run(self._devices.delete_device, tenant, _device_id(request), _expected(request))
        return Response(status_code=204)

    async def delete_devices(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "deletecollection", DEVICES)
        await self._run(self._devices.delete_devices, tenant)
        return Response(status_code=204)

    # Credentials

    async def credentials(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", CREDENTIALS)
        return _found(*await self._run(self._devices.credentials, tenant, _device_id(request)))

    async def update_credentials(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "update", CREDENTIALS)
        given, expected = await _body(request), _expected(request)
        version = await self._run(self._devices.update_credentials, tenant, _device_id(request), given, expected)
        return _updated(version)

    # Many at once

    async def import_devices(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "create", DEVICES)
        self._tenant(request, tenant, "update", CREDENTIALS)
        existing = next((it for it in _EXISTING if it == request.query_params.get("existing", "fail")), None)
        if existing is None:
            raise RegistryError(400, f"existing: expected one of {', '.join(_EXISTING)}")
        if existing == "replace":
            self._tenant(request, tenant, "update", DEVICES)
        readers = {JSON_LINES: read_json_lines, CSV: read_csv}
        reader = readers.get(media_type(request))
        if reader is None:
            raise RegistryError(400, f"expected content type {' or '.join(readers)}, got '{media_type(request)}'")
        try:
            text = (await request.body()).decode()
        except UnicodeDecodeError as error:
            raise RegistryError(400, f"the body is not UTF-8: {error}") from None
        user = _who(request)[1].name

        def work() -> dict[str, Any]:
            return self._devices.import_devices(tenant, reader(text), existing, user).to_dict()

        return JSONResponse(await self._run(work))

    async def export_devices(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "list", DEVICES)
        form = request.query_params.get("format", "json")
        if form not in ("json", "csv"):
            raise RegistryError(400, "format: expected json or csv")
        await self._run(self._devices.tenant, tenant)  # refuses before anything is sent

        def lines() -> Iterator[bytes]:
            is_first = True
            for some in self._devices.all_devices(tenant):
                yield write_csv(some, with_head=is_first) if form == "csv" else write_json_lines(some)
                is_first = False

        return StreamingResponse(lines(), media_type=CSV if form == "csv" else JSON_LINES)

    async def expected_devices(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "list", DEVICES)
        if space := request.query_params.get("space"):
            document = self._project_of(tenant)
            project = None if document is None else restore(document)
            if not isinstance(project, IoTProject) or project.space != space:
                raise RegistryError(404, f"no IoTProject of space '{space:.63}' has the tenant {tenant:.127}")

        def work() -> tuple[str, bytes]:
            content = json.dumps(self._devices.expected_devices(tenant), separators=(",", ":")).encode()
            return f'"{hashlib.sha256(content).hexdigest()[:32]}"', content

        tag, content = await self._run(work)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(content, media_type="application/json", headers={"ETag": tag})

    # Commands

    async def send_command(self, request: Request) -> Response:
        tenant, device = self._tenant(request, _tenant_id(request), "create", COMMANDS), _device_id(request)
        asked, commands = read_command(await _body(request), to_many=False), self._dispatcher
        if asked.mode != "direct":
            identity = await self._run(commands.store.queue, tenant, device, asked)
            commands.wake(tenant, device)
            commands.changed()
            request.state.written = [identity]
            return JSONResponse({"id": identity, "state": "queued"})
        await self._run(self._devices.device, tenant, device)  # refuses what there is not
        wait_s = _seconds(request.query_params.get("wait", "0"))
        return JSONResponse(await commands.ask(tenant, device, asked, wait_s))

    async def send_commands(self, request: Request) -> Response:
        tenant, commands = self._tenant(request, _tenant_id(request), "create", COMMANDS), self._dispatcher
        asked = read_command(await _body(request), to_many=True)
        batch, devices = await self._run(commands.store.queue_many, tenant, asked)
        for device in devices:
            commands.wake(tenant, device)
        commands.changed()
        request.state.written = [batch]
        return JSONResponse({"batch": batch, "devices": len(devices)}, status_code=202)

    async def search_commands(self, request: Request) -> Response:
        tenant, query = self._tenant(request, _tenant_id(request), "list", COMMANDS), request.query_params
        found = partial(
            self._dispatcher.store.search,
            tenant,
            device=query.get("device"),
            state=query.get("state"),
            batch=query.get("batch"),
            size=_whole(query, "pageSize", PAGE, MAX_IN_PAGE),
            offset=_whole(query, "pageOffset", 0, 2**53),
        )
        await self._run(self._devices.tenant, tenant)
        return JSONResponse(await self._run(found))

    async def command(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "get", COMMANDS)
        return JSONResponse(await self._run(self._dispatcher.store.command, tenant, request.path_params["command"]))

    async def cancel_command(self, request: Request) -> Response:
        tenant = self._tenant(request, _tenant_id(request), "delete", COMMANDS)
        identity, user = request.path_params["command"], _who(request)[1].name
        await self._run(self._dispatcher.store.cancel, tenant, identity, user)
        self._dispatcher.changed()
        return Response(status_code=204)

    @property
    def _dispatcher(self) -> CommandDispatcher:
        if self._commands is None:
            raise RegistryError(503, "this process delivers no commands")
        return self._commands

    async def describe(self, _request: Request) -> Response:
        return JSONResponse(openapi_document())

    # Who may do what

    def _tenant(self, request: Request, identity: str, verb: str, resource: str) -> str:
        """Return the id of a tenant, if the client may do something with what it has.

        Raises:
            RegistryError: 404 when the client may not know of it, 403 when it may.
        """
        rights, requester = _who(request)
        namespace = namespace_of(identity)
        name = identity.removeprefix(f"{namespace}.") if namespace else identity
        ask = AccessRequest(verb, DEVICE_REGISTRY, resource, namespace, name)
        if not rights.allows(requester, ask):
            if rights.allows(requester, AccessRequest("get", DEVICE_REGISTRY, TENANTS, namespace, name)):
                raise RegistryError(403, describe_refusal(requester, ask))
            raise RegistryError(404, no_tenant(identity))
        return identity

    def _project_of(self, tenant: str) -> dict[str, Any] | None:
        """Return the project that a tenant belongs to."""
        namespace = namespace_of(tenant)
        return self._store.find(IOT_PROJECT.name, namespace, tenant.removeprefix(f"{namespace}."))

    def _expect_namespace(self, namespace: str) -> None:
        """Refuse a tenant of a namespace that there is not, or that is about to go.

        Raises:
            RegistryError: 404 or 403.
        """
        found = self._store.find(NAMESPACE.name, "", namespace) if namespace else {"metadata": {}}
        if found is None:
            raise RegistryError(404, f"there is no namespace '{namespace:.63}'")
        if found["metadata"].get("deletionTimestamp"):
            raise RegistryError(403, f"the namespace {namespace} is about to go")


def _who(request: Request) -> tuple[Rights, Requester]:
    return request.state.rights, request.state.requester


def _may(request: Request, namespace: str, resource: str) -> bool:
    """Return true if the client may make something of the tenants of a namespace."""
    rights, requester = _who(request)
    return rights.allows(requester, AccessRequest("create", DEVICE_REGISTRY, resource, namespace))


def _authority_id(request: Request) -> str:
    return str(request.path_params["authority"])


def _tenant_id(request: Request) -> str:
    return str(request.path_params["tenant"])


def _device_id(request: Request) -> str:
    return str(request.path_params["device"])


async def _body(request: Request, *, optional: bool = False) -> Any:
    if optional and not await request.body():
        return {}
    return await read_value(request, ("application/json",))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= MAX_WAIT_S:
        raise RegistryError(400, f"wait: expected seconds from 0 to {MAX_WAIT_S}, got '{text:.40}'")
    return found


def _whole(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 17 else -1
    if not 0 <= found <= most:
        raise RegistryError(400, f"{name}: expected a whole number from 0 to {most}, got '{text:.40}'")
    return found


def _expected(request: Request) -> Expected:
    """Return the versions in If-Match; Hono's clients send them without quotation marks."""
    given = request.headers.getlist("if-match")
    if not given:
        return Expected()
    return Expected(tuple(part.strip().removeprefix('"').removesuffix('"') for part in ",".join(given).split(",")))


def _etag(version: str) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


def _created(request: Request, place: str, identity: str, version: str) -> Response:
    request.state.written = [identity]  # for the audit log
    return JSONResponse({"id": identity}, status_code=201, headers=_etag(version) | {"Location": place})


def _updated(version: str) -> Response:
    return Response(status_code=204, headers=_etag(version))


def _found(document: Any, version: str) -> Response:
    return JSONResponse(document, headers=_etag(version))
