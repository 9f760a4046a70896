"""Discovery: the groups, versions and kinds that the API serves, and its own version.

It is served as single documents, and in the aggregated form that kubectl prefers since 1.26.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.negotiation import JSON, MediaRange, choose
from enmasse.api.kube.served import SERVED, Served, group_prefix
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.subresources import REPORTS, Subresource
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGGREGATED = "apidiscovery.k8s.io"
_CATEGORY = "enmasse"

Document = dict[str, Any]


def discovery_routes() -> list[Route]:
    """Return the routes for discovery and version."""
    groups = list(dict.fromkeys(item.group for item in SERVED))
    named = [group for group in groups if group]
    routes: list[Route] = []

    def serve(path: str, document: Document, aggregated: Sequence[str] | None = None) -> None:
        async def endpoint(request: Request) -> Response:
            if aggregated is None:
                return JSONResponse(document)
            form = choose(
                request,
                [
                    (JSON, lambda wanted: "as" not in wanted.parameters, ""),
                    (JSON, lambda wanted: _wants_aggregated(wanted, "v2"), "v2"),
                    (JSON, lambda wanted: _wants_aggregated(wanted, "v2beta1"), "v2beta1"),
                ],
            )
            if not form:
                return JSONResponse(document)
            return JSONResponse(
                _aggregate(aggregated, form),
                media_type=f"{JSON};g={_AGGREGATED};v={form};as=APIGroupDiscoveryList",
            )

        routes.append(Route(path, endpoint))

    core = [item.version for item in SERVED if not item.group]
    versions = {"kind": "APIVersions", "versions": list(dict.fromkeys(core)), "serverAddressByClientCIDRs": []}
    serve("/api", versions, [group for group in groups if not group])
    listed = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in named]}
    serve("/apis", listed, named)
    for group in groups:
        if group:
            serve(f"/apis/{group}", {"kind": "APIGroup", "apiVersion": "v1"} | _group(group))
        for served in _versions(group):
            serve(f"{group_prefix(group)}/{served}", _resources(group, served))

    async def version(_request: Request) -> JSONResponse:
        return JSONResponse(_version())

    return [*routes, Route("/version", version)]


def _version() -> Document:
    major, minor, *_ = __version__.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _wants_aggregated(wanted: MediaRange, version: str) -> bool:
    parameters = wanted.parameters
    return (parameters.get("as"), parameters.get("g"), parameters.get("v")) == (
        "APIGroupDiscoveryList",
        _AGGREGATED,
        version,
    )


def _versions(group: str) -> list[str]:
    found = dict.fromkeys(item.version for item in SERVED if item.group == group)
    return sorted(found, reverse=True)  # v1beta2 is preferred to v1beta1


def _group(group: str) -> Document:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _of(group: str, version: str) -> list[Served]:
    return [item for item in SERVED if (item.group, item.version) == (group, version)]


def _resources(group: str, version: str) -> Document:
    served = _of(group, version)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            *(resource for item in served for resource in (_resource(item), *_below(item))),
            *(_report(report, short=True) for report in _reports(group, version)),
        ],
    }


def _resource(item: Served) -> Document:
    return {
        "name": item.kind.plural,
        "singularName": item.kind.singular,
        "namespaced": item.is_namespaced,
        "kind": item.kind.name,
        "verbs": list(item.verbs),
        "shortNames": list(item.kind.short_names),
        "categories": _categories(item),
    }


def _reports(group: str, version: str) -> tuple[Subresource, ...]:
    """Return the read-only resources of a group and version that are not stored objects, such as the overview."""
    return REPORTS if f"{group}/{version}" == ADDRESS_SPACE.api_version else ()


def _report(report: Subresource, *, short: bool) -> Document:
    """Return the discovery entry of such a resource: the short one of an APIResourceList, or the aggregated one."""
    kind = report.kind.removesuffix("List")
    if short:
        named = {"name": report.resource, "singularName": "", "namespaced": False, "kind": kind}
        return named | {"verbs": list(report.verbs)}
    group, _, version = ADDRESS_SPACE.api_version.partition("/")
    return {
        "resource": report.resource,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "scope": "Cluster",
        "singularResource": "",
        "verbs": list(report.verbs),
        "subresources": [],
    }


def _parts_of(item: Served) -> list[Subresource]:
    """Return the subresources of a kind, each once: what lies below one of them needs the same right."""
    return list({below.resource: below for below in reversed(item.subresources)}.values())[::-1]


def _below(item: Served) -> list[Document]:
    return [
        {
            "name": f"{item.kind.plural}/{below.resource}",
            "singularName": "",
            "namespaced": item.is_namespaced,
            "verbs": list(below.verbs),
        }
        | _response_kind(item, below)
        for below in _parts_of(item)
    ]


def _response_kind(item: Served, below: Subresource) -> Document:
    if below.kind == "Status":
        return {"group": "", "version": "v1", "kind": below.kind}
    return {"group": item.group, "version": item.version, "kind": below.kind or item.kind.name}


def _categories(item: Served) -> list[str]:
    return [_CATEGORY] if item.kind.is_ours else []


def _aggregate(groups: Sequence[str], version: str) -> Document:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{_AGGREGATED}/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group, "creationTimestamp": None},
                "versions": [
                    {
                        "version": served,
                        "freshness": "Current",
                        "resources": [
                            *(_discovered(item) for item in _of(group, served)),
                            *(_report(report, short=False) for report in _reports(group, served)),
                        ],
                    }
                    for served in _versions(group)
                ],
            }
            for group in groups
        ],
    }


def _discovered(item: Served) -> Document:
    return {
        "resource": item.kind.plural,
        "responseKind": {"group": item.group, "version": item.version, "kind": item.kind.name},
        "scope": "Namespaced" if item.is_namespaced else "Cluster",
        "singularResource": item.kind.singular,
        "verbs": list(item.verbs),
        "shortNames": list(item.kind.short_names),
        "categories": _categories(item),
        "subresources": [
            {
                "subresource": below.resource,
                "responseKind": _response_kind(item, below),
                "verbs": list(below.verbs),
            }
            for below in _parts_of(item)
        ],
    }
