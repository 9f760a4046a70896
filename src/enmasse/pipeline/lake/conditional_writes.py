"""Tries whether storage keeps writers from each other: of two objects of one name, it has to refuse the second.

Delta's library asks for that by ``If-None-Match`` whenever it makes an entry of a table's log. Storage that does not
know the header takes both entries, and the rows of the first are gone without a word. The library cannot be made to
try that, as it looks for entries before it makes one, and Arrow knows no such request: so Delta's own client of
storage makes it here, by its binding for Python.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.objects import ATTEMPTS, REQUEST_S, RETRY_S, ObjectPath, away, present_storage

if TYPE_CHECKING:
    from obstore.store import S3Store

_NOT_IMPLEMENTED: Final = "501 Not Implemented"
_tried: set[ObjectPath] = set()
"""The folders of tables whose storage is as it has to be, for this process."""


def require_conditional_writes(lake: ObjectPath) -> None:
    """Make sure that the storage refuses an object of a name that is taken; tried once in a process.

    Args:
        lake: the folder of tables.

    Raises:
        TableSchemaError: it does not.
        LakeAwayError: it does not answer, or not to us.
    """
    if lake in _tried:
        return
    from obstore import put  # noqa: PLC0415  # for who has such storage alone
    from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415

    store, marker = _store(), lake / f"_conditional-write-{uuid.uuid4().hex}"
    key = marker.key.partition("/")[2]
    problem = "replaced one"
    try:
        put(store, key, b"", mode="create")
        try:
            put(store, key, b"", mode="create")
        finally:
            marker.unlink(missing_ok=True)
    except AlreadyExistsError:
        _tried.add(lake)
        return
    except BaseError as error:
        if _NOT_IMPLEMENTED not in str(error):
            raise away(marker, OSError(f"Generic S3 error: {error}")) from None
        problem = "said that it cannot"
    raise TableSchemaError(
        f"the storage at {present_storage().settings['endpoint']} has no conditional writes: asked by If-None-Match "
        f"to make an object only where there is none, it {problem}. Two writers of a table would lose each other's "
        "rows, so none is made there: update the storage to a release that has them, or take another one, such as "
        "Amazon S3, MinIO or Ceph from release 19 on"
    )


def _store() -> S3Store:
    """Return the space's bucket for Delta's own client."""
    from obstore.store import S3Store  # noqa: PLC0415

    storage = present_storage()
    return S3Store(
        storage.settings["bucket"],
        config={name: value for name, value in storage.options.items() if name.startswith("aws_")},  # type: ignore[arg-type]  # names that it declares one by one
        client_options={"timeout": f"{REQUEST_S}s", "allow_http": True},
        retry_config={"max_retries": ATTEMPTS, "retry_timeout": timedelta(seconds=RETRY_S)},
    )
