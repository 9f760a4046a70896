"""Where the files of an installation lie, below its data directory."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEFAULT_NODE", "Layout"]

DEFAULT_NODE = "node-0"

_MAX_SOCKET_PATH = 100  # bytes; the kernel has room for 107, a node keeps some of them back


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one installation.

    Attributes:
        data: the data directory.
    """

    data: Path

    @property
    def endpoints(self) -> Path:
        """What is served where, and by which processes; replaced as a whole."""
        return self.data / "endpoints.json"

    @property
    def ports(self) -> Path:
        """The ports that were chosen, so that they survive restarts."""
        return self.data / "ports.json"

    @property
    def tls(self) -> Path:
        """Certificates and keys; see ``engines/authority.py``."""
        return self.data / "tls"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.data / "logs"

    @property
    def audit(self) -> Path:
        """Who did what through the API."""
        return self.data / "audit.log"

    @property
    def control(self) -> Path:
        """The control process's own files."""
        return self.data / "control"

    @property
    def store(self) -> Path:
        """The resource store."""
        return self.control / "resources.db"

    @property
    def accounts(self) -> Path:
        """Who may use the API."""
        return self.control / "access.db"

    @property
    def operator_token(self) -> Path:
        """By which commands that may read the data directory prove it to the API; another one at each start."""
        return self.control / "operator.token"

    @property
    def pipelines(self) -> Path:
        """What the pipelines of each space keep, and the host's own files."""
        return self.data / "pipelines"

    @property
    def pipelines_token(self) -> Path:
        """By which the host of pipelines proves to the API who it is; another one at each start."""
        return self.control / "pipelines.token"

    @property
    def pipelines_socket(self) -> Path:
        """Over which control passes on to the host what users ask of their pipelines."""
        return self._socket(self.pipelines.absolute() / "host.sock")

    @property
    def api_tls(self) -> Path:
        """The certificate that the API shows."""
        return self.control / "tls"

    def admin_socket(self, node: str) -> Path:
        """Return the socket over which a node is managed.

        It lies among the node's files, unless the kernel has no room for a
        path that long; then in a directory of this user's own for temporary files.
        """
        return self._socket(self.data.absolute() / "nodes" / node / "admin.sock")

    def _socket(self, path: Path) -> Path:
        if len(str(path).encode()) <= _MAX_SOCKET_PATH:
            return path
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"enmasse-{digest}" / path.name
