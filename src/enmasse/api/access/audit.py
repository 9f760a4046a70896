"""The audit log: one line of JSON for each request and object, with requester, verb and result.

Rules:
1. A line is written after the answer has been sent, also for refusals and failures.
2. Bodies and queries are not written, except the name of a created object: no Secret or password can get in.
3. Fields are truncated: a line has some 2 KiB at most, whatever a client sends.
4. Anonymous requests go to a file of their own: a client without credentials can fill that one alone.
5. The files have mode 0600 and are rotated by size. Lines are kept for ``KEPT_DAYS``. Where there is no room for
   that, who has most of it loses the oldest ones, account with account: nobody pushes out what others did.
6. Reviews of one's own access are reads, although they are posted.
7. If a file cannot be written, the log of the process says so once, and requests are still served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import parse_qs

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.access.authorization import SPARK_PAGES, access_request_of
from enmasse.api.kube.requests import Query
from enmasse.errors import ConfigError
from enmasse.identity.rbac import ANONYMOUS, PIPELINE_HOST
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

AuditLevel = Literal["off", "writes", "all"]

KEPT_DAYS: Final = 90
"""Days for which lines are kept, if there is room."""

_MAX_BYTES: Final = 10 * 1024 * 1024  # some 30,000 requests
_KEPT: Final = 5
_MAX_READ: Final = 64 * 1024 * 1024  # all of it, in a thread
_TIME = re.compile(rb'"time":"([^"]+)"')
_ACCOUNT = re.compile(rb'"user":"((?:[^"\\]|\\.)+)"')
_ADDRESS = re.compile(rb'"from":"([^"]+)"')
_READING: Final = frozenset({"get", "list", "watch", "options"})
_REFUSED: Final = frozenset({401, 403, 429})
_LONGEST: Final = 256  # of each field, in characters
_CUT: Final = "..."
_NAMED_WITHIN: Final = 64 * 1024  # of an answer, which is parsed whole for the name

_REVIEWS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})

_OFTEN: Final = frozenset({"pipelines/status", "resourcequotas/status"})  # the pipeline host writes these often

_log = logging.getLogger(__name__)


class AuditLog:
    """The two files of the log: of authenticated and of anonymous requests.

    Args:
        path: the path of the first; the second has ``-nobody`` before its suffix.
        level: ``writes``: writes and refused requests; ``all``: reads too; ``off``: nothing.
        max_bytes: the size at which a file is rotated.
        kept: the most rotated files of that size.

    Raises:
        ConfigError: when its directory does not exist.
    """

    def __init__(
        self, path: Path, level: AuditLevel = "writes", *, max_bytes: int = _MAX_BYTES, kept: int = _KEPT
    ) -> None:
        if level != "off" and not path.parent.is_dir():
            raise ConfigError(f"the audit log {path} cannot be written: there is no directory {path.parent}")
        self._level = level
        anonymous = path.with_name(f"{path.stem}-nobody{path.suffix}")
        self._files: dict[bool, _Rotating] = {}
        if level != "off":
            self._files = {False: _Rotating(path, max_bytes, kept), True: _Rotating(anonymous, max_bytes, kept=1)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def wants(self, verb: str, code: int) -> bool:
        """Return whether a request is logged."""
        if self._level == "all":
            return True
        return self._level == "writes" and (verb not in _READING or code in _REFUSED)

    def read(
        self, *, limit: int, search: str = "", user: str = "", before: str = ""
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return entries of authenticated requests, the latest first, and whether others were not looked at.

        Args:
            limit: the most lines.
            search: a part of the line, in any case.
            user: the user who sent the request.
            before: only those with an earlier time.
        """
        found: list[dict[str, Any]] = []
        file = self._files.get(False)
        if file is None:
            return found, False
        for line in _lines_backwards(file.paths()):
            if line is None or len(found) >= limit:
                return found, True
            if search and search.lower() not in line.lower():
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the disk was full while it was written
            if (not user or entry.get("user") == user) and (not before or entry.get("time", "") < before):
                found.append(entry)
        return found, False

    def write(self, entry: dict[str, Any], *, is_anonymous: bool = False) -> None:
        """Write one line."""
        if self._files:
            cut = {key: _cut(value) if isinstance(value, str) else value for key, value in entry.items()}
            text = json.dumps(cut, ensure_ascii=False, separators=(",", ":"))
            self._files[is_anonymous].emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))


