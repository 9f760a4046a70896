"""The audit log: who did what to which object, and how it ended; one line of JSON for each request.

Rules:
1. A line is written when the answer has been sent, refusals and failures included.
2. Nothing of a body or of a query is written but the name of what was created: neither Secrets nor passwords
   can get in.
3. The file belongs to us alone (mode 0600), is rotated by its size, and its oldest part goes.
4. A log that cannot be written is told of in the process's own log; requests go on.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import parse_qs

from enmasse.api.authorization import ask_of
from enmasse.errors import ConfigError
from enmasse.identity.requester import PIPELINE_HOST

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Audit", "AuditLevel", "AuditLog"]

AuditLevel = Literal["off", "writes", "all"]

_MAX_BYTES: Final = 10 * 1024 * 1024  # some 30,000 requests
_KEPT: Final = 5
_READING: Final = frozenset({"get", "list", "watch", "options"})
_REFUSED: Final = frozenset({401, 403, 429})
_LONGEST: Final = 256  # of what a client says about itself
_NAMED_WITHIN: Final = 64 * 1024  # of an answer; the name of an object comes early, but JSON is read whole

_log = logging.getLogger(__name__)


class AuditLog:
    """The file.

    Args:
        path: where it lies.
        level: ``writes``: what changes something or was refused; ``all``: reads too; ``off``: nothing.
        max_bytes: how large the file becomes before it is put aside.
        kept: how many that were put aside are kept.

    Raises:
        ConfigError: when its directory does not exist.
    """

    def __init__(
        self, path: Path, level: AuditLevel = "writes", *, max_bytes: int = _MAX_BYTES, kept: int = _KEPT
    ) -> None:
        if level != "off" and not path.parent.is_dir():
            raise ConfigError(f"the audit log {path} cannot be written: there is no directory {path.parent}")
        self._level = level
        self._file = None if level == "off" else _Rotating(path, max_bytes, kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def wants(self, verb: str, code: int) -> bool:
        """Tell whether a request is written down."""
        if self._level == "all":
            return True
        return self._level == "writes" and (verb not in _READING or code in _REFUSED)

    def write(self, entry: dict[str, Any]) -> None:
        """Write one line."""
        if self._file is not None:
            text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            self._file.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))


class Audit:
    """The layer of the application around all others, which sees every request and its end.

    Args:
        app: what is behind it.
        log: where it writes.
    """

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})  # layers behind this one may pass copies of the scope on, but all share it
        answer = _Answer()
        began = time.monotonic()

        async def seen(message: Message) -> None:
            answer.see(message)
            await send(message)

        try:
            await self._app(scope, receive, seen)
        except BaseException:
            answer.code = answer.code or 500
            raise
        finally:
            self._note(scope, answer, time.monotonic() - began)

    def _note(self, scope: Scope, answer: _Answer, took_s: float) -> None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        is_watch = query.get("watch", [""])[-1].lower() in ("true", "1")
        ask = ask_of(scope["method"], scope["path"], is_watch=is_watch)
        if not self._log.wants(ask.verb, answer.code):
            return
        requester = scope["state"].get("requester")
        if requester is PIPELINE_HOST and ask.resource == "pipelines/status" and answer.code < 300:
            return  # once a second for each pipeline; what control itself notes does not stand here either
        name = ask.name or (answer.created_name() if ask.verb == "create" else "")
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user": requester.name if requester else "",
            "from": (scope.get("client") or ("",))[0],
            "agent": _header(scope, b"user-agent"),
            "verb": ask.verb,
            "group": ask.group,
            "resource": ask.resource,
            "namespace": ask.namespace,
            "name": name,
            "path": ask.path[:_LONGEST],
            "dryRun": query.get("dryRun") == ["All"],
            "code": answer.code,
            "ms": round(took_s * 1000, 1),
        }
        # What does not apply is left out; who asked, and how it ended, always stands there.
        self._log.write({key: value for key, value in entry.items() if value or key in ("user", "code", "ms")})


@dataclass(slots=True)
class _Answer:
    """What is seen of an answer on its way to the client."""

    code: int = 0
    body: bytes = b""

    def see(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
        elif self.code == 201 and len(self.body) < _NAMED_WITHIN:
            self.body += message.get("body", b"")

    def created_name(self) -> str:
        """The name of the object that was created, where the client left it to us or said it in the body."""
        try:
            name = json.loads(self.body)["metadata"]["name"]
        except (ValueError, KeyError, TypeError):
            return ""
        return name if isinstance(name, str) else ""


def _header(scope: Scope, name: bytes) -> str:
    value: bytes = next((found for key, found in scope["headers"] if key == name), b"")
    return value.decode("latin-1")[:_LONGEST]


class _Rotating(logging.handlers.RotatingFileHandler):
    """A file that nobody else may read, and that tells once when it cannot be written."""

    def __init__(self, path: Path, max_bytes: int, kept: int) -> None:
        self._has_failed = False
        super().__init__(path, maxBytes=max_bytes, backupCount=kept, encoding="utf-8", delay=True)

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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
