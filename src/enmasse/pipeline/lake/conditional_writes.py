"""Tries whether storage keeps writers from each other: of two objects of one name, it has to refuse the second.

Delta's library asks for that by ``If-None-Match`` whenever it makes an entry of a table's log. Storage that does not
know the header takes both entries, and the rows of the first are gone without a word. The library cannot be made to
try that, as it looks for entries before it makes one, and Arrow knows no such request: so it is made here.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from enmasse.model.kinds.lakes import DEFAULT_REGION, endpoint_of
from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.objects import REQUEST_S, ObjectPath, away, present_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

_MADE, _NOT_IMPLEMENTED = 200, 501
_REFUSED: Final = (409, 412)
"""Somebody else is just making it; it is there."""
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
    marker = lake / f"_conditional-write-{uuid.uuid4().hex}"
    try:
        first, said = _put(marker)
        second = first
        if first == _MADE:
            second, said = _put(marker)
            marker.unlink(missing_ok=True)
    except (OSError, http.client.HTTPException) as error:
        raise away(marker, ConnectionError(f"AWS Error NETWORK_CONNECTION: {error}")) from None
    if second in (_MADE, _NOT_IMPLEMENTED):
        raise TableSchemaError(
            f"the storage at {present_storage().settings['endpoint']} has no conditional writes: asked by "
            "If-None-Match to make an object only where there is none, it "
            + ("replaced one" if second == _MADE else "said that it cannot")
            + ". Two writers of a table would lose each other's rows, so none is made there: update the storage to a "
            "release that has them, or take another one, such as Amazon S3, MinIO or Ceph from release 19 on"
        )
    if second not in _REFUSED:
        raise away(marker, OSError(f"Generic S3 error: {said}"))
    _tried.add(lake)


def _put(path: ObjectPath) -> tuple[int, str]:
    """Ask for an object where there is none; return the status of the answer, and what it says."""
    settings = present_storage().settings
    endpoint = endpoint_of(settings["endpoint"])
    assert endpoint is not None  # the API took no other
    scheme, host, port = endpoint
    https = scheme == "https"
    connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
    shown = f"[{host}]" if ":" in host else host
    target = quote(f"/{path.key}", safe="/-_.~")
    headers = {"host": shown if port == (443 if https else 80) else f"{shown}:{port}", "if-none-match": "*"}
    connection = connect(host, port, timeout=REQUEST_S)
    try:
        connection.request("PUT", target, b"", signed(target, headers, settings, datetime.now(UTC)))
        answer = connection.getresponse()
        text = answer.read(4096).decode(errors="replace")
        return answer.status, f"{answer.status} {answer.reason}: {text}"
    finally:
        connection.close()


def signed(target: str, headers: Mapping[str, str], settings: Mapping[str, str], now: datetime) -> Mapping[str, str]:
    """Return the headers of a PUT of nothing, with those by which S3 knows who asks (AWS Signature Version 4).

    Args:
        target: the path, quoted.
        headers: by names in lower case; all are signed.
        settings: of the storage.
        now: in UTC; the storage refuses one that is minutes off.
    """
    moment, nothing = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(b"").hexdigest()
    token = {"x-amz-security-token": settings["sessionToken"]} if settings.get("sessionToken") else {}
    headers = {**headers, "x-amz-content-sha256": nothing, "x-amz-date": moment, **token}
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
    request = "\n".join(["PUT", target, "", *lines, "", names, nothing])
    region = settings.get("region") or DEFAULT_REGION
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{settings['secretAccessKey']}".encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"{settings['accessKeyId']}/{scope}"
    proof = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "authorization": proof}
