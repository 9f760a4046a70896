"""Lists of any length, in pages that all show the same moment.

Rules:
1. All pages of a list are as of the version of the first one, whatever is written meanwhile.
2. When the history does not reach back to it any more, the rest can be had as
   it is now: the refusal carries the token for that.
3. A long list does not keep others waiting for the loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.control.errors import ExpiredVersionError, FutureVersionError
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from enmasse.control.store.port import Key, Store
    from enmasse.model.schema.selectors import Selector


_STEP = 500  # objects read at a time: a few milliseconds
_PRESENT = 0  # in a token: go on with what is there now
_LONGEST_TOKEN = 4096


class ExpiredListError(ExpiredVersionError):
    """Raised when the history does not reach back to the beginning of the list.

    Attributes:
        token: goes on with the rest as it is now.
    """

    def __init__(self, error: ExpiredVersionError, token: ListToken) -> None:
        super().__init__(error.version, error.oldest, error.newest)
        self.token = token


@dataclass(frozen=True, slots=True)
class ListToken:
    """The position at which a list continues.

    Attributes:
        version: as of which the list is; 0: as of now.
        after: the last key that was listed.
    """

    version: int
    after: Key

    def encode(self) -> str:
        """Return it as clients get it: opaque to them."""
        text = json.dumps([self.version, *self.after], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ListToken:
        """Decode a token that a client sent back.

        Raises:
            ConfigError: when it is no token of ours.
        """
        try:
            raw = base64.b64decode(text[:_LONGEST_TOKEN] + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            found = json.loads(raw)
        except (ValueError, RecursionError, binascii.Error):
            found = None
        match found:
            case [int(version), str(namespace), str(name)] if version >= 0:
                return cls(version, (namespace, name))
        raise ConfigError("continue: expected the token of a former page, as it was given")


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a list.

    Attributes:
        bodies: the chosen objects in their JSON form, by namespace and name.
        version: as of which the list is.
        token: the token of the next page; None: this is the end.
        remaining: the number of objects that follow; None where that is not known without looking at all of them.
    """

    bodies: list[str]
    version: int
    token: ListToken | None = None
    remaining: int | None = None


async def list_objects(
    store: Store,
    kind: str,
    namespace: str | None,
    selector: Selector,
    *,
    limit: int = 0,
    at: int = 0,
    token: ListToken | None = None,
) -> Listing:
    """Return a page of a list.

    Args:
        store: the store of the objects.
        kind: the kind of the objects.
        namespace: only this one; None: all.
        selector: the selector of the objects.
        limit: the most objects; 0: all of them.
        at: as of this version; 0: the present one.
        token: go on with a former list; ``at`` does not count then.

    Raises:
        FutureVersionError: when the store has not come to the version.
        ExpiredVersionError: when the history does not reach back to it.
        ExpiredListError: the same, when a list goes on.
    """
    version = (token.version if token else at) or store.version
    if version > store.version:
        raise FutureVersionError(version, store.version)
    if not token and not at and (found := _direct(store, kind, namespace, selector)) is not None:
        return Listing(found, version)
    bodies: list[str] = []
    after = token.after if token else None
    try:
        while True:
            rows = store.page(kind, namespace, after=after, limit=_STEP, at=version)
            for index, (space, name, body) in enumerate(rows):
                after = (space, name)
                if selector.is_everything or selector.matches(json.loads(body)):
                    bodies.append(body)
                if limit and len(bodies) == limit:
                    if index + 1 == len(rows) and not store.page(kind, namespace, after=after, limit=1, at=version):
                        return Listing(bodies, version)
                    is_countable = selector.is_everything and version == store.version
                    remaining = store.count(kind, namespace, after) if is_countable else None
                    return Listing(bodies, version, ListToken(version, after), remaining)
            if len(rows) < _STEP:
                return Listing(bodies, version)
            await asyncio.sleep(0)
    except ExpiredVersionError as error:
        if token is None:
            raise
        raise ExpiredListError(error, ListToken(_PRESENT, token.after)) from None


def _direct(store: Store, kind: str, namespace: str | None, selector: Selector) -> list[str] | None:
    """Return the objects that an index leads to, None where there is no index for the selector."""
    name, address = selector.value_of("metadata.name"), selector.value_of("spec.address")
    space = namespace if namespace is not None else selector.value_of("metadata.namespace")
    if space is None or (name is None and address is None):
        return None
    if name is not None:
        one = store.find(kind, space, name)
        found = [] if one is None else [one]
    else:
        found = store.select_address(kind, space, address or "")
    return [json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in found if selector.matches(item)]
