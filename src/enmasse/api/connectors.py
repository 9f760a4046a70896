"""Route to the test of a space's connector: each of its servers in turn, as the node reaches it that would use it.

It is posted, always with a body, if only ``{}``: so that no web page of another origin can send one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.requests import OBJECTS, place, read_body
from enmasse.api.kube.status import RequestError
from enmasse.control.spaces.connectors import servers_of
from enmasse.control.users.authentication_services import MissingError
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.objects import restore
from enmasse.model.schema.schema import describe_value
from enmasse.model.schema.subresources import CONNECTOR_TEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.control.context import Context
    from enmasse.control.ports import ConnectorServer, ConnectorTester
    from enmasse.model.kinds.connectors import Connector

_LONGEST = 1024

_WILDCARDS = frozenset("*#$")
"""The letters of patterns that mean more than one address."""


def connector_routes(context: Context, nodes: Mapping[str, ConnectorTester]) -> list[Route]:
    """Return the routes.

    Args:
        context: the context of the controllers.
        nodes: the ports to the tests of nodes, by their names.
    """

    async def test(request: Request) -> Response:
        """Test the servers of a connector."""
        namespace, name = place(request)
        body = await read_body(request, OBJECTS)
        address = body.get("address", "")
        if not isinstance(address, str) or len(address) > _LONGEST:
            raise RequestError(400, f"address: expected an address over there, got {describe_value(address)}")
        space = restore(context.store.get(ADDRESS_SPACE.name, namespace, name))
        assert isinstance(space, AddressSpace)
        connector = _find(space, request.path_params["connector"])
        try:
            servers = servers_of(connector, namespace, context.providers.find_secret)
        except MissingError as error:
            raise RequestError(409, f"connector '{connector.name}' waits: {error}") from None
        if not address:
            address = next((item.pattern for item in connector.addresses if not _WILDCARDS & set(item.pattern)), "")
        node = nodes[context.node_of(space.key).name]
        items = [await _test(node, space.key, server, address) for server in servers]
        answer = {"kind": CONNECTOR_TEST.kind, "apiVersion": ADDRESS_SPACE.api_version, "metadata": {}}
        return JSONResponse(answer | {"items": items})

    base = f"/apis/{ADDRESS_SPACE.api_version}/namespaces/{{namespace}}/{ADDRESS_SPACE.plural}/{{name}}"
    return [Route(f"{base}/{CONNECTOR_TEST.name}", test, methods=["POST"])]


def _find(space: AddressSpace, name: str) -> Connector:
    for connector in space.spec.connectors:
        if connector.name == name:
            return connector
    there = ", ".join(connector.name for connector in space.spec.connectors) or "none"
    raise RequestError(404, f"space {space.metadata.name} has no connector {name:.100}; it has {there}")


async def _test(node: ConnectorTester, space: str, server: ConnectorServer, address: str) -> dict[str, Any]:
    steps = await node.test_connector(space, server, address)
    return {
        "host": server.host,
        "port": server.port,
        "succeeded": all(step.succeeded for step in steps),
        "steps": [
            {
                "step": step.step,
                "succeeded": step.succeeded,
                "milliseconds": round(step.milliseconds, 1),
                "message": step.message,
            }
            for step in steps
        ],
    }
