"""A client of the API for the commands, with objects in their JSON form."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

import httpx

from enmasse.cli.contexts import Context, read_contexts, trust
from enmasse.cli.errors import ApiError, UnreachableError, UsageError
from enmasse.cli.installation import find_url
from enmasse.cli.options import DEFAULT_DATA
from enmasse.drivers.data_directory import Layout
from enmasse.model.schema.kinds import KINDS, MAX_IN_LIST, WRITTEN_IN_LISTS, kind_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from enmasse.model.schema.kinds import Kind


Document = dict[str, Any]
Present = dict[tuple[str, str, str], Document]
"""Objects by kind, namespace and name."""
Change = tuple[str, Document]
"""``ADDED``, ``MODIFIED`` or ``DELETED``, and the object."""

_TIMEOUT_S = 30.0  # far beyond what the API takes; something is wrong then
_ACTION_TIMEOUT_S = 630.0  # the API waits 600 s for a node that goes through millions of messages
_WARNING = re.compile(r'\b299 - "([^"]*)"')
_GONE = 410  # HTTP: what is asked for was here once
_WRITERS = 4  # requests at a time: the API is never without one, and no other client waits long
_PART_BYTES = 256 * 1024  # of a request: a quarter of what the API takes
_BRIEF = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
_CONFLICTS = 5  # attempts at changing an object that others change at the same time


class ApiClient:
    """Calls the API of one installation.

    Args:
        url: the url of the API.
        warn: called with each warning of the API.
        token: authenticates us; empty: none.
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
                        raise _error_of(event)
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

    def find_present(self, documents: Sequence[Document]) -> Present:
        """Return what there is in the namespaces of objects that are to be applied, of the same kinds."""
        places = {(document["kind"], document["metadata"].get("namespace")) for document in documents}
        return {
            _key(item): item
            for kind in KINDS
            for name, namespace in places
            if name == kind.name
            for item in self.select(kind, namespace)
        }

    def apply_all(
        self, documents: Sequence[Document], present: Present, *, dry_run: bool = False, brief: bool = False
    ) -> list[tuple[Document, str]]:
        """Make objects be what is given; labels and annotations are added to those they have.

        Objects of one kind are written several at a time, kinds one after another.

        Args:
            documents: ordered by kind.
            present: the objects that ``find_present`` has found.
            dry_run: check everything, but change nothing.
            brief: of many objects, return the metadata alone, which the API has sooner.

        Returns:
            Each object, and what was done: ``created``, ``configured`` or ``unchanged``.
        """
        done = []
        with ThreadPoolExecutor(_WRITERS) as writers:
            for _, items in groupby(documents, key=itemgetter("kind")):
                tasks = [
                    writers.submit(self._apply_some, some, present, dry_run, brief) for some in _parts(items, present)
                ]
                try:
                    done += [result for task in tasks for result in task.result()]
                except BaseException:
                    writers.shutdown(cancel_futures=True)
                    raise
        return done

    def _apply_some(
        self, documents: Sequence[Document], present: Present, dry_run: bool, brief: bool
    ) -> list[tuple[Document, str]]:
        """Apply objects of one part: all are there, or none is."""
        if len(documents) > 1:
            try:
                return self._apply_listed(documents, present, dry_run, brief)
            except ApiError as error:
                # Some may have changed, or may be written by us only by their names.
                if error.status not in (403, 409):
                    raise
        return [self._apply(document, present.get(_key(document)), dry_run) for document in documents]

    def _apply_listed(
        self, documents: Sequence[Document], present: Present, dry_run: bool, brief: bool
    ) -> list[tuple[Document, str]]:
        first = documents[0]
        kind, former = _kind_of(first), [present.get(_key(document)) for document in documents]
        items = [
            document if old is None else _over(old, document) for document, old in zip(documents, former, strict=True)
        ]
        written = self._call(
            "POST" if former[0] is None else "PUT",
            _path(kind, first["metadata"].get("namespace")),
            json={"apiVersion": first["apiVersion"], "kind": f"{kind.name}List", "items": items},
            params=_parameters(dry_run),
            headers=_BRIEF if brief else {},
        )
        for warning in written.get("warnings", ()):
            self._warn(warning)
        return [
            (item, "created" if old is None else "unchanged" if _is_same(item, old) else "configured")
            for item, old in zip(written["items"], former, strict=True)
        ]

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

    def act(self, document: Document, action: str, arguments: Document, *, is_dry: bool = False) -> Document:
        """Have something done to the messages of an address, or counted; the API's own words and figures about it."""
        metadata = document["metadata"]
        path = _path(_kind_of(document), metadata.get("namespace"), metadata["name"])
        query = {"dryRun": "All"} if is_dry else {}
        return self._call("POST", f"{path}/{action}", params=query, json=arguments, timeout=_ACTION_TIMEOUT_S)

    def events(
        self, document: Document, part: str, parameters: dict[str, str], begun: Callable[[], None]
    ) -> Iterator[Document]:
        """Yield what comes below an object, from the moment that the API says it watches, for as long as it does.

        Args:
            document: the object.
            part: the name of what is below it.
            parameters: the parameters of the request's query.
            begun: called at that moment.

        Raises:
            ApiError: when the API refuses it, or ends it with an error.
            UnreachableError: when nothing answers, or no more.
        """
        metadata = document["metadata"]
        path = _path(_kind_of(document), metadata.get("namespace"), metadata["name"])
        for line in self.lines(f"{path}/{part}", parameters | {"watch": "true"}):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise _error_of(event)
            if event["type"] == "BOOKMARK":
                begun()
            else:
                yield event["object"]

    def nodes(self) -> list[Document]:
        """Return of each node its name, whether it is up and ready, and its problems."""
        found: list[Document] = self._call("GET", "/readyz", headers={"accept": "application/json"})["nodes"]
        return found

    def call(self, method: str, path: str, **options: Any) -> Document:
        """Send a request that is about no kind of objects, and return the answer.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers.
        """
        return self._call(method, path, **options)

    def exchange(self, method: str, path: str, **options: Any) -> tuple[Any, str]:
        """Send a request to the device registry, and return the answer, if it has one, and its version.

        Raises:
            ApiError: when the registry refuses it.
            UnreachableError: when nothing answers.
        """
        response = self._request(method, path, **options)
        if response.is_error:
            raise _refusal(response)
        return response.json() if response.content else None, response.headers.get("etag", "")

    def content(self, method: str, path: str, *, accept: str, **options: Any) -> bytes:
        """Send a request that is answered with a file, and return its content.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers.
        """
        response = self._request(method, path, headers={"accept": accept}, **options)
        for warning in _WARNING.findall(response.headers.get("warning", "")):
            self._warn(warning)
        if response.is_error:
            raise _refusal(response)
        return response.content

    def place(self, path: str) -> str:
        """Return the URL that the API leads to.

        Raises:
            ApiError: when the API refuses it.
            UnreachableError: when nothing answers.
        """
        response = self._request("GET", path, follow_redirects=False)
        if not response.has_redirect_location:
            raise _refusal(response)
        return str(response.url.join(response.headers["location"]))

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
                # A message in a line of JSON may hold letters at which text is split into lines elsewhere.
                rest = b""
                for part in response.iter_bytes():
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        yield line.decode("utf-8", "replace")
                if rest:
                    yield rest.decode("utf-8", "replace")
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


