"""A PostgreSQL server of a test's own, on a free port of loopback, with TLS and passwords by SCRAM."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adbc_driver_postgresql import dbapi

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql/bin"))
"""In a folder that is on nobody's path."""

USER, PASSWORD, DATABASE = "plant", "it's a \\ secret", "postgres"


class PostgreSQL:
    """A server that can be stopped and started again; it refuses to run as root, and runs as ``postgres`` then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        secret = folder / "password"
        secret.write_text(PASSWORD)
        make_certificate(folder)
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, "postgres", "postgres")
        self._run("initdb", "-D", "data", "-U", USER, "--pwfile", str(secret), "-A", "scram-sha-256", "-N")
        settings = [
            f"port = {self.port}",
            "listen_addresses = '127.0.0.1'",
            "unix_socket_directories = ''",
            "fsync = off",
            "ssl = on",
            f"ssl_cert_file = '{folder / 'server.crt'}'",
            f"ssl_key_file = '{folder / 'server.key'}'",
        ]
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write("\n".join(settings) + "\n")
        self.start()

    @property
    def authorities(self) -> str:
        """The certificate that vouches for the server, PEM."""
        return (self.folder / "server.crt").read_text()

    def start(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")

    def reload(self) -> None:
        """Have it read its files again, which it does a moment later."""
        self._run("pg_ctl", "-D", "data", "reload")

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self._connected() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._connected() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def _connected(self) -> Any:
        password = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        words = f"host=127.0.0.1 port={self.port} user={USER} password='{password}' dbname={DATABASE} sslmode=disable"
        return dbapi.connect(words, autocommit=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(PROGRAMS / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        # Not piped: the server would hold a pipe open.
        with (self.folder / f"{program}.out").open("wb") as out:
            done = subprocess.run(command, check=False, cwd=self.folder, stdout=out, stderr=out, timeout=60)
        assert done.returncode == 0, (self.folder / f"{program}.out").read_text()


def make_certificate(folder: Path) -> None:
    """Make a key and a certificate for 127.0.0.1 and localhost that vouches for itself."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "server.key", "-out", "server.crt", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "server.key").chmod(0o600)


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """Run a server in a folder that its user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="enmasse-postgresql-"))
    server = None
    try:
        server = PostgreSQL(folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