def _lines_backwards(paths: Iterable[Path]) -> Iterator[str | None]:
    """Yield the lines of files from their ends, and None in place of what is beyond the bound."""
    left = _MAX_READ
    for path in paths:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        for line in reversed(data[-left:].splitlines()):
            yield line.decode(errors="replace")
        left -= len(data)
        if left <= 0:
            yield None
            return


class Audit:
    """ASGI middleware that logs every request; the outermost one.

    Args:
        app: the wrapped application.
        log: the log of requests.
    """

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})  # inner middleware may pass on copies of the scope, which share the state
        answer = _Answer()
        began = time.monotonic()

        async def observed(message: Message) -> None:
            answer.observe(message)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except BaseException:
            answer.code = answer.code or 500
            raise
        finally:
            self._note(scope, answer, time.monotonic() - began)

    def _note(self, scope: Scope, answer: _Answer, took_s: float) -> None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        is_watch = query.get("watch", [""])[-1].lower() in ("true", "1")
        access = access_request_of(scope["method"], scope["path"], is_watch=is_watch)
        # They create nothing, and every open console asks for them.
        verb = "get" if access.resource in _REVIEWS and access.verb == "create" else access.verb
        if not self._log.wants(verb, answer.code):
            return
        requester = scope["state"].get("requester")
        if requester is PIPELINE_HOST and access.resource in _OFTEN and answer.code < 300:
            return  # once a second for each pipeline; writes of control itself are not logged either
        names: list[str] = scope["state"].get("written") or [
            access.name or (answer.created_name() if access.verb == "create" else "")
        ]
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user": requester.name if requester else "",
            "from": (scope.get("client") or ("",))[0],
            "agent": _header(scope, b"user-agent"),
            "verb": access.verb,
            "group": access.group,
            "resource": access.resource,
            "namespace": access.namespace,
            "name": "",
            "path": SPARK_PAGES if access.path.startswith(SPARK_PAGES) else access.path,  # without its ticket
            "dryRun": query.get("dryRun") == ["All"],
            "code": answer.code,
            "ms": round(took_s * 1000, 1),
        }
        for name in names:
            # Empty fields are left out, except the user and the result.
            named = (entry | {"name": name}).items()
            kept = {key: value for key, value in named if value or key in ("user", "code", "ms")}
            self._log.write(kept, is_anonymous=requester is None or requester is ANONYMOUS)


@dataclass(slots=True)
class _Answer:
    """The code of an answer, and the body of a creation."""

    code: int = 0
    body: bytes = b""

    def observe(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
        elif self.code == 201 and len(self.body) < _NAMED_WITHIN:
            self.body += message.get("body", b"")

    def created_name(self) -> str:
        """Return the name of the created object, which is not in the path."""
        try:
            name = json.loads(self.body)["metadata"]["name"]
        except (ValueError, KeyError, TypeError):
            return ""
        return name if isinstance(name, str) else ""


def _header(scope: Scope, name: bytes) -> str:
    value: bytes = next((found for key, found in scope["headers"] if key == name), b"")
    return value.decode("latin-1")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - len(_CUT)] + _CUT