def _error_of(event: Document) -> ApiError:
    return ApiError(event["object"].get("code", 500), event["object"].get("message", "no reason"))


def _refusal(response: httpx.Response) -> ApiError:
    try:
        document = response.json()
    except ValueError:
        document = None
    # The device registry says it as Hono does.
    message = document.get("message", document.get("error")) if isinstance(document, dict) else None
    return ApiError(response.status_code, message or response.reason_phrase)


_SHORTER = {"user": "messaginguser", "users": "messagingusers"}
"""Names that are short here; in Kubernetes they could mean other kinds."""


def operator_token(data: Path) -> str:
    """Return the token of a data directory; empty if we may not read it, or nothing runs there."""
    try:
        return Layout(data).operator_token.read_text()
    except OSError:
        return ""


def parse_kind(name: str) -> Kind:
    """Return the kind that a user means.

    Raises:
        UsageError: naming the one that may be meant, or listing those that exist.
    """
    kind = kind_named(_SHORTER.get(name.lower(), name))
    if kind is None:
        names = [word for kind in KINDS for word in (kind.plural, kind.singular, *kind.short_names)]
        close = get_close_matches(name.lower(), [*names, *_SHORTER], n=1)
        known = ", ".join("|".join((kind.plural, *kind.short_names)) for kind in KINDS)
        hint = f"did you mean {close[0]}?" if close else f"there are {known}"
        raise UsageError(f"there is no kind '{name}'; {hint}")
    return kind


def _kind_of(document: Document) -> Kind:
    return next(kind for kind in KINDS if kind.name == document["kind"])


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace is not None and kind.scope == "Namespaced" else ""
    return f"{kind.base_path()}{place}/{kind.plural}" + (f"/{name}" if name else "")


def _key(document: Document) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]


def _parts(documents: Iterable[Document], present: Present) -> Iterator[list[Document]]:
    """Yield documents of one kind in parts that one request can write."""
    part: list[Document] = []
    place: tuple[str | None, bool] | None = None
    size = 0
    for document in documents:
        where = document["metadata"].get("namespace"), _key(document) in present
        most = MAX_IN_LIST if _kind_of(document) in WRITTEN_IN_LISTS else 1
        length = len(json.dumps(document))
        if part and (where != place or len(part) >= most or size + length > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(document)
        place, size = where, size + length
    if part:
        yield part


def _parameters(dry_run: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})


def _over(present: Document, wanted: Document) -> Document:
    """Return the replacement of an object: the wanted document with the present resource version."""
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
