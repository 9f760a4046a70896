"""A runner process of one space, spoken to as its host does."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.support.chance import kills

PATIENCE_S = 120.0
"""Spark starts, and the machine may be busy."""


class RunnerPlace:
    """Starts a runner, sends it commands and keeps what it says."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.statuses: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, program: Sequence[str] = ("-m", "enmasse.pipeline")) -> None:
        command = [sys.executable, *program, "run", "--space", "default/demo", "--url", self.url]
        command += ["--space-host", "demo", "--folder", str(self.folder), "--quick", "--cores", "2", *options]
        self.folder.mkdir(parents=True, exist_ok=True)
        # Others in this process may have set where their Spark finds credentials.
        environment = os.environ | {"ENMASSE_CREDENTIALS": str(self.folder / "credentials")}
        with (self.folder / "runner.err").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "status":
                self.statuses[event["pipeline"]] = event["status"]
            elif event["event"] == "log":
                self.log.append(event["line"])
            else:
                self.events.put(event)

    def send(self, **command: Any) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def put(self, name: str, spec: dict[str, Any], addresses: dict[str, Any] | None = None) -> None:
        """Have a pipeline run; its batches follow one another sooner than by default, unless it has a trigger."""
        resource = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": {"name": name, "namespace": "default", "generation": 1},
            "spec": {"trigger": "200ms", **spec},
        }
        self.send(command="put", pipeline=resource, credentials="", addresses=addresses or {})

    def interrupt(self, name: str, spec: dict[str, Any], addresses: dict[str, Any]) -> None:
        """Stop a pipeline in whatever it does, such that its queries do their last batches again when it goes on.

        So it is after a kill, which `make soak` does instead; `test_pipeline_running_faults.py` always does.
        """
        if kills(0):
            self.kill()
            self.start()
            self.next_event("ready")
        else:
            self.put(name, spec | {"paused": True}, addresses)
            self.until(lambda: self.statuses[name]["conditions"][0]["reason"] == "Paused")
        for offsets in (self.folder / "checkpoints" / name).rglob("offsets"):
            batch = max((int(entry.name) for entry in offsets.glob("[0-9]*")), default=0)
            (offsets.parent / "commits" / str(batch)).unlink(missing_ok=True)

    def ask(self, sql: str, limit: int = 1000, **more: Any) -> dict[str, Any]:
        self.send(command="query", id="1", sql=sql, limit=limit, **more)
        return self.next_event("answer")

    def ask_tables(self) -> dict[str, Any]:
        """The tables of the lake, as the console lists them."""
        self.send(command="query", id="1", limit=1000)
        return self.next_event("answer")

    def next_event(self, kind: str) -> dict[str, Any]:
        """The next event of a kind; those before it are forgotten."""
        while True:
            event = self.events.get(timeout=PATIENCE_S)
            if event["event"] == kind:
                return event

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, read as others read it."""
        path = self.folder / "lake" / table
        if (path / "_delta_log").is_dir():
            from deltalake import DeltaTable

            found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
            return found
        if not path.is_dir():
            return []
        rows: list[dict[str, Any]] = ds.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()
        return rows

    def count(self, table: str) -> int:
        """How many rows a Delta table has, by its log alone."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return int(DeltaTable(self.folder / "lake" / table).count())
        except TableNotFoundError:  # or its first version is just being written
            return 0

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
        """What the condition gives once it gives something; a status that it looks at may not be told yet."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(KeyError, IndexError):
                if found := condition():
                    return found
            assert self.process is None or self.process.poll() is None, (self.folder / "runner.err").read_text()
            assert time.monotonic() < deadline, (self.statuses, self.log[-20:])
            time.sleep(0.1)

    def state(self, name: str) -> set[str]:
        return {query["state"] for query in self.statuses.get(name, {}).get("queries", ())}

    def forget(self) -> None:
        """Remove all pipelines and tables, and what was said of them."""
        for name in self.statuses:
            self.send(command="delete", name=name, purge=True)
        self.until(lambda: not any((self.folder / "checkpoints").glob("demo.*")))
        for folder in ("lake", "code"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        self.statuses.clear()
        self.log.clear()

    def stop(self) -> int:
        """End it in order; its exit code."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(150)
        self._close()
        return code

    def kill(self) -> None:
        """End it by force, and nothing of what it started."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        assert self.process is not None
        self._reader.join(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
