"""Tables in S3-compatible storage: paths of objects, with what the lake uses of ``pathlib``.

Rules:
1. A path is text alone, ``s3://BUCKET/KEY``. Where the storage is and what opens it lies in one file beside the
   credentials of the space, which every process of a session finds by itself: no key is ever in a plan, an option or
   a pickle. The file is read again when it has changed.
2. An object appears whole or not at all, and is durable once its storage has said so: nothing is synced.
3. Who changes a table's log does that by conditional writes, so two writers never have the same version.
4. A request is tried again for some seconds. Then it fails, as if a disk did, and the query is tried again.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from enmasse.model.kinds.lakes import DEFAULT_REGION, endpoint_of
from enmasse.pipeline.errors import LakeAwayError

if TYPE_CHECKING:
    from pyarrow import fs

FILE: Final = "_lake.json"
"""In the folder of credentials, where no Secret has such a name: what ``spec.lake.s3`` of the space and its Secret
say."""

SCHEME: Final = "s3://"

T = TypeVar("T")

CONNECT_S: Final = 5
REQUEST_S: Final = 20
RETRY_S: Final = 30
ATTEMPTS: Final = 4
"""The attempts: a slow store has its time; one away is said within a minute, and a query tries again by itself."""


@dataclass(frozen=True)
class Storage:
    """The storage of a space's tables, and what opens it.

    Attributes:
        settings: the settings as the file has them.
    """

    settings: dict[str, str] = field(repr=False)

    @property
    def root(self) -> ObjectPath:
        """The folder of its tables."""
        key = "/".join(filter(None, (self.settings["bucket"], self.settings.get("prefix"))))
        return ObjectPath(SCHEME + key)

    @cached_property
    def files(self) -> fs.FileSystem:
        """The storage as Arrow reads and writes it."""
        from pyarrow import fs  # noqa: PLC0415  # for who has such storage alone

        given = self.settings
        found = endpoint_of(given["endpoint"])
        assert found is not None  # the API took no other
        scheme, host, port = found
        return fs.S3FileSystem(
            access_key=given["accessKeyId"],
            secret_key=given["secretAccessKey"],
            session_token=given.get("sessionToken"),
            region=given.get("region") or DEFAULT_REGION,
            scheme=scheme,
            endpoint_override=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            background_writes=False,
            check_directory_existence_before_creation=False,
        )

    @property
    def options(self) -> dict[str, str]:
        """The same for Delta's library."""
        given = self.settings
        options = {
            "aws_endpoint_url": given["endpoint"],
            "aws_access_key_id": given["accessKeyId"],
            "aws_secret_access_key": given["secretAccessKey"],
            "aws_region": given.get("region") or DEFAULT_REGION,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
            "conditional_put": "etag",
            "connect_timeout": f"{CONNECT_S}s",
            "timeout": f"{REQUEST_S}s",
            "max_retries": str(ATTEMPTS),
            "retry_timeout": f"{RETRY_S}s",
        }
        if given.get("sessionToken"):
            options["aws_session_token"] = given["sessionToken"]
        return options


_guard = threading.Lock()
_opened: dict[Path, tuple[tuple[int, int], Storage]] = {}


def storage_of(credentials: Path) -> Storage | None:
    """Return the storage that a folder of credentials names; None: tables are in a folder.

    Raises:
        LakeAwayError: the file about it cannot be read.
    """
    file = credentials / FILE
    try:
        state = file.stat()
    except FileNotFoundError:
        return None
    mark = state.st_mtime_ns, state.st_ino
    with _guard:
        known = _opened.get(file)
        if known is None or known[0] != mark:
            try:
                known = mark, Storage(dict(json.loads(file.read_text())))
            except (OSError, ValueError) as error:
                raise LakeAwayError(f"{file} cannot be read: {error}") from None
            _opened[file] = known
        return known[1]


