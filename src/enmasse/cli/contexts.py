"""Contexts: the installations where a user has logged in, in a file of their own with their tokens."""

from __future__ import annotations

import os
import ssl
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError

_VARIABLE = "ENMASSE_CONFIG"


@dataclass(frozen=True, slots=True)
class Context:
    """An installation, and our account there.

    Attributes:
        name: the name of the context.
        server: URL of the API.
        user: the user who logged in.
        token: proves it.
        token_id: names the token, for revoking it; empty if it was made elsewhere.
        authority: the certificate (PEM) that vouches for the API; empty: those that the system trusts do.
    """

    name: str
    server: str
    user: str
    token: str
    token_id: str = ""
    authority: str = ""

    def __repr__(self) -> str:
        """Leave the token out, for logs and traces."""
        return f"Context({self.name!r}, {self.server!r}, {self.user!r})"


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and which of them commands use."""

    current_name: str = ""
    contexts: tuple[Context, ...] = ()

    @property
    def current(self) -> Context | None:
        """The context that commands use; None: the installation of the data directory."""
        return next((context for context in self.contexts if context.name == self.current_name), None)

    def with_context(self, context: Context) -> Contexts:
        """Return them with this one, as the current one."""
        others = tuple(item for item in self.contexts if item.name != context.name)
        return Contexts(context.name, (*others, context))

    def without(self, name: str) -> Contexts:
        """Return them without one; if it was the current one, none is."""
        left = tuple(item for item in self.contexts if item.name != name)
        return replace(self, contexts=left, current_name="" if name == self.current_name else self.current_name)


def config_path() -> Path:
    """Return the file: ``$ENMASSE_CONFIG``, else ``enmasse/config`` among this user's configurations."""
    if given := os.environ.get(_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "enmasse" / "config"


def read_contexts() -> Contexts:
    """Return what the file holds; nothing when there is none.

    Raises:
        ConfigError: when it was not written by us.
    """
    path = config_path()
    unreadable = ConfigError(f"{path} cannot be read as the file of logins: remove it, and log in again")
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, ValueError):
        raise unreadable from None
    import yaml  # noqa: PLC0415  # who has not logged in need not wait for it

    try:
        document = yaml.safe_load(text)
        return Contexts(document["current"], tuple(Context(**item) for item in document["contexts"]))
    except (ValueError, KeyError, TypeError, yaml.YAMLError):
        raise unreadable from None  # the error itself might quote a token


def write_contexts(contexts: Contexts) -> Path:
    """Replace the file, readable by its owner alone; return its path.

    Raises:
        ConfigError: when it cannot be written.
    """
    import yaml  # noqa: PLC0415  # commands that log nobody in need not wait for it

    document = {"current": contexts.current_name, "contexts": [asdict(item) for item in contexts.contexts]}
    path = config_path()
    replace_file(path, yaml.safe_dump(document, sort_keys=False).encode())
    return path


def trust(url: str, authority: str) -> ssl.SSLContext | bool:
    """Return the authorities to trust for a URL, as httpx takes them."""
    if not url.startswith("https:"):
        # No authority is needed where nothing is encrypted: to read all authorities takes a fifth of a short command.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not authority:
        return True
    try:
        return ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"what was given as the authority of {url} is no certificate (PEM)") from None
