"""Actions on the messages of an address: purge, move, replay.

They are posted to a subresource, always with a body, if only ``{}``: so that no web page of another origin can send
one (see ``requests``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.requests import OBJECTS, Options, place, read_body
from enmasse.api.kube.status import RequestError
from enmasse.control.ports import MessageChoice
from enmasse.model.schema.kinds import ADDRESS
from enmasse.model.schema.schema import describe_value
from enmasse.model.schema.subresources import MOVE, PURGE, REPLAY

if TYPE_CHECKING:
    from enmasse.control.ports import MessageAdmin
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.subresources import Subresource

MAX_IDS = 10_000
"""Messages that one request names."""

Document = dict[str, Any]
Act = Callable[["MessageAdmin"], Callable[..., Awaitable[int]]]


def action_routes(
    registry: Registry, nodes: Mapping[str, MessageAdmin], node_of: Callable[[str], str]
) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the addresses.
        nodes: the ports to their messages, by the names of nodes.
        node_of: returns the name of the node of an address, by its key; raises if the node has something else
            under that name.
    """
    kind = ADDRESS

    def serve(action: Subresource, done: str, act: Act) -> Route:
        async def endpoint(request: Request) -> Response:
            namespace, name = place(request)
            body = _checked(action, await read_body(request, OBJECTS))
            is_dry = Options(request, kind.api_version).is_dry
            choice = MessageChoice(body.get("selector"), body.get("search") or "", body.get("ids"), is_dry)
            given = {"to": body["to"]} if "to" in body else {}
            address = registry.store.get(kind.name, namespace, name)
            node = nodes[node_of(f"{namespace}/{name}")]
            count = await act(node)(f"{namespace}/{name}", **given, choice=choice)
            what = f"{count} message" if count == 1 else f"{count} messages"
            where = done.format(address["spec"]["address"], given.get("to"))
            if is_dry:
                where = f"would be {where}"
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

        path = f"/apis/{kind.api_version}/namespaces/{{namespace}}/{kind.plural}/{{name}}/{action.name}"
        return Route(path, endpoint, methods=["POST"])

    return [
        serve(PURGE, "deleted from '{0}'", lambda node: node.purge),
        serve(MOVE, "moved from '{0}' to '{1}'", lambda node: node.move),
        serve(REPLAY, "sent back from '{0}' to where they came from", lambda node: node.replay),
    ]


def _checked(action: Subresource, body: Document) -> Document:
    known = [field.name for field in action.body]
    for name, value in body.items():
        if name not in known:
            raise RequestError(400, f"{name}: unknown; {action.name} takes {', '.join(known)}")
        if name != "ids" and value is not None and not isinstance(value, str):
            raise RequestError(400, f"{name}: expected a string, got {describe_value(value)}")
    if "to" in known and not body.get("to"):
        raise RequestError(400, "to: required: the address to move the messages to, as applications know it")
    return body | {"ids": _ids(body.get("ids"))}


def _ids(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > MAX_IDS:
        raise RequestError(400, f"ids: expected a list of at most {MAX_IDS} ids, got {describe_value(value)}")
    return tuple(value)