def present_storage() -> Storage:
    """Return the storage of this process's space.

    Raises:
        LakeAwayError: it has none.
    """
    folder = os.environ.get("ENMASSE_CREDENTIALS")
    found = storage_of(Path(folder)) if folder else None
    if found is None:
        raise LakeAwayError(f"there is no {FILE} in the folder of credentials, {folder or 'which is not set'}")
    return found


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A folder or an object in the storage of this process's space.

    Attributes:
        uri: ``s3://BUCKET/KEY``.
    """

    uri: str

    def __str__(self) -> str:
        """Return its URI."""
        return self.uri

    def __truediv__(self, name: str | ObjectPath) -> ObjectPath:
        """Return what lies in this folder."""
        return ObjectPath(f"{self.uri}/{name}") if name else self

    @property
    def key(self) -> str:
        """Bucket and key, as Arrow has them."""
        return self.uri.removeprefix(SCHEME)

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The folder that it lies in."""
        return ObjectPath(self.uri.rpartition("/")[0])

    def resolve(self) -> ObjectPath:
        """Return itself: there are no links."""
        return self

    def exists(self) -> bool:
        """Return whether there is such an object, or one below it."""
        return str(self._info().type.name) != "NotFound"

    def is_dir(self) -> bool:
        """Return whether there are objects below it."""
        return str(self._info().type.name) == "Directory"

    def size(self) -> int:
        """Return its bytes."""
        return int(self._info().size or 0)

    def made_at_ns(self) -> int | None:
        """Return when it was put there, in nanoseconds since 1970; None: it is not."""
        info = self._info()
        return int(info.mtime_ns) if info.is_file else None

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what lies directly below it."""
        from pyarrow.fs import FileSelector  # noqa: PLC0415  # for who has such storage alone

        for info in _request(self, lambda files: files.get_file_info(FileSelector(self.key, allow_not_found=True))):
            yield ObjectPath(SCHEME + info.path)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield what lies directly below it and has such a name."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def read_bytes(self) -> bytes:
        """Return its content.

        Raises:
            FileNotFoundError: there is none.
        """

        def read(files: fs.FileSystem) -> bytes:
            with files.open_input_stream(self.key) as source:
                return bytes(source.read())

        return _request(self, read)

    def read_text(self) -> str:
        """Return its content as text.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.read_bytes().decode()

    def write_text(self, text: str) -> None:
        """Put an object there, in the place of a former one at once."""
        self.write_bytes(text.encode())

    def write_bytes(self, data: bytes) -> None:
        """Put an object there, in the place of a former one at once."""

        def write(files: fs.FileSystem) -> None:
            with files.open_output_stream(self.key) as target:
                target.write(data)

        _request(self, write)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove it."""
        try:
            _request(self, lambda files: files.delete_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a folder is there as long as objects are below it."""

    def _info(self) -> fs.FileInfo:
        return _request(self, lambda files: files.get_file_info(self.key))


LakePath = Path | ObjectPath
"""A folder of the lake, or a file in one, wherever that is."""


def lake_path(text: str) -> LakePath:
    """Return the path that ``str`` makes of one."""
    return ObjectPath(text) if text.startswith(SCHEME) else Path(text)


def located(path: LakePath) -> tuple[str, fs.FileSystem | None]:
    """Return a path as Arrow's functions have it, and where it is; None: on this machine."""
    return (str(path), None) if isinstance(path, Path) else (path.key, present_storage().files)


def size_of(path: LakePath) -> int:
    """Return the bytes of a file."""
    return path.stat().st_size if isinstance(path, Path) else path.size()


def missing_of(path: LakePath, files: Iterable[str]) -> str | None:
    """Return the first of some files below a folder that is not there any more."""
    if isinstance(path, Path):
        return next((file for file in files if not (path / file).exists()), None)
    from pyarrow.fs import FileSelector  # noqa: PLC0415  # for who has such storage alone

    found = _request(path, lambda storage: storage.get_file_info(FileSelector(path.key, recursive=True)))
    there = {info.path for info in found}
    return next((file for file in files if f"{path.key}/{file}" not in there), None)


def delta_options(path: LakePath) -> dict[str, str] | None:
    """Return what opens a table for Delta's library; None: it is on this machine."""
    return None if isinstance(path, Path) else present_storage().options


def storage_failure(text: str) -> str | None:
    """Return what an error means to who uses the storage; None: it is none of the storage's, or an unknown one.

    Args:
        text: the text of the error, by Arrow or by Delta's library, wherever it stands in it.
    """
    said = _SAID.search(text)
    if said is None:
        return None
    return next((meaning for words, meaning in _FAILURES if words.search(said[0])), None)


_SAID: Final = re.compile(r"(?:Generic S3 error|AWS Error|lacked the necessary privileges).*(?:\n(?!\s+at ).*){0,8}")
"""The start of what storage said, in the words of the two libraries; Java's stack may follow."""
_FAILURES: Final = tuple(
    (re.compile(words), meaning)
    for words, meaning in (
        (
            "ExpiredToken|RequestTimeTooSkewed|EXPIRED_TOKEN|REQUEST_TIME_TOO_SKEWED",
            "the credentials have expired: put new ones into the Secret, and it goes on",
        ),
        (
            "(?i:Invalid_?(Access_?Key_?Id|Token)|Signature_?Does_?Not_?Match|Access_?Denied|403 Forb|status:? 403)",
            "the storage refuses the credentials: put right ones into the Secret, and it goes on",
        ),
        ("NoSuchBucket|NO_SUCH_BUCKET", "there is no such bucket: make it, and it goes on"),
        (
            # An answer to a question for an object's size has no words.
            "SlowDown|SLOW_DOWN|TooManyRequests|429 Too|503 S|status:? (429|503)",
            "the storage asks for fewer requests; it goes on by itself",
        ),
        (
            "NETWORK_CONNECTION|REQUEST_TIMEOUT|error sending request|timed out|50[024] [A-Z]|status:? 50[024]",
            "the storage does not answer; it goes on when it does",
        ),
    )
)


def _request(path: ObjectPath, do: Callable[[fs.FileSystem], T]) -> T:
    """Use the storage, and raise its errors in words of its users."""
    storage = present_storage()
    try:
        return do(storage.files)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise away(path, error) from None


def away(path: ObjectPath, error: BaseException) -> LakeAwayError:
    """Return an error of the storage in words of its users."""
    endpoint = present_storage().settings["endpoint"]
    said = storage_failure(str(error)) or (str(error).splitlines() or [type(error).__name__])[0]
    return LakeAwayError(f"{path} at {endpoint}: {said}")
