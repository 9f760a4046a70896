"""What can be done to the messages of an address: purge, move, replay.

They are posted below the object, and always with a body, if only ``{}``: so that no web page of another
origin can send one (see ``bodies``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from enmasse.api.bodies import OBJECTS, read_body
from enmasse.api.status import RequestError
from enmasse.model.kinds import kind_named
from enmasse.model.schema import describe_value

if TYPE_CHECKING:
    from enmasse.control.ports import MessageAdmin
    from enmasse.control.registry import Registry

__all__ = ["ACTIONS", "action_routes"]

ACTIONS = ("purge", "move", "replay")

Document = dict[str, Any]


def action_routes(
    registry: Registry, messages: MessageAdmin, expect_on_node: Callable[[str], None] = lambda _key: None
) -> APIRouter:
    """Return the routes.

    Args:
        registry: where the addresses are declared.
        messages: the way to their messages.
        expect_on_node: raises where the node has something else under the name of an address.
    """
    kind = kind_named("Address")
    assert kind is not None
    router = APIRouter(prefix=f"/apis/{kind.api_version}", tags=[kind.name])

    def serve(action: str, done: str, arguments: tuple[str, ...], act: Callable[..., Awaitable[int]]) -> None:
        async def endpoint(request: Request, namespace: str, name: str) -> Response:
            given = _arguments(action, arguments, await read_body(request, OBJECTS))
            address = registry.store.get(kind.name, namespace, name)
            expect_on_node(f"{namespace}/{name}")
            count = await act(f"{namespace}/{name}", **given)
            what = f"{count} message" if count == 1 else f"{count} messages"
            where = done.format(address["spec"]["address"], given.get("to"))
            return JSONResponse(
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "message": f"{what} {where}",
                    "details": {
                        "name": name,
                        "group": kind.group,
                        "kind": kind.plural,
                        "uid": address["metadata"]["uid"],
                        "count": count,
                    },
                }
            )

        router.add_api_route(
            f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/{action}",
            endpoint,
            methods=["POST"],
            summary=f"{kind.name}: {action} its messages",
            response_class=JSONResponse,
            response_model=None,
            operation_id=f"{action}_{kind.plural}",
        )

    purge, move, replay = ACTIONS
    serve(purge, "deleted from '{0}'", ("selector",), messages.purge)
    serve(move, "moved from '{0}' to '{1}'", ("to", "selector"), messages.move)
    serve(replay, "sent back from '{0}' to where they came from", ("selector",), messages.replay)
    return router


def _arguments(action: str, known: tuple[str, ...], body: Document) -> Document:
    for name, value in body.items():
        if name not in known:
            raise RequestError(400, f"{name}: unknown; {action} takes {' and '.join(known)}")
        if value is not None and not isinstance(value, str):
            raise RequestError(400, f"{name}: expected a string, got {describe_value(value)}")
    if "to" in known and not body.get("to"):
        raise RequestError(400, "to: required: the address that the messages go to, as applications call it")
    return {"selector": None} | body
