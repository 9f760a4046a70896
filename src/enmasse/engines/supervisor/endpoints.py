"""``endpoints.json``: what is served where, and by which processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from enmasse.engines.private_files import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Endpoint", "Endpoints", "Process", "read_endpoints", "write_endpoints"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL to connect to, and what is spoken there: ``amqp`` or ``api``."""

    protocol: str
    url: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the installation.

    Attributes:
        kind: ``supervisor``, ``control``, ``node``, ``journal`` or ``pipelines``.
        name: its own name; a journal has its node's.
        pid: its process id.
    """

    kind: str
    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The contents of the file."""

    endpoints: tuple[Endpoint, ...] = ()
    processes: tuple[Process, ...] = ()

    def url(self, protocol: str) -> str | None:
        """Return the first URL for a protocol."""
        return next((item.url for item in self.endpoints if item.protocol == protocol), None)


def write_endpoints(path: Path, endpoints: Endpoints) -> None:
    """Replace the file as a whole.

    Raises:
        ConfigError: it cannot be written.
    """
    replace_file(path, (json.dumps(asdict(endpoints), indent=2) + "\n").encode(), 0o644)


def read_endpoints(path: Path) -> Endpoints | None:
    """Return the contents of the file, None when there is none.

    Raises:
        ConfigError: when it was not written by us.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Endpoints(
            tuple(Endpoint(item["protocol"], item["url"]) for item in document["endpoints"]),
            tuple(Process(item["kind"], item.get("name", ""), item["pid"]) for item in document["processes"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a list of endpoints: {error!r}") from None
