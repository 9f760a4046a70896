"""The place of a space's tables: its own folder, or a bucket of S3-compatible storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_subdomain
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_REGION: Final = "us-east-1"
"""The region where none is given; storage without regions takes it, too."""

_BUCKET = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HOST = re.compile(r"(?!.*\.\.)[a-z0-9_]([-a-z0-9_.]{0,251}[a-z0-9])?|[0-9a-f]*:[0-9a-f:.]*")
_PREFIX_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9!_.*'()-]*")


class S3Lake(Model):
    """A part of a bucket."""

    endpoint: str
    """``https://HOST`` or ``http://HOST:PORT``; the operator lists it for the namespace in the annotation
    ``enmasse.io/pipeline-hosts``."""
    bucket: str
    """The bucket; it has to be there."""
    prefix: str = ""
    """Begins the key of every object, as ``plant/lake``."""
    region: str | None = None
    """Left out: us-east-1."""
    credentials_secret: str
    """A Secret of the namespace with ``accessKeyId`` and ``secretAccessKey``, and ``sessionToken`` where there is
    one. It may change at any time."""


class Lake(Model):
    """The place of a space's tables."""

    s3: S3Lake | None = Field(default=None)
    """S3-compatible storage with conditional writes."""


def lake_problems(path: str, lake: Lake) -> Iterator[Problem]:
    """Yield what is wrong with the place of a space's tables."""
    if lake.s3 is None:
        yield Problem(f"{path}.s3", "required: leave out the lake for tables in the space's own folder")
        return
    s3, path = lake.s3, f"{path}.s3"
    if endpoint_of(s3.endpoint) is None:
        expected = "expected https://HOST, http://HOST or one of them with :PORT, and nothing else"
        yield Problem(f"{path}.endpoint", f"{expected}; got {describe_value(s3.endpoint)}")
    if not _BUCKET.fullmatch(s3.bucket):
        expected = "expected 3 to 63 lower-case letters, digits, '-' and '.'"
        yield Problem(f"{path}.bucket", f"{expected}; got {describe_value(s3.bucket)}")
    if s3.prefix and not all(_PREFIX_PART.fullmatch(part) for part in s3.prefix.split("/")):
        expected = "expected names with / between them, none at the ends, such as plant/lake"
        yield Problem(f"{path}.prefix", f"{expected}; got {describe_value(s3.prefix)}")
    if s3.region is not None and not re.fullmatch(r"[a-z0-9-]{1,63}", s3.region):
        yield Problem(f"{path}.region", f"expected a name such as eu-central-1, got {describe_value(s3.region)}")
    if not is_subdomain(s3.credentials_secret):
        found = describe_value(s3.credentials_secret)
        yield Problem(f"{path}.credentialsSecret", f"expected the name of an object, got {found}")


def endpoint_of(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an endpoint; None: it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc or "%" in parts.netloc)
    if parts.scheme not in ("http", "https") or not host or not bare or not _HOST.fullmatch(host):
        return None
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80)
