"""The declarations of ``enmasse pipeline test`` for a pipeline: its file, and all that it needs and nobody declares.

Rules:
1. Addresses that the file does not declare are streams where they are read (topics, where messages are given to names
   below them) and queues where they are written.
2. Users and Secrets of the file count, so that a right that is missing is missed. Where the file has no password for
   ``credentialsSecret``, the pipeline comes as a user who may do everything.
3. Nothing leads out of the platform: no lake of somebody's, no provider of identities, no other service.
4. All that is given comes after the pipeline began, as messages do, and the pipeline ends once it has read it.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from enmasse.cli.commands.use.tryout_rows import ends_of
from enmasse.messaging.patterns import is_pattern
from enmasse.model.kinds.authentication import AuthenticationService
from enmasse.model.kinds.pipelines.databases import as_lake_tables
from enmasse.model.kinds.pipelines.flow import AVAILABLE_NOW
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.kinds.users import MessagingUser
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, MESSAGING_USER, PIPELINE, SECRET
from enmasse.pipeline.host.secrets import read_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from enmasse.cli.commands.use.tryout_rows import Rows
    from enmasse.model.kinds.pipelines.pipeline import Pipeline
    from enmasse.model.schema.resource import Resource

Document = dict[str, Any]

USER: Final = "enmasse-test"
"""The user who gives messages and looks for results, where a space lets in its users alone."""

_API: Final = {"apiVersion": "enmasse.io/v1beta1"}
_AWAY: Final = ("plan", "forwarders")
"""Fields of addresses that need something else."""
_DIRECT: Final = ("anycast", "multicast")
UNKEPT: Final = ("topic", *_DIRECT)
"""Types of addresses that keep nothing for whoever looks later."""


class Declared(NamedTuple):
    """The resources declared before the pipeline, and the password of ``USER``; empty: the space lets in all."""

    documents: list[Document]
    password: str

    @property
    def types(self) -> dict[str, str]:
        """The types of the addresses."""
        return {one["spec"]["address"]: one["spec"]["type"] for one in self.documents if one["kind"] == ADDRESS.name}


def declared(pipeline: Pipeline, resources: Sequence[Resource], rows: Rows) -> Declared:
    """Return what is declared before a pipeline.

    Args:
        pipeline: the pipeline that is tested.
        resources: all resources of its file.
        rows: the rows that are given and expected.
    """
    kept = [one for one in resources if one.kind not in (PIPELINE.name, AuthenticationService.__name__)]
    documents = [one.to_dict() for one in kept if not isinstance(one, AddressSpace)]
    space, lets_in_all = _space(pipeline, kept)
    password = "" if lets_in_all else secrets.token_urlsafe()
    users = [] if lets_in_all else _users(pipeline, kept, password)
    replaced = {(one["kind"], one["metadata"]["name"]) for one in users}
    documents = [one for one in documents if (one["kind"], one["metadata"]["name"]) not in replaced]
    ends = ends_of(pipeline.spec)
    for document in documents:
        if document["kind"] == ADDRESS.name:
            spec = {name: value for name, value in document["spec"].items() if name not in _AWAY}
            # Who is given messages before it runs would not be there to take them.
            direct = spec["type"] in _DIRECT and spec["address"] in ends.read
            document["spec"] = {"address": spec["address"], "type": "queue"} if direct else spec
    wanted = _wanted(pipeline, rows, Declared(documents, password).types)
    found = []
    for number, (address, kind) in enumerate(wanted.items()):
        named = {"namespace": pipeline.metadata.namespace, "name": f"{pipeline.space}.test-{number}"}
        spec = {"address": address, "type": kind} | ({"partitions": 1} if kind == "stream" else {})
        found.append(_API | {"kind": ADDRESS.name, "metadata": named, "spec": spec})
    return Declared([space, *users, *documents, *found], password)


def _space(pipeline: Pipeline, resources: Iterable[Resource]) -> tuple[Document, bool]:
    """Return the space of a pipeline, and whether it lets in everybody."""
    spaces = [one for one in resources if isinstance(one, AddressSpace) and one.metadata.name == pipeline.space]
    lets_in_all = pipeline.spec.credentials_secret is None
    kind = "standard"
    if spaces:
        lets_in_all = spaces[0].spec.authentication_service.is_none
        kind = spaces[0].spec.type
    spec = {"type": kind, "authenticationService": {"name": "none" if lets_in_all else "standard"}}
    meta = {"namespace": pipeline.metadata.namespace, "name": pipeline.space}
    return _API | {"kind": ADDRESS_SPACE.name, "metadata": meta, "spec": spec}, lets_in_all


def _users(pipeline: Pipeline, resources: Iterable[Resource], password: str) -> list[Document]:
    """Return our own user, and the Secret of the pipeline where the file does not have what it says."""
    encoded = b64encode(password.encode()).decode()
    namespace, name = pipeline.metadata.namespace, pipeline.spec.credentials_secret
    grants = [{"addresses": ["*"], "operations": ["send", "recv", "view"]}]
    user = {
        "apiVersion": "user.enmasse.io/v1beta1",
        "kind": MESSAGING_USER.name,
        "metadata": {"namespace": namespace, "name": f"{pipeline.space}.{USER}"},
        "spec": {
            "username": USER,
            "authentication": {"type": "password", "password": encoded},
            "authorization": grants,
        },
    }
    if name is None or _has_credentials(name, pipeline, resources):
        return [user]
    data = {"username": b64encode(USER.encode()).decode(), "password": encoded}
    secret = {"apiVersion": "v1", "kind": SECRET.name, "metadata": {"namespace": namespace, "name": name}}
    return [user, secret | {"data": data}]


def _has_credentials(name: str, pipeline: Pipeline, resources: Iterable[Resource]) -> bool:
    """Return whether a file declares a Secret and the user with the password in it."""
    entries: Mapping[str, str] = {}
    passwords = {}
    for one in resources:
        if one.kind == SECRET.name and one.metadata.name == name:
            read = read_credentials(name, one.settled().to_dict())
            entries = {} if isinstance(read, str) else read[1]
        elif isinstance(one, MessagingUser) and one.space == pipeline.space:
            passwords[one.spec.username] = one.spec.authentication.password
    password = passwords.get(entries.get("username", ""))
    return password == b64encode(entries.get("password", "").encode()).decode()


def _wanted(pipeline: Pipeline, rows: Rows, types: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses that nobody declares, by their types."""
    ends = ends_of(pipeline.spec)
    read = [name for name in ends.read if not is_pattern(name)]
    wanted = dict.fromkeys(read, "stream")
    topics = [name for name, kind in types.items() if kind == "topic"]
    for given in rows.given:
        if given.address is None:
            continue
        above = [name for name in (*read, *topics) if given.address.startswith(f"{name}/")]
        if given.address in wanted or given.address in types or not above:
            wanted.setdefault(given.address, "stream")
        else:
            wanted |= {name: "topic" for name in above if name in read}
    for address in (*ends.letters, *ends.written):
        wanted.setdefault(address, "queue")
    for expected in rows.expect:  # where rows name their addresses
        if expected.address is not None:
            wanted.setdefault(expected.address, expected.type)
    sent = {*ends.letters, *ends.written} - {*read}
    wanted |= {one.address: one.type for one in rows.expect if one.address in sent}
    return {name: kind for name, kind in wanted.items() if name not in (*types, "*")}


def playing(pipeline: Pipeline) -> Document:
    """Return a pipeline that reads what there is, and ends, on this machine; each subject has its one version."""
    document = as_lake_tables(pipeline.to_dict())
    document.pop("status", None)
    spec = {
        name: value
        for name, value in document["spec"].items()
        if name not in ("schedule", "after", "restart", "backfill", "paused")
    }
    for part in (*(spec.get("sources") or ()), *(spec.get("sinks") or ())):
        part.pop("trigger", None)
        (part.get("schemaRegistry") or {}).pop("version", None)
        if not part.get("stream"):
            part.pop("startingOffsets", None)
    if builtin := spec.get("builtin"):
        parameters = builtin.get("parameters") or {}
        if ends_of(pipeline.spec).read:
            spec["builtin"] = builtin | {"parameters": parameters | {"startingOffsets": "earliest"}}
    if session := (spec.pop("resources", None) or {}).get("session"):
        spec["resources"] = {"session": session}
    document["spec"] = spec | {"trigger": AVAILABLE_NOW}
    return document
