"""A real S3 server, as a process of its own: Versity's gateway over a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyarrow import fs

from tests.support.foreign_tools import HERE, require
from tests.support.polling import until

__all__ = ["BUCKET", "ObjectStorage"]

BUCKET = "lake"

START_S = 30.0


class ObjectStorage:
    """Runs the server on a free port of the loopback interface, with one bucket; a context manager.

    Args:
        folder: for its objects.
        access: the key of its one user.
        secret: and the secret one.

    Attributes:
        port: the same for all its lives.
        endpoint: its URL.
        settings: what a space needs to have its tables there, as ``_lake.json`` has it.
    """

    def __init__(self, folder: Path, access: str = "tests", secret: str = "a secret of tests") -> None:
        require("an S3 server")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port: int = taken.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.settings = {
            "endpoint": self.endpoint,
            "bucket": BUCKET,
            "accessKeyId": access,
            "secretAccessKey": secret,
        }

    def __enter__(self) -> Self:
        self.start()
        self.files().create_dir(BUCKET)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, secret: str = "") -> None:
        """Start it, and wait until it answers; its user may have another secret than before."""
        for name in ("objects", "metadata"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "ROOT_ACCESS_KEY": self.settings["accessKeyId"],
            "ROOT_SECRET_KEY": secret or self.settings["secretAccessKey"],
        }
        command = [str(HERE / "versitygw"), "--quiet", "--port", f"127.0.0.1:{self.port}", "posix"]
        command += ["--sidecar", str(self._folder / "metadata"), str(self._folder / "objects")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until(self._answers, "the S3 server does not answer", seconds=START_S)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End it; objects that it has acknowledged stay."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def forget(self, path: str) -> None:
        """Have no object ``/BUCKET/KEY``, as if there never had been one."""
        (self._folder / "objects" / path.removeprefix("/")).unlink(missing_ok=True)
        shutil.rmtree(self._folder / "metadata" / path.removeprefix("/"), ignore_errors=True)

    def files(self) -> fs.S3FileSystem:
        """Return what its objects are looked at with."""
        return fs.S3FileSystem(
            access_key=self.settings["accessKeyId"],
            secret_key=self.settings["secretAccessKey"],
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )

    def options(self) -> dict[str, str]:
        """Return what its tables are looked at with by Delta's library."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": self.settings["accessKeyId"],
            "aws_secret_access_key": self.settings["secretAccessKey"],
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def write_settings(self, credentials: Path, **other: Any) -> Path:
        """Write the file by which a space's processes find it, in place of a former one; return it."""
        file = credentials / "_lake.json"
        new = credentials / "_lake.new"
        new.write_text(json.dumps(self.settings | other))
        new.replace(file)
        return file

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
