"""The data directory of an installation: the layout of its files, their privacy, and the lock on it.

Files are replaced as a whole, and files and directories are never readable by others, not even for a moment.

The lock allows one process of a kind to work in the directory. The operating system holds it: it ends with the
process, however that ends. The lock file stays, and contains the process id of its last owner.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from enmasse.control.errors import DirectoryInUseError
from enmasse.errors import ConfigError

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
        """The URLs and processes of the installation; replaced as a whole."""
        return self.data / "endpoints.json"

    @property
    def ports(self) -> Path:
        """The ports that were chosen, so that they survive restarts."""
        return self.data / "ports.json"

    @property
    def node_count(self) -> Path:
        """The number of nodes, where there are several."""
        return self.data / "nodes.json"

    @property
    def tls(self) -> Path:
        """Certificates and keys; see ``drivers/authority.py``."""
        return self.data / "tls"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.data / "logs"

    @property
    def audit(self) -> Path:
        """The audit log of the API."""
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
    def devices(self) -> Path:
        """The device registry."""
        return self.control / "devices.db"

    @property
    def schemas(self) -> Path:
        """The schema registry."""
        return self.control / "schemas.db"

    @property
    def accounts(self) -> Path:
        """The accounts of the API."""
        return self.control / "access.db"

    @property
    def operator_token(self) -> Path:
        """The token of the operator, who may read the data directory; made at the first start, then kept."""
        return self.control / "operator.token"

    @property
    def console_page(self) -> Path:
        """The page that leads a browser of this machine to the console, with the operator's token."""
        return self.control / "console.html"

    @property
    def pipelines(self) -> Path:
        """The state of the pipelines of each space, and the host's own files."""
        return self.data / "pipelines"

    @property
    def pipelines_owner(self) -> Path:
        """The id by which a folder of pipelines is known to be this installation's, and which it is."""
        return self.data / "pipelines.json"

    @property
    def pipelines_token(self) -> Path:
        """The token of the host of pipelines for the API; another one at each start."""
        return self.control / "pipelines.token"

    @property
    def pipelines_socket(self) -> Path:
        """The socket over which control forwards requests about pipelines to their host."""
        return self._socket(self.pipelines.absolute() / "host.sock")

    @property
    def api_tls(self) -> Path:
        """The certificate that the API presents."""
        return self.control / "tls"

    def admin_socket(self, node: str) -> Path:
        """Return the socket over which a node is managed.

        It lies among the node's files, unless the kernel has no room for a
        path that long; then in a directory of this user's own for temporary files.
        """
        return self._socket(self.data.absolute() / "nodes" / node / "admin.sock")

    @property
    def peers(self) -> Path:
        """The directory of the sockets by which several nodes reach each other and what they share."""
        return self._socket(self.data.absolute() / "peers" / "passwords.sock").parent

    def _socket(self, path: Path) -> Path:
        if len(str(path).encode()) <= _MAX_SOCKET_PATH:
            return path
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        short = Path(tempfile.gettempdir()) / f"enmasse-{digest}" / path.name
        if len(str(short).encode()) <= _MAX_SOCKET_PATH:
            return short
        return Path("/tmp") / short.parent.name / path.name  # noqa: S108  # made for its user alone, as the other is


_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LONGEST_SECRET = 1024


def replace_file(path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
    """Replace a file, with the data on disk when this returns; its directory is made if there is none.

    Args:
        path: the file.
        data: its new contents.
        mode: its permissions; by default its owner alone may read it.
        owner: numbers of the user and the group whom it is given to before it has its name; None: it is ours.

    Raises:
        ConfigError: it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)  # a power cut would bring back the former file
        finally:
            os.close(directory)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


def make_private(directory: Path, option: str = "--data") -> None:
    """Create a directory that others cannot read, or close one of ours that they could.

    A directory that another user made, or a file of theirs in it, could be a trap: its owner can go on changing it.

    Args:
        directory: to be made or closed.
        option: by which users name another one.

    Raises:
        ConfigError: it belongs to another user, or is for everybody's files, or cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = directory.stat().st_mode
        inside = list(directory.iterdir()) if mode & (stat.S_IWGRP | stat.S_IWOTH) else []
        owners = {path: path.lstat().st_uid for path in inside} | {directory: directory.stat().st_uid}
        foreign = next((path for path, owner in owners.items() if owner != os.getuid()), None)
        is_for_all = bool(inside) and mode & stat.S_ISVTX and directory / "lock" not in inside
        if foreign is None and not is_for_all and mode & _OF_OTHERS:
            directory.chmod(stat.S_IMODE(mode) & ~(_OF_OTHERS | stat.S_ISVTX))
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be written ({error.strerror}): name a directory that you may write with "
            f"{option}, or see to it that you may write this one"
        ) from None
    if is_for_all:
        raise ConfigError(f"{directory} is for everybody's files: name a directory of your own with {option}")
    if foreign is not None:
        raise ConfigError(
            f"{foreign} belongs to another user (number {owners[foreign]}), who could change it: start EnMasse as "
            f"that user, give it to yourself, or name another directory with {option}"
        )


def keep_secret(path: Path, new: Callable[[], str], report: Callable[[str], None]) -> str:
    """Return the secret of a file that only we can read, made if there is none; one that others can read is replaced.

    Args:
        path: the file.
        new: makes a secret.
        report: called with a sentence, when a secret was replaced.

    Raises:
        ConfigError: it cannot be written there.
    """
    made, problem = new(), ""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                problem = "is no file"
            elif about.st_uid != os.getuid():
                problem = f"belonged to another user (number {about.st_uid})"
            elif about.st_mode & _OF_OTHERS:
                problem = f"could be read or changed by others (mode {stat.S_IMODE(about.st_mode):04o})"
            elif len(secret := file.read(_LONGEST_SECRET).strip()) >= len(made):
                return secret
            else:
                problem = "holds no whole token"
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        problem = "cannot be read as a token"
    replace_file(path, made.encode())
    if problem:
        report(f"{path} {problem}: a new token is in its place, and the former one is worth nothing")
    return made


class DirectoryLock:
    """An exclusive lock on a directory, which is made if it does not exist.

    Args:
        directory: the directory.
        name: the lock file's name in it.
        option: by which users name another directory.

    Raises:
        DirectoryInUseError: on entering, when another process holds the lock.
        ConfigError: on entering, when the directory cannot be made or written.
    """

    def __init__(self, directory: Path, name: str = "lock", option: str = "--data") -> None:
        self._directory = directory
        self._option = option
        self._path = directory / name
        self._file: int | None = None

    def is_held(self) -> bool:
        """Return whether any process, this one included, holds the lock now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def __enter__(self) -> Self:
        try:
            for directory in (self._directory.parent, self._directory):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Python opens files without inheritance, so no child can keep the lock alive.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{error.filename or self._path} cannot be written ({error.strerror}): "
                f"name a directory that you may write with {self._option}, or see to it that you may write this one"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            pid = int(owner) if owner.isdigit() else None
            raise DirectoryInUseError(self._directory, pid) from None
        # The process id is for people: on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        self._file = descriptor
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