class _Rotating(logging.handlers.RotatingFileHandler):
    """A rotated file with mode 0600, which is shared by accounts, and logs once if it cannot be written."""

    def __init__(self, path: Path, max_bytes: int, kept: int) -> None:
        self._has_failed = False
        # One more than there are: what a rotation adds is thinned out at once.
        super().__init__(path, maxBytes=max_bytes, backupCount=kept + 1, encoding="utf-8", delay=True)

    def doRollover(self) -> None:  # noqa: N802  # the library's name
        """Begin a new file, and make room for the one that is full."""
        super().doRollover()
        self._thin()

    def _thin(self) -> None:
        """Leave out lines that are too old, and the oldest of those who have most, until the rest has room."""
        paths = [path for path in self.paths()[1:] if path.exists()]
        lines = [line for path in reversed(paths) for line in path.read_bytes().splitlines(keepends=True)]
        since = (datetime.now(UTC) - timedelta(days=KEPT_DAYS)).isoformat().encode()
        kept = [line for line in lines if (found := _TIME.search(line)) is None or found[1] >= since]
        most = (self.backupCount - 1) * self.maxBytes
        parts = _in_parts(kept := _shared_out(kept, most), self.maxBytes)
        while len(parts) >= self.backupCount:
            most -= sum(map(len, parts[-1]))  # what does not fill the ends of files
            parts = _in_parts(kept := _shared_out(kept, most), self.maxBytes)
        if len(kept) == len(lines):
            return
        # Should this end in between, some lines are there twice.
        for path, part in zip(self.paths()[1:], parts, strict=False):
            draft = path.with_name(f"{path.name}.draft")
            with open(draft, "wb", opener=_private) as file:
                file.writelines(part)
            draft.replace(path)
        for path in self.paths()[1 + len(parts) :]:
            path.unlink(missing_ok=True)

    def paths(self) -> list[Path]:
        """Return the file and those that were rotated, the latest first."""
        return [Path(self.baseFilename), *(Path(f"{self.baseFilename}.{n}") for n in range(1, self.backupCount + 1))]

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.shouldRollover(record):
                self.doRollover()
            logging.FileHandler.emit(self, record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
        if not self._has_failed:
            _log.error("the audit log %s cannot be written", self.baseFilename, exc_info=True)
        self._has_failed = True

    def _open(self) -> IO[str]:  # type: ignore[override]  # any text file will do
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=_private)


def _in_parts(lines: list[bytes], most: int) -> list[list[bytes]]:
    """Return lines in parts of so many bytes at most, the latest part first."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for line in reversed(lines):
        if size + len(line) > most and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(line)
        size += len(line)
    return [part[::-1] for part in parts]


def _owner(line: bytes) -> bytes:
    """Return whose a line is: an account's, or of who gave no name an address's."""
    found = _ACCOUNT.search(line) or _ADDRESS.search(line)
    return b"" if found is None else found[1]


def _shared_out(lines: list[bytes], most: int) -> list[bytes]:
    """Return the lines, in their order, without the oldest of those who have most, so that they have room.

    Args:
        lines: the oldest first.
        most: bytes that there may be.
    """
    sizes: Counter[bytes] = Counter()
    for line in lines:
        sizes[_owner(line)] += len(line)
    over = sum(sizes.values()) - most
    if over <= 0:
        return lines
    # Those with less than an equal part keep all, and leave the rest of theirs to the others.
    left, share = most, 0
    for number, size in enumerate(sorted(sizes.values())):
        share = left // (len(sizes) - number)
        if size > share:
            break
        left -= size
    too_much = {owner: size - share for owner, size in sizes.items() if size > share}
    kept = []
    for line in lines:
        owner = _owner(line)
        if too_much.get(owner, 0) > 0:
            too_much[owner] -= len(line)
        else:
            kept.append(line)
    return kept


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


Part = Annotated[str, Field(max_length=_LONGEST)]


class _AuditQuery(Query):
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    search: Part = ""
    user: Part = ""
    before: Part = ""


def audit_routes(log: AuditLog) -> list[Route]:
    """Return the route by which administrators read the log.

    Args:
        log: the log of requests.
    """

    async def read(request: Request) -> Response:
        items, has_more = await asyncio.to_thread(log.read, **dict(_AuditQuery.of(request)))
        return JSONResponse(
            {
                "kind": "AuditList",
                "apiVersion": ADDRESS_SPACE.api_version,
                "metadata": {"hasMore": has_more},
                "items": items,
            }
        )

    return [Route(f"/apis/{ADDRESS_SPACE.api_version}/audit", read)]
