"""A write to the registry: what admissions get, slow work that must be done first, and the form of what is stored.

An *admission* is called inside the transaction, before the object is stored:
it may return another object than it was given (defaults filled in, a password
taken out and put aside), or raise, and then nothing is written at all.

An admission runs on the event loop, within a transaction. If it needs slow work it raises an
``UnfinishedWriteError`` that carries the work: nothing is written, the work is done in a thread, and the same
write is made again, which finds it done.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from base64 import b64encode
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from enmasse.control.errors import UnfinishedWriteError
from enmasse.identity.rbac import LOCAL_OPERATOR, PIPELINE_HOST, Requester
from enmasse.model.schema.kinds import SECRET
from enmasse.model.schema.objects import in_present_form
from enmasse.model.schema.schema import without_nulls

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.port import Store
    from enmasse.model.schema.resource import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Write:
    """One object about to be written.

    Attributes:
        operation: on the object.
        old: as it is stored; None: it is created.
        new: as it should be, its uid included; None: it is deleted.
        store: the store of the object; writes to it belong to the same transaction.
        user: the requester.
    """

    operation: Operation
    old: Resource | None
    new: Resource | None
    store: Store
    user: Requester = LOCAL_OPERATOR

    @property
    def resource(self) -> Resource:
        """The object that is written, or deleted."""
        found = self.new or self.old
        assert found is not None
        return found


class Admission(Protocol):
    """A check of writes, which may complete or refuse them.

    Attributes:
        kinds: the kinds of objects that it checks.
    """

    kinds: frozenset[str]

    def admit(self, write: Write) -> Resource:
        """Return the object to be stored (for a deletion: the old one, which is ignored).

        Raises:
            InvalidResourceError: when it breaks a rule.
            ForbiddenError: when the user may not do that.
            ConflictError: when it contradicts what else is stored.
        """
        ...


T = TypeVar("T")

_MAX_TIMES = 8
"""Attempts of one write, which is repeated when another write came in between."""

_AT_ONCE = 2
"""Threads for slow work: more would take the time of everything else."""

_places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


_KEPT = 64
"""Results that wait for their write, which comes at once."""


class SlowResults:
    """Results of slow work, kept until the write that needs them comes again.

    A result is found by a mark of its input, from which the input cannot be recovered. Threads may add results.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._found: deque[tuple[bytes, bytes]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def mark(self, *asked: bytes) -> bytes:
        """Return the mark of an input."""
        lengths = b",".join(b"%d" % len(part) for part in asked)
        return hmac.digest(self._secret, lengths + b":" + b"".join(asked), "sha256")

    def add(self, mark: bytes, result: bytes) -> None:
        """Keep a result; the oldest of many is dropped."""
        with self._lock:
            self._found.append((mark, result))

    def find(self, mark: bytes) -> bytes | None:
        """Return a result and keep it."""
        with self._lock:
            return next((result for known, result in self._found if hmac.compare_digest(known, mark)), None)

    def take(self, mark: bytes) -> bytes | None:
        """Return a result and remove it."""
        with self._lock:
            for item in self._found:
                if hmac.compare_digest(item[0], mark):
                    self._found.remove(item)
                    return item[1]
            return None


async def finish(write: Callable[[], T]) -> T:
    """Write, with the slow work done by a thread; return the result of the write.

    Raises:
        UnfinishedWriteError: when others kept changing the same object.
    """
    for _ in range(_MAX_TIMES - 1):
        try:
            return write()
        except UnfinishedWriteError as error:
            async with _place():
                await asyncio.to_thread(error.work)
    return write()


def finish_here(write: Callable[[], T]) -> T:
    """Write, with the slow work done in this thread; for programs without other tasks."""
    for _ in range(_MAX_TIMES - 1):
        try:
            return write()
        except UnfinishedWriteError as error:
            error.work()
    return write()


def _place() -> asyncio.Semaphore:
    """Return the semaphore of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _places:
        for other in [other for other in _places if other.is_closed()]:
            del _places[other]
        _places[loop] = asyncio.Semaphore(_AT_ONCE)
    return _places[loop]


Document = dict[str, Any]

_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")

_OF_PROGRAMS = ("finalizers", "ownerReferences")
_OURS = "enmasse.io"

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes has them: no vowels, so no words
_SUFFIX_LENGTH = 5
_NAME_LIMIT = 253


def is_ours(finalizer: str) -> bool:
    """Return whether a finalizer is one of the platform: of its domain, or one below it."""
    domain, slash, _ = finalizer.partition("/")
    return bool(slash) and (domain == _OURS or domain.endswith(f".{_OURS}"))


def may_hold(user: Requester) -> bool:
    """Return whether a requester may set finalizers of the platform: an administrator, and a process of ours.

    Nobody would take off what another one has set, so the object would stay for ever, and its namespace too.
    """
    return user.is_admin or user.name == PIPELINE_HOST.name


def changed_form(former: Document, new: Document, *, is_blind: bool = False, may_hold: bool = True) -> Document:
    """Return an object with the fields that its owner may change as in ``new``, and all others as they were.

    Args:
        former: as it is stored.
        new: as its owner wants it.
        is_blind: whether the owner has not said which version is to be changed; then finalizers and owners
            that are not mentioned stay, because their removal may not be intended.
        may_hold: whether finalizers of ours that it has not yet are its owner's to set; else they are left out.
    """
    kept = {key: value for key, value in former["metadata"].items() if key not in _OF_USERS}
    given = {key: value for key, value in new["metadata"].items() if key in _OF_USERS}
    if is_blind:
        given = {key: former["metadata"][key] for key in _OF_PROGRAMS if key in former["metadata"]} | given
    if not kept.get("deletionTimestamp"):
        # Ours go when what they wait for is done; who must, can take them off a deletion that is stuck.
        wanted = given.get("finalizers") or []
        ours = [item for item in former["metadata"].get("finalizers") or () if is_ours(item)]
        kept_out = () if may_hold else [item for item in wanted if is_ours(item) and item not in ours]
        wanted = [item for item in wanted if item not in kept_out]
        given["finalizers"] = [*(item for item in ours if item not in wanted), *wanted]
    changed = new | {"metadata": without_empty(kept | given)}
    if "status" in former:
        changed["status"] = former["status"]
    if _declared(changed) != _declared(former):
        changed["metadata"]["generation"] = kept.get("generation", 0) + 1
    return changed


def with_managed_fields(document: Document, managed: list[Document] | None) -> Document:
    """Return an object with other managed fields; None: as they are."""
    if managed is None:
        return document
    return document | {"metadata": without_empty(document["metadata"] | {"managedFields": managed})}


def configured_form(config: Document) -> Document:
    """Return an applied configuration in the form in which it is stored, so that the stored fields get an owner."""
    config = in_present_form(without_nulls(config))
    text = config.get("stringData")
    if (
        config.get("kind") != SECRET.name
        or not isinstance(text, dict)
        or not isinstance(config.get("data", {}), dict)
    ):
        return config
    if not all(isinstance(value, str) for value in text.values()):
        return config
    encoded = {name: b64encode(value.encode()).decode() for name, value in text.items()}
    rest = {key: value for key, value in config.items() if key != "stringData"}
    return rest | {"data": config.get("data", {}) | encoded}


def without_empty(metadata: Document) -> Document:
    """Return metadata without empty lists and maps."""
    return {key: value for key, value in metadata.items() if value not in ([], {})}


def key_of(document: Document) -> tuple[str, str, str]:
    """Return kind, namespace and name."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def generated_name(prefix: str) -> str:
    """Return a name that begins with ``prefix`` and ends with letters by chance."""
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _NAME_LIMIT - _SUFFIX_LENGTH] + suffix


def _declared(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}
