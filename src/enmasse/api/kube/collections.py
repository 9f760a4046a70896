"""Listing, watching and deleting the objects of a kind.

A list is a snapshot of one version, in pages if the client asks for pages. The version is chosen as in Kubernetes:
without ``resourceVersion``, or with 0, the present one; with another and ``resourceVersionMatch=Exact``, that one;
with ``NotOlderThan``, the present one if that is not older.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from enmasse.api.kube.negotiation import form_of
from enmasse.api.kube.requests import OBJECTS, Options, read_body
from enmasse.api.kube.status import RequestError
from enmasse.api.kube.tables import Shape, include_of
from enmasse.api.kube.watch import WatchRequest, WatchResponse
from enmasse.control.errors import FutureVersionError, ResourceNotFoundError
from enmasse.control.store.listing import Listing, ListToken, list_objects
from enmasse.control.store.registry import Preconditions
from enmasse.model.schema.selectors import parse_selector

if TYPE_CHECKING:
    from starlette.requests import Request

    from enmasse.api.kube.served import Served
    from enmasse.api.kube.watch import Watches
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.selectors import Selector

Document = dict[str, Any]

_DELETED_AT_ONCE = 50  # each is a commit of its own; other requests are served in between
_SHAPED_AT_ONCE = 500  # some ten milliseconds of rows of a table


def _compact(document: Document) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _listed(head: Document, field: str, texts: list[str]) -> Response:
    """Return the answer with objects that are text already."""
    return Response(f'{_compact(head)[:-1]},"{field}":[{",".join(texts)}]}}', media_type="application/json")


class Collection:
    """The objects of one kind, in the namespace of the path, or in all.

    Args:
        served: the kind and the version.
        registry: the registry of its objects.
        watches: all open ones.
    """

    def __init__(self, served: Served, registry: Registry, watches: Watches) -> None:
        self._served = served
        self._registry = registry
        self._watches = watches

    async def list_or_watch(self, request: Request) -> Response:
        """List the objects, or watch them with ``watch=true``."""
        options = Options(request, self._served.api_version)
        is_watch = options.flag("watch")
        namespace = self._namespace(request)
        selector = parse_selector(options.text("labelSelector"), options.text("fieldSelector"))
        include = include_of(options.text("includeObject"))
        shape = Shape(self._served.kind.name, form_of(request, listing=not is_watch), include)
        if is_watch:
            return self._watch(options, namespace, selector, shape)
        listing = await self._list(options, namespace, selector)
        metadata: Document = {"resourceVersion": str(listing.version)}
        if listing.token is not None:
            metadata["continue"] = listing.token.encode()
            if listing.remaining:
                metadata["remainingItemCount"] = listing.remaining
        return await self._answer(listing.bodies, metadata, shape)

    async def delete_chosen(self, request: Request) -> Response:
        """Delete the selected objects, one after the other."""
        options = Options(request, self._served.api_version)
        body = await read_body(request, OBJECTS, optional=True)
        selector = parse_selector(options.text("labelSelector"), options.text("fieldSelector"))
        is_dry = options.is_dry or body.get("dryRun") == ["All"]
        keep = not options.deletes_dependents(body.get("propagationPolicy"))
        listing = await self._list(options, self._namespace(request), selector)
        for number, text in enumerate(listing.bodies):
            metadata = json.loads(text)["metadata"]
            try:
                self._registry.delete(
                    self._served.kind.name,
                    metadata.get("namespace", ""),
                    metadata["name"],
                    preconditions=Preconditions(uid=metadata["uid"]),
                    dry_run=is_dry,
                    user=options.requester,
                    keep_dependents=keep,
                )
            except ResourceNotFoundError:
                continue  # deleted meanwhile
            if number % _DELETED_AT_ONCE == 0:
                await asyncio.sleep(0)
        shape = Shape(self._served.kind.name, form_of(request, listing=True))
        return await self._answer(listing.bodies, {"resourceVersion": str(self._registry.store.version)}, shape)

    async def _list(self, options: Options, namespace: str | None, selector: Selector) -> Listing:
        token = options.text("continue")
        match, version = options.text("resourceVersionMatch"), options.number("resourceVersion")
        limit = options.number("limit")
        if match not in ("", "Exact", "NotOlderThan"):
            raise RequestError(400, f"resourceVersionMatch: expected Exact or NotOlderThan, got '{match[:40]}'")
        if token and (match or version):
            raise RequestError(400, "resourceVersion: not together with continue, which has a version of its own")
        if match and not options.text("resourceVersion"):
            raise RequestError(400, "resourceVersionMatch: only together with resourceVersion")
        if match == "Exact" and not version:
            raise RequestError(400, "resourceVersionMatch: Exact is not possible for resourceVersion 0")
        store = self._registry.store
        if version > store.version:
            raise FutureVersionError(version, store.version)
        is_exact = match == "Exact" or bool(limit and version and not match)
        return await list_objects(
            store,
            self._served.kind.name,
            namespace,
            selector,
            limit=limit,
            at=version if is_exact else 0,
            token=ListToken.decode(token) if token else None,
        )

    def _watch(self, options: Options, namespace: str | None, selector: Selector, shape: Shape) -> Response:
        initial = options.text("sendInitialEvents")
        after = options.number("resourceVersion") or None
        if initial and options.text("resourceVersionMatch") != "NotOlderThan":
            raise RequestError(422, "sendInitialEvents: only together with resourceVersionMatch=NotOlderThan")
        if after is not None:
            # Raises while the answer can still say 410.
            self._registry.store.changes(after, kinds=(self._served.kind.name,), namespace=namespace, limit=1)
        if initial:
            after = None if options.flag("sendInitialEvents") else (after or self._registry.store.version)
        follow = WatchRequest(
            store=self._registry.store,
            served=self._served,
            namespace=namespace,
            selector=selector,
            shape=shape,
            after=after,
            wants_bookmarks=options.flag("allowWatchBookmarks"),
            marks_initial=options.flag("sendInitialEvents"),
            timeout_s=options.seconds("timeoutSeconds"),
        )
        return WatchResponse(self._watches, follow, (options.requester.name, namespace or "", options.network))

    async def _answer(self, bodies: list[str], metadata: Document, shape: Shape) -> Response:
        head = {
            "kind": self._served.list_kind,
            "apiVersion": self._served.api_version,
            "metadata": metadata,
        }
        if shape.is_plain and self._served.version == self._served.kind.version:
            # The stored text as it is: for 100,000 objects that is seconds less than reading and writing it.
            return _listed(head, "items", bodies)
        texts: list[str] = []
        for at in range(0, max(1, len(bodies)), _SHAPED_AT_ONCE):
            items = [
                json.loads(body) | {"apiVersion": self._served.api_version}
                for body in bodies[at : at + _SHAPED_AT_ONCE]
            ]
            shaped = shape.many(head | {"items": items})
            field = "rows" if "rows" in shaped else "items"
            texts += map(_compact, shaped.pop(field))
            await asyncio.sleep(0)
        return _listed(shaped, field, texts)

    def _namespace(self, request: Request) -> str | None:
        """Return the namespace, None for all; kinds without namespaces have a history of their own."""
        namespace: str | None = request.path_params.get("namespace")
        return namespace if self._served.is_namespaced else ""
