"""The API, as commands use it: objects in their JSON form."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self

import httpx

from enmasse.cli.contexts import Context, read_contexts, trust
from enmasse.cli.errors import ApiError, NotFoundError, UnreachableError, UsageError
from enmasse.cli.installation import find_url
from enmasse.cli.options import DEFAULT_DATA
from enmasse.engines.embedded.paths import Layout
from enmasse.model.kinds import KINDS, kind_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from enmasse.model.kinds import Kind

__all__ = ["CALLED", "ApiClient", "Change", "Document", "operator_token", "parse_kind"]

Document = dict[str, Any]
Change = tuple[str, Document]
"""``ADDED``, ``MODIFIED`` or ``DELETED``, and the object."""

_TIMEOUT_S = 30.0  # far beyond what the API takes; something is wrong then
_ACTION_TIMEOUT_S = 630.0  # the API waits 600 s for a node that goes through millions of messages
_WARNING = re.compile(r'\b299 - "([^"]*)"')
_GONE = 410  # HTTP: what is asked for was here once
_CONFLICTS = 5  # attempts at changing an object that others change at the same time


class ApiClient:
    """Calls the API of one installation.

    Args:
        url: of the API.
        warn: is told the warnings of the API.
        token: says who we are; empty: nothing does.
        authority: the certificate (PEM) that vouches for the API; empty: those that the system trusts do.
    """

    def __init__(self, url: str, *, warn: Callable[[str], None], token: str = "", authority: str = "") -> None:
        self._url = url
        self._warn = warn
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # No proxy is asked for a loopback address.
        self._http = httpx.Client(
            base_url=url, timeout=_TIMEOUT_S, trust_env=False, headers=headers, verify=trust(url, authority)
        )

    @classmethod
    def find(cls, data: Path, *, warn: Callable[[str], None]) -> Self:
        """Return a client for the installation of a data directory.

        If no directory is named, and somebody has logged in, it is the installation they logged in to.

        Raises:
            UnreachableError: when nothing has been started there.
        """
        if data == DEFAULT_DATA and (context := read_contexts().current) is not None:
            return cls.of_context(context, warn=warn)
        url = find_url(data, "api")
        return cls(url, warn=warn, token=operator_token(data))

    @classmethod
    def of_context(cls, context: Context, *, warn: Callable[[str], None]) -> Self:
        """Return a client for an installation that somebody has logged in to."""
        return cls(context.server, warn=warn, token=context.token, authority=context.authority)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def select(self, kind: Kind, namespace: str | None, labels: str = "") -> list[Document]:
        """Return the objects of a kind; None as namespace: of all namespaces."""
        parameters = {"labelSelector": labels} if labels else {}
        items: list[Document] = self._call("GET", _path(kind, namespace), params=parameters)["items"]
        return items

    def watch(self, kind: Kind, namespace: str | None, labels: str = "") -> Iterator[list[Change]]:
        """Yield all objects of a kind as they are, and then each change, without end.

        Where the API has forgotten what came since, all objects are yielded again.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers, or no more.
        """
        parameters = {"labelSelector": labels} if labels else {}
        path, version = _path(kind, namespace), ""
        while True:
            if not version:
                listed = self._call("GET", path, params=parameters)
                version = listed["metadata"]["resourceVersion"]
                yield [("ADDED", item) for item in listed["items"]]
            begun = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
            for line in self.lines(path, parameters | begun):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") != _GONE:
                        raise ApiError(event["object"].get("code", 500), event["object"].get("message", "no reason"))
                    version = ""
                    break
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield [(event["type"], event["object"])]

    def get(self, kind: Kind, namespace: str, name: str) -> Document:
        """Return one object."""
        return self._call("GET", _path(kind, namespace, name))

    def find_object(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """Return one object, None when there is none of this name."""
        try:
            return self.get(kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create an object from its JSON form, which names kind and namespace."""
        kind = _kind_of(document)
        path = _path(kind, document["metadata"].get("namespace"))
        return self._call("POST", path, json=document, params=_parameters(dry_run))

    def apply_all(self, documents: Sequence[Document], *, dry_run: bool = False) -> list[tuple[Document, str]]:
        """Make objects be what is given; labels and annotations are added to those they have.

        Returns:
            Each object, and what was done: ``created``, ``configured`` or ``unchanged``.
        """
        places = {(document["kind"], document["metadata"].get("namespace")) for document in documents}
        present = {
            _key(item): item
            for kind in KINDS
            for name, namespace in places
            if name == kind.name
            for item in self.select(kind, namespace)
        }
        return [self._apply(item, present.get(_key(item)), dry_run) for item in documents]

    def _apply(self, document: Document, present: Document | None, dry_run: bool) -> tuple[Document, str]:
        kind, metadata = _kind_of(document), document["metadata"]
        for attempt in range(_CONFLICTS):
            try:
                if present is None:
                    return self.create(document, dry_run=dry_run), "created"
                changed = self._call(
                    "PUT",
                    _path(kind, metadata.get("namespace"), metadata["name"]),
                    json=_over(present, document),
                    params=_parameters(dry_run),
                )
            except ApiError as error:
                if error.status != 409 or attempt == _CONFLICTS - 1:
                    raise
                present = self.find_object(kind, metadata.get("namespace"), metadata["name"])
            else:
                return changed, "unchanged" if _is_same(changed, present) else "configured"
        raise AssertionError("the last attempt returns or raises")

    def merge(self, item: Document, patch: Document) -> Document:
        """Change an object by a merge patch, and return it."""
        metadata = item["metadata"]
        path = _path(_kind_of(item), metadata.get("namespace"), metadata["name"])
        headers = {"content-type": "application/merge-patch+json"}
        return self._call("PATCH", path, content=json.dumps(patch), headers=headers, params=_parameters(False))

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object."""
        self._call("DELETE", _path(kind, namespace, name))

    def act(self, document: Document, action: str, arguments: Document) -> Document:
        """Have something done to the messages of an address; the API's own words and figures about it."""
        metadata = document["metadata"]
        path = _path(_kind_of(document), metadata.get("namespace"), metadata["name"])
        return self._call("POST", f"{path}/{action}", json=arguments, timeout=_ACTION_TIMEOUT_S)

    def nodes(self) -> list[Document]:
        """Return of each node its name, whether it is up and ready, and its problems."""
        found: list[Document] = self._call("GET", "/readyz", headers={"accept": "application/json"})["nodes"]
        return found

    def resolve(self, kind: Kind, namespace: str, name: str, space: str | None = None) -> Document:
        """Return the object that a user means: by its name, an address or a user also by what it is called.

        Raises:
            NotFoundError: when there is none.
            UsageError: when there are several.
        """
        if (exact := self.find_object(kind, namespace, name)) is not None:
            return exact
        items = self.select(kind, namespace)
        called = CALLED.get(kind.name, "")
        found = [item for item in items if called and item["spec"].get(called) == name and _is_in(item, space)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(item["metadata"]["name"] for item in found or items[:10])
        if found:
            raise UsageError(
                f"{called} {name} exists in several spaces: name one with --space, or give one of {names}"
            )
        there = f"there are {names}" if names else "there is none at all"
        raise NotFoundError(f"there is no {kind.name} '{name}' in namespace {namespace}; {there}")

    def call(self, method: str, path: str, **options: Any) -> Document:
        """Send a request that is about no kind of objects, and return the answer.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers.
        """
        return self._call(method, path, **options)

    def text(self, path: str) -> str:
        """Return what the API answers that is no JSON, such as its metrics.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers.
        """
        response = self._request("GET", path)
        if response.is_error:
            raise ApiError(response.status_code, response.reason_phrase)
        return response.text

    def lines(self, path: str, parameters: dict[str, str]) -> Iterator[str]:
        """Yield lines of text as the API gives them, for as long as it does.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers, or no more.
        """
        # A log may have nothing to say for hours.
        timeout = httpx.Timeout(_TIMEOUT_S, read=None)
        try:
            with self._http.stream("GET", path, params=parameters, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                    raise _refusal(response)
                yield from response.iter_lines()
        except httpx.TransportError as error:
            raise UnreachableError(f"the API at {self._url} does not answer any more ({error})") from None

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise UnreachableError(
                f"the API at {self._url} does not answer ({error}); is `enmasse up` still running?"
            ) from None

    def _call(self, method: str, path: str, **options: Any) -> Document:
        response = self._request(method, path, **options)
        for warning in _WARNING.findall(response.headers.get("warning", "")):
            self._warn(warning)
        try:
            document: Document = response.json()
        except ValueError:
            raise ApiError(response.status_code, f"{self._url} does not speak this API") from None
        if response.is_error:
            raise ApiError(response.status_code, document.get("message", response.reason_phrase))
        return document


def _refusal(response: httpx.Response) -> ApiError:
    try:
        told = response.json()
    except ValueError:
        told = None
    message = told.get("message") if isinstance(told, dict) else None
    return ApiError(response.status_code, message or response.reason_phrase)


CALLED = {"Address": "address", "MessagingUser": "username"}
"""The field by which people call an object, rather than by its name."""

_SHORTER = {"user": "messaginguser", "users": "messagingusers"}
"""What people say here; in Kubernetes it could mean others."""


def operator_token(data: Path) -> str:
    """Return what proves that we may read a data directory; empty if we may not, or nothing runs there."""
    try:
        return Layout(data).operator_token.read_text()
    except OSError:
        return ""


def parse_kind(name: str) -> Kind:
    """Return the kind that a user means.

    Raises:
        UsageError: listing the kinds that exist.
    """
    kind = kind_named(_SHORTER.get(name.lower(), name))
    if kind is None:
        known = ", ".join("|".join((kind.plural, *kind.short_names)) for kind in KINDS)
        raise UsageError(f"there is no kind '{name}'; there are {known}")
    return kind


def _kind_of(document: Document) -> Kind:
    return next(kind for kind in KINDS if kind.name == document["kind"])


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace is not None and kind.scope == "Namespaced" else ""
    return f"{kind.base_path()}{place}/{kind.plural}" + (f"/{name}" if name else "")


def _key(document: Document) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]


def _parameters(dry_run: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})


def _over(present: Document, wanted: Document) -> Document:
    """Return what to put in the place of an object: what is wanted, in its present version."""
    old, new = present["metadata"], wanted["metadata"]
    metadata = new | {"resourceVersion": old["resourceVersion"]}
    for field in ("labels", "annotations"):
        if both := old.get(field, {}) | new.get(field, {}):
            metadata[field] = both
    return wanted | {"metadata": metadata}


def _is_same(one: Document, other: Document) -> bool:
    return all(
        one["metadata"].get(key) == other["metadata"].get(key) for key in ("generation", "labels", "annotations")
    )


def _is_in(item: Document, space: str | None) -> bool:
    return space is None or item["metadata"]["name"].startswith(f"{space}.")
