"""The console: its files, and what it has to know before anybody has logged in.

Rules:
1. Everything comes from here, and runs under a policy that admits nothing else: no script in a page, none that is
   made from text, no connection to elsewhere, no frame around it.
2. The files hold nothing secret and are served to everybody; what they show they ask of the API.
3. A path below ``/console/`` without a file is a place in the console, so that links lead into it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

import enmasse
from enmasse.api.kube.status import RequestError
from enmasse.api.packed import PackedFile
from enmasse.version import __version__

if TYPE_CHECKING:
    from enmasse.api.access.authentication import Authenticator

# `make console` builds them; see the folder `console` of the repository.
STATIC: Final = Path(enmasse.__file__).parent / "console" / "static"

_PAGE: Final = "index.html"
_HASHED: Final = re.compile(r"-[A-Z0-9]{8}\.[a-z0-9]+$")
"""The end of a file name that contains the hash of the file: such a file never changes."""

_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
}
"""Those of a machine's own table differ."""

_HEADERS: Final = {
    # React sets style attributes of elements; style sheets in pages are refused all the same.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'self'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
}


def console_routes(authenticator: Authenticator, static: Path = STATIC) -> list[Route]:
    """Return the routes.

    Args:
        authenticator: the authenticator of requests.
        static: the directory of the files.
    """
    files = _Files(static)

    async def lead(_request: Request) -> Response:
        return RedirectResponse("/console/", 307)

    async def config(_request: Request) -> Response:
        """Tell the version, and how one logs in."""
        accounts = authenticator.accounts
        login = {
            "required": authenticator.is_required,
            "accounts": accounts is not None and bool(accounts.all()),
            "oidc": authenticator.provider_name,
        }
        return JSONResponse({"version": __version__, "login": login}, headers={"Cache-Control": "no-store"})

    async def file(request: Request) -> Response:
        path: str = request.path_params["path"]
        found = files.read(path)
        if found is None and _HASHED.search(path):
            raise RequestError(404, f"the console has no file {path[:100]}")
        if found is None:
            found = files.read(_PAGE)
        if found is None:
            raise RequestError(503, "the console is not built here: `make console` builds it, with Node.js")
        caching = "public, max-age=31536000, immutable" if _HASHED.search(path) else "no-cache"
        return found.answer(request, _HEADERS | {"Cache-Control": caching})

    return [
        Route("/console", lead),
        Route("/console/config.json", config),
        Route("/console/{path:path}", file),
    ]


class _Files:
    """The files below a directory, read again when they have changed."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._known: dict[Path, tuple[int, PackedFile]] = {}

    def read(self, name: str) -> PackedFile | None:
        """Return a file; None: there is none of this name."""
        path = (self._root / name).resolve() if "\0" not in name else self._root
        try:
            if not path.is_relative_to(self._root) or not path.is_file():
                return None
            changed = path.stat().st_mtime_ns
            known = self._known.get(path)
            if known is None or known[0] != changed:
                media_type = _MEDIA_TYPES.get(path.suffix, "application/octet-stream")
                known = self._known[path] = changed, PackedFile.of(path.read_bytes(), media_type)
        except OSError:
            return None
        return known[1]
