"""What somebody may do, asked by themselves: behind ``kubectl auth can-i`` and ``kubectl auth whoami``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from enmasse.api.bodies import OBJECTS, media_type, read_body
from enmasse.api.reviews_protobuf import PROTOBUF, read_review
from enmasse.api.status import RequestError
from enmasse.identity.rbac import Ask, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.rights import Rights
    from enmasse.identity.requester import Requester

__all__ = ["review_routes"]

Document = dict[str, Any]

AUTHORIZATION = "authorization.k8s.io/v1"
AUTHENTICATION = "authentication.k8s.io/v1"

_ALL = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))


def review_routes(rights: Rights) -> APIRouter:
    """Return the routes.

    Args:
        rights: knows what everybody may do.
    """
    router = APIRouter(tags=["access"])

    def serve(group_version: str, kind: str, review: Callable[[Requester, Document], Document]) -> None:
        async def endpoint(request: Request) -> Response:
            if media_type(request) == PROTOBUF:
                body = read_review(await request.body(), kind)
            else:
                body = await read_body(request, OBJECTS)
            spec = body.get("spec") or {}
            if body.get("kind", kind) != kind or not isinstance(spec, dict):
                raise RequestError(400, f"expected a {kind} with a map as spec")
            found = {
                "kind": kind,
                "apiVersion": group_version,
                "metadata": {},
                "spec": spec,
                "status": review(request.state.requester, spec),
            }
            return JSONResponse(found, status_code=201)

        router.add_api_route(
            f"/apis/{group_version}/{kind.lower()}s",
            endpoint,
            methods=["POST"],
            response_class=JSONResponse,
            response_model=None,
            summary=f"{kind}: what one may do oneself",
            operation_id=f"create_{kind.lower()}s",
        )

    def may(requester: Requester, spec: Document) -> Document:
        return {"allowed": rights.allows(requester, _ask(spec))}

    def all_rules(requester: Requester, spec: Document) -> Document:
        namespace = _text(spec, "namespace")
        rules = _ALL if requester.is_admin else rights.rules(requester, namespace)
        return {
            "resourceRules": [
                {
                    "verbs": list(rule.verbs),
                    "apiGroups": list(rule.groups),
                    "resources": list(rule.resources),
                    **({"resourceNames": list(rule.names)} if rule.names else {}),
                }
                for rule in rules
                if not rule.paths
            ],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths
            ],
            "incomplete": False,
        }

    def who(requester: Requester, _spec: Document) -> Document:
        return {"userInfo": {"username": requester.name, "groups": list(requester.groups)}}

    serve(AUTHORIZATION, "SelfSubjectAccessReview", may)
    serve(AUTHORIZATION, "SelfSubjectRulesReview", all_rules)
    serve(AUTHENTICATION, "SelfSubjectReview", who)
    return router


def _ask(spec: Document) -> Ask:
    of_resource, of_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(of_path, dict) and of_resource is None:
        return Ask(_text(of_path, "verb"), path=_text(of_path, "path"))
    if not isinstance(of_resource, dict) or of_path is not None:
        raise RequestError(400, "spec: expected either resourceAttributes or nonResourceAttributes")
    resource, sub = _text(of_resource, "resource"), _text(of_resource, "subresource")
    return Ask(
        _text(of_resource, "verb"),
        _text(of_resource, "group"),
        f"{resource}/{sub}" if sub else resource,
        _text(of_resource, "namespace"),
        _text(of_resource, "name"),
    )


def _text(document: Document, field: str) -> str:
    value = document.get(field) or ""
    if not isinstance(value, str):
        raise RequestError(400, f"{field}: expected a string")
    return value
