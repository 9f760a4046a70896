"""The host's rules, against a real API, with runners that speak the protocol and start no Spark.

What is looked at is who is started, told, stopped and reported, which is the same whatever the runner computes;
with Spark a start takes ten seconds, so that is shown by few tests (``test_pipeline_host_spark.py``).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError
from enmasse.pipeline.host import runners, space_runner
from enmasse.pipeline.host.api import api_client
from enmasse.pipeline.host.host import FINALIZER, Host
from enmasse.pipeline.host.separation import launch_command
from enmasse.pipeline.host.settings import HostSettings
from enmasse.pipeline.host.space_runner import RunnerKey
from tests.support.processes import is_alive
from tests.support.ready_processes import ReadyPopen

pytestmark = pytest.mark.slow

RUNNER = """
import json, os, sys
folder = sys.argv[sys.argv.index("--folder") + 1]
run = os.urandom(8).hex()  # its number may be that of another one in another place
heard = open(os.path.join(folder, "work", "heard"), "a", buffering=1)
def say(event, **fields): print(json.dumps({"event": event, **fields}), flush=True)
say("ready")
for line in sys.stdin:
    command = json.loads(line)
    heard.write(json.dumps({"run": run, "argv": sys.argv[1:], **command}) + "\\n")
    if command["command"] == "put":
        pipeline = command["pipeline"]
        name, generation = pipeline["metadata"]["name"], pipeline["metadata"]["generation"]
        os.makedirs(os.path.join(folder, "checkpoints", name), exist_ok=True)
        reason = "Finished" if pipeline["spec"].get("trigger") == "availableNow" else "Running"
        ready = {"type": "Ready", "status": "True", "reason": reason, "observedGeneration": generation}
        say("status", pipeline=name, status={"conditions": [ready], "rows": 5, "observedGeneration": generation})
        say("log", pipeline=name, line="runs " + name)
        say("status", pipeline="other.one", status={"rows": 666})
        say("log", pipeline="../../escape", line="no")
    elif command["command"] == "delete":
        say("deleted", pipeline=command["name"])
    elif command["command"] == "query":
        say("answer", id=command["id"], columns=[{"name": "a", "type": "INT"}], rows=[[1]], error=None)
"""
PLURALS = {"AddressSpace": "addressspaces", "Address": "addresses", "Pipeline": "pipelines"}
ROOT = "/apis/enmasse.io/v1beta1/namespaces/default"
LATE_S = 120.0


class Service:
    """An installation whose pipelines are hosted in this process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._log = data.with_name("up.log").open("ab")
        command = [sys.executable, "-m", "enmasse", "up", "--data", str(data), "--ports", "auto", "--no-pipelines"]
        self.process = ReadyPopen(command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + LATE_S
        while not (data / "endpoints.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = json.loads((data / "endpoints.json").read_text())
        urls = {item["protocol"]: item["url"] for item in found["endpoints"]}
        self.api, self.amqp = urls["api"], urls["amqp"]
        proof = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
        self.http = httpx.Client(base_url=self.api, headers=proof, trust_env=False, timeout=30)

    def stop(self) -> None:
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(150)
        self._log.close()

    def pid(self, kind: str) -> int:
        found = json.loads((self.data / "endpoints.json").read_text())
        return next(int(item["pid"]) for item in found["processes"] if item["kind"] == kind)

    def create(self, kind: str, name: str, **spec: Any) -> dict[str, Any]:
        body = {"apiVersion": "enmasse.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.http.post(f"{ROOT}/{PLURALS[kind]}", json=body)
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def space(self, name: str) -> None:
        self.create("AddressSpace", name, type="standard", plan="standard-unlimited")
        self.create("Address", f"{name}.in", address="in", type="stream")

    def pipeline(self, name: str, **spec: Any) -> None:
        given = {"sources": [{"name": "rows", "address": "in"}], "sinks": [{"table": "out"}]} | spec
        self.create("Pipeline", name, **given)

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{ROOT}/pipelines/{name}").json()
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(name).get("status", {})
        return found

    def patch(self, name: str, **spec: Any) -> None:
        headers = {"content-type": "application/merge-patch+json"}
        self.http.patch(f"{ROOT}/pipelines/{name}", json={"spec": spec}, headers=headers).raise_for_status()

    def delete(self, kind: str, name: str) -> None:
        self.http.request("DELETE", f"{ROOT}/{PLURALS[kind]}/{name}").raise_for_status()

    def is_gone(self, space: str) -> bool:
        return self.http.get(f"{ROOT}/addressspaces/{space}").status_code == 404

    def heard(self, space: str) -> list[dict[str, Any]]:
        path = self.data / "pipelines" / f"default.{space}" / "work" / "heard"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("host") / "data")
    yield service
    service.stop()


@asynccontextmanager
async def hosting(service: Service, **changes: Any) -> AsyncIterator[Host]:
    """A host for the time of the block."""
    settings = HostSettings(
        data=service.data,
        api=service.api,
        amqp=service.amqp,
        program=(sys.executable, "-c", changes.pop("source", RUNNER)),
        **{"folder": Layout(service.data).pipelines, "idle_s": 1.0, "is_api_open": False, **changes},
    )
    async with api_client(service.api, Layout(service.data).pipelines_token) as http:
        host = Host(settings, http)
        task = asyncio.create_task(host.run())
        try:
            yield host
        finally:
            assert not task.done(), task.exception()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(found: Callable[[], Any], what: Callable[[], Any] = lambda: None) -> Any:
    deadline = time.monotonic() + LATE_S
    while not (value := found()):
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)
    return value


def running(service: Service, name: str) -> Callable[[], bool]:
    return in_phase(service, name, "Running")


def in_phase(service: Service, name: str, phase: str) -> Callable[[], bool]:
    return lambda: bool(service.status(name).get("phase") == phase)


def test_a_space_has_a_runner_while_it_has_a_pipeline_that_is_to_run(service: Service) -> None:
    async def play() -> None:
        service.space("one")
        service.pipeline("one.a")
        service.pipeline("one.b")
        async with hosting(service) as host:
            for name in ("one.a", "one.b"):
                await until(running(service, name))
                assert service.status(name)["rows"] == 5
                assert FINALIZER in service.get(name)["metadata"]["finalizers"]
            assert len({line["run"] for line in service.heard("one")}) == 1
            argv = service.heard("one")[0]["argv"]
            assert argv[argv.index("--space") + 1] == "default/one"
            assert argv[argv.index("--space-host") + 1] == "one.default.enmasse.local"
            assert "runs one.a" in host.log_of("default", "one.a").tail(5)
            service.patch("one.a", paused=True)
            service.patch("one.b", paused=True)
            for name in ("one.a", "one.b"):
                await until(in_phase(service, name, "Paused"))
            await until(lambda: not host.runners)
            service.patch("one.a", paused=False)
            await until(lambda: service.status("one.a").get("phase") == "Running")
        events = service.http.get("/api/v1/namespaces/default/events").json()["items"]
        told = [item for item in events if item["involvedObject"]["name"] == "one.a"]
        assert {"Running", "Paused"} <= {item["message"].split()[1].rstrip(":") for item in told}

    asyncio.run(play())


def test_a_runner_that_is_killed_is_started_again_and_told_everything_again(service: Service) -> None:
    async def play() -> None:
        service.space("two")
        service.pipeline("two.a")
        service.pipeline("two.b")
        async with hosting(service) as host:
            await until(lambda: len([line for line in service.heard("two") if line["command"] == "put"]) == 2)
            (runner,) = [found for key, found in host.runners.items() if key.space == "default/two"]
            before = service.heard("two")[0]["run"]
            os.kill(await until(lambda: runner.pid), signal.SIGKILL)

            def names() -> set[str]:
                return {
                    line["pipeline"]["metadata"]["name"] for line in service.heard("two") if line["run"] != before
                }

            await until(lambda: names() == {"two.a", "two.b"})
            await until(lambda: service.status("two.a").get("phase") == "Running")
            assert runner.restarts == 1
            new = runner.pid
        assert new is not None
        assert not is_alive(new)

    asyncio.run(play())


def test_a_deleted_pipeline_goes_when_it_is_stopped_and_its_place_removed(service: Service) -> None:
    async def play() -> None:
        service.space("three")
        service.pipeline("three.a")
        async with hosting(service, idle_s=60.0) as host:
            await until(lambda: service.status("three.a").get("phase") == "Running")
            place = service.data / "pipelines" / "default.three" / "checkpoints" / "three.a"
            assert place.is_dir()
            service.delete("Pipeline", "three.a")
            await until(lambda: service.get("three.a").get("code") == 404)
            assert not place.exists()
            assert host.log_of("default", "three.a").tail(5) == []
            assert [line["command"] for line in service.heard("three")][-1] == "delete"
            service.pipeline("three.a")
            await until(lambda: service.status("three.a").get("phase") == "Running")

    asyncio.run(play())


def test_what_was_deleted_while_no_host_ran_is_removed_later(service: Service) -> None:
    async def play() -> None:
        service.space("four")
        service.pipeline("four.a")
        async with hosting(service):
            await until(lambda: service.status("four.a").get("phase") == "Running")
        service.delete("Pipeline", "four.a")
        place = service.data / "pipelines" / "default.four" / "checkpoints" / "four.a"
        assert place.is_dir()
        assert service.get("four.a")["metadata"]["deletionTimestamp"]
        async with hosting(service):
            await until(lambda: service.get("four.a").get("code") == 404)
        assert not place.exists()

    asyncio.run(play())


def test_a_pipeline_waits_for_its_address_and_then_runs(service: Service) -> None:
    async def play() -> None:
        service.space("five")
        service.pipeline("five.a", sources=[{"name": "rows", "address": "later"}])
        async with hosting(service) as host:
            await until(lambda: service.status("five.a").get("messages"))
            assert "later" in service.status("five.a")["messages"][0]
            assert not any(key.space == "default/five" for key in host.runners)
            service.create("Address", "five.later", address="later", type="stream")
            await until(lambda: service.status("five.a").get("phase") == "Running")
            put = next(line for line in service.heard("five") if line["command"] == "put")
            assert put["addresses"] == {"later": {"type": "stream"}}

    asyncio.run(play())


def test_a_session_of_its_own_is_a_runner_of_its_own_with_its_resources(service: Service) -> None:
    async def play() -> None:
        service.space("six")
        service.pipeline("six.shared")
        service.pipeline("six.alone", resources={"session": "own", "cores": 1, "memory": "1Gi"})
        async with hosting(service):
            for name in ("six.shared", "six.alone"):
                await until(running(service, name))
            runners = {line["pipeline"]["metadata"]["name"]: line for line in service.heard("six")}
            assert runners["six.shared"]["run"] != runners["six.alone"]["run"]
            argv = runners["six.alone"]["argv"]
            assert argv[-6:] == ["--session", "six.alone", "--cores", "1", "--memory", "1024m"]

    asyncio.run(play())


def test_a_runner_that_finds_no_room_in_its_namespaces_quota_waits_and_says_so(service: Service) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    hard = {"enmasse.io/sessions": "1", "requests.memory": "1Gi", "cpu": "9"}

    def used() -> Any:
        return service.http.get(f"{quotas}/one").json()["status"].get("used")

    async def play() -> None:
        service.http.delete(f"{ROOT}/pipelines").raise_for_status()  # all of former tests, which would take the room
        for name in ("twenty", "thirty"):
            service.space(name)
        service.pipeline("twenty.a")
        async with hosting(service, idle_s=0.05) as host:
            await until(running(service, "twenty.a"))
            service.pipeline("thirty.a")
            await until(lambda: service.status("thirty.a").get("messages"))
            status = service.status("thirty.a")
            assert {item["type"]: item["reason"] for item in status["conditions"]}["ResourcesGranted"] == (
                "QuotaExceeded"
            )
            assert "exceeded quota: one, requested: " in status["messages"][0]
            assert "enmasse.io/sessions=1" in status["messages"][0]
            with pytest.raises(UnavailableError, match="exceeded quota: one"):
                await host.query("default/thirty", {"sql": "SELECT 1", "limit": 1}, None, 10)
            await until(lambda: used() == {"enmasse.io/sessions": "1", "requests.memory": "640Mi", "cpu": "1"})
            service.patch("twenty.a", paused=True)
            await until(running(service, "thirty.a"))
            put = next(line for line in service.heard("thirty") if line["command"] == "put")
            assert put["argv"][-2:] == ["--cores", "1"] or os.cpu_count() == 1
            service.patch("thirty.a", paused=True)
            await until(lambda: used() == {"enmasse.io/sessions": "0", "requests.memory": "0", "cpu": "0"})

    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": {"hard": hard}}
    service.http.post(quotas, json=body).raise_for_status()
    try:
        asyncio.run(play())
    finally:
        service.http.request("DELETE", f"{quotas}/one")


def test_more_memory_than_the_machine_has_is_waited_for_with_a_sentence(service: Service) -> None:
    async def play() -> None:
        service.space("forty")
        service.pipeline("forty.a", resources={"session": "own", "memory": "500Ti"})
        async with hosting(service, idle_s=0.05) as host:
            await until(lambda: service.status("forty.a").get("messages"))
            assert "it asks for 500Ti of memory and this machine has " in service.status("forty.a")["messages"][0]
            assert not any(key.own == "forty.a" for key in host.runners)

    asyncio.run(play())


def test_python_does_not_run_where_the_api_asks_nobody_who_they_are(service: Service) -> None:
    async def play() -> None:
        service.space("open")
        service.pipeline(
            "open.a",
            steps=[{"name": "run", "function": "attack:run", "schema": "text STRING"}],
            code={"configMap": "attack"},
        )
        async with hosting(service, is_api_open=True) as host:
            found = await until(lambda: service.status("open.a").get("conditions"))
            (rule,) = (item for item in found if item["type"] == "PythonAllowed")
            assert (rule["status"], rule["reason"]) == ("False", "ApiOpen")
            assert "--allow-python" in rule["message"]
            assert "default/open" not in {key.space for key in host.runners}

    asyncio.run(play())


def test_a_host_that_is_listed_later_is_reached_by_the_runner_that_is_started_again(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "enmasse.pipeline.host")

    tries = """
import socket
try:
    socket.create_connection(("127.0.0.1", PORT), 5).close()
    open("tried", "a").write("reached ")
except OSError as error:
    open("tried", "a").write(type(error).__name__ + " ")
"""

    def list_hosts(text: str | None) -> None:
        headers = {"content-type": "application/merge-patch+json"}
        change = {"metadata": {"annotations": {"enmasse.io/pipeline-hosts": text}}}
        service.http.patch("/api/v1/namespaces/default", json=change, headers=headers).raise_for_status()

    async def play() -> None:
        service.space("reach")
        service.pipeline("reach.a")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            tried = service.data / "pipelines" / "default.reach" / "work" / "tried"
            async with hosting(service, source=tries.replace("PORT", str(port)) + RUNNER) as host:
                await until(running(service, "reach.a"))
                separation = await host.runners.find_separation()
                if separation.uncaged:
                    pytest.skip(f"namespaces cannot be made here: {separation.uncaged}")
                told = [record.getMessage() for record in caplog.records]
                assert sum("runners reach the node, the API and what enmasse.io/" in line for line in told) == 1
                assert tried.read_text() == "ConnectionRefusedError "
                list_hosts(f"db.example.com, 127.0.0.1:{port}")
                await until(lambda: tried.read_text() == "ConnectionRefusedError reached ")
                list_hosts(None)
                await until(lambda: tried.read_text() == "ConnectionRefusedError reached ConnectionRefusedError ")
                await until(running(service, "reach.a"))

    asyncio.run(play())


def test_a_finished_pipeline_is_not_begun_again(service: Service) -> None:
    async def play() -> None:
        service.space("seven")
        service.pipeline("seven.a", trigger="availableNow")
        async with hosting(service) as host:
            await until(lambda: service.status("seven.a").get("phase") == "Finished")
            await until(lambda: not any(key.space == "default/seven" for key in host.runners))
        puts = [line for line in service.heard("seven") if line["command"] == "put"]
        async with hosting(service) as host:
            await until(lambda: host.declared.is_known)
            await asyncio.sleep(1.0)
            assert not any(key.space == "default/seven" for key in host.runners)
        assert len(puts) == len([line for line in service.heard("seven") if line["command"] == "put"]) == 1

    asyncio.run(play())


def test_a_runner_goes_on_while_control_is_away_and_what_it_says_is_written_afterwards(service: Service) -> None:
    async def play() -> None:
        service.space("eight")
        service.pipeline("eight.a")
        async with hosting(service) as host:
            await until(lambda: service.status("eight.a").get("phase") == "Running")
            runner = next(item for key, item in host.runners.items() if key.space == "default/eight")
            pid, control = runner.pid, service.pid("control")
            os.kill(control, signal.SIGKILL)
            await until(lambda: service.pid("control") != control)

            def is_back() -> bool:
                try:
                    return service.http.get("/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            await until(is_back)
            service.patch("eight.a", trigger="5s")
            await until(lambda: service.status("eight.a").get("observedGeneration") == 2)
            assert runner.pid == pid

    asyncio.run(play())


def test_a_query_has_its_answer_and_needs_no_pipeline(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever asks for a space that there is not waits for word of it; here not as long.
    monkeypatch.setattr("enmasse.pipeline.host.declared._TOLD_S", 0.5)

    async def play() -> None:
        service.space("nine")
        async with hosting(service) as host:
            await until(lambda: ("default", "nine") in host.declared.spaces)
            with pytest.raises(UnavailableError, match="no Spark session runs for space default/nine"):
                await host.query("default/nine", {"limit": 5}, None, LATE_S, may_start=False)
            assert "default/nine" not in {key.space for key in host.runners}
            answer = await host.query("default/nine", {"sql": "SELECT 1", "limit": 5}, None, LATE_S)
            assert answer["rows"] == [[1]]
            (told,) = service.heard("nine")
            assert (told["sql"], told["addresses"]) == ("SELECT 1", {"in": {"type": "stream"}})
            with pytest.raises(UnavailableError, match="knows no space"):
                await host.query("default/none", {"sql": "SELECT 1", "limit": 5}, None, 1.0)
            with pytest.raises(UnavailableError, match="none"):
                await host.query("default/nine", {"sql": "SELECT 1", "limit": 5}, "none", 1.0)
            await until(lambda: not any(key.space == "default/nine" for key in host.runners))

    asyncio.run(play())


def test_credentials_lie_there_as_long_as_something_names_their_secret(service: Service) -> None:
    authority = "-----BEGIN CERTIFICATE-----"
    waiting = RUNNER.replace('say("answer"', 'open(os.path.join(folder, "work", "go")).read(); say("answer"')
    folder = service.data / "pipelines" / "default.keys"

    def lying() -> list[str]:
        return sorted(path.name for path in (folder / "credentials").glob("[!_]*"))

    async def play() -> None:
        service.space("keys")
        for name in ("former", "reader", "asker"):
            entries = {"username": name, "password": "secret", "ca.crt": authority}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries}
            service.http.post("/api/v1/namespaces/default/secrets", json=body).raise_for_status()
        service.pipeline("keys.a", credentialsSecret="former")
        async with hosting(service, source=waiting) as host:
            await until(running(service, "keys.a"))
            assert lying() == ["former.crt", "former.json"]
            go = folder / "work" / "go"
            os.mkfifo(go)
            go.chmod(0o644)
            query = asyncio.create_task(host.query("default/keys", {"sql": "SELECT 1", "limit": 5}, "asker", LATE_S))
            await until(lambda: service.heard("keys")[-1]["command"] == "query")
            service.patch("keys.a", credentialsSecret="reader")
            await until(lambda: lying() == ["asker.crt", "asker.json", "reader.crt", "reader.json"], lying)
            assert not query.done()
            await asyncio.to_thread(go.write_text, "now")
            assert (await query)["rows"] == [[1]]
            await until(lambda: lying() == ["reader.crt", "reader.json"], lying)
            service.delete("Pipeline", "keys.a")
            await until(lambda: lying() == [], lying)

    asyncio.run(play())


def test_what_a_killed_host_left_running_is_ended_before_the_next_begins(service: Service) -> None:
    async def play() -> None:
        service.space("ten")
        service.pipeline("ten.a")
        # Only the one that is left behind: the former host, which has not really died, starts another.
        begin = "import os\nis_first = not os.path.exists('begun')\nopen('begun', 'w').close()\n"
        end = "import time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600 * is_first)\n"
        stubborn = begin + RUNNER + end
        async with hosting(service, source=stubborn) as host:
            await until(lambda: service.status("ten.a").get("phase") == "Running")
            runner = next(item for key, item in host.runners.items() if key.space == "default/ten")
            pid = runner.pid
            assert pid is not None
            before = service.heard("ten")[0]["run"]
            # As if the host had died here: another one, that knows of it only what is on disk.
            async with hosting(service):
                await until(lambda: not is_alive(pid))
                await until(lambda: [line for line in service.heard("ten") if line["run"] != before])

    asyncio.run(play())


def test_a_space_that_goes_takes_its_runner_along(service: Service) -> None:
    async def play() -> None:
        service.space("gone")
        service.pipeline("gone.a")
        async with hosting(service, idle_s=60.0) as host:
            await until(lambda: service.status("gone.a").get("phase") == "Running")
            runner = next(item for key, item in host.runners.items() if key.space == "default/gone")
            pid = runner.pid
            assert pid is not None
            service.delete("AddressSpace", "gone")
            await until(lambda: not is_alive(pid))
            await until(lambda: service.get("gone.a").get("code") == 404)
            await until(lambda: service.is_gone("gone"))

    asyncio.run(play())


def test_a_space_that_goes_does_not_wait_until_its_runner_has_started(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but an end at once takes it away within this test's patience.
    monkeypatch.setattr(space_runner, "GRACE_S", 600.0)

    async def play() -> None:
        service.space("early")
        service.pipeline("early.a")
        async with hosting(service, source="import time; time.sleep(600)") as host:
            runner = await until(lambda: host.runners.get(RunnerKey("default/early")))
            pid = await until(lambda: runner.pid)
            service.delete("AddressSpace", "early")
            await until(lambda: service.is_gone("early"))
            await until(lambda: not is_alive(pid))

    asyncio.run(play())


def test_a_pipeline_goes_while_the_runner_that_it_shares_starts_and_the_others_run(service: Service) -> None:
    async def play() -> None:
        service.space("shares")
        service.pipeline("shares.a")
        service.pipeline("shares.b")
        patient = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n" + RUNNER
        async with hosting(service, source=patient) as host:
            runner = await until(lambda: host.runners.get(RunnerKey("default/shares")))
            await until(lambda: set(runner.assigned) == {"shares.a", "shares.b"})
            service.delete("Pipeline", "shares.a")
            await until(lambda: service.get("shares.a").get("code") == 404)
            (service.data / "pipelines" / "default.shares" / "work" / "go").touch()
            await until(running(service, "shares.b"))
            assert runner.restarts == 0
        assert {line["pipeline"]["metadata"]["name"] for line in service.heard("shares")} == {"shares.b"}

    asyncio.run(play())


PAGES = """
import socket, sys, threading
def serve(listener):
    while True:
        client, _ = listener.accept()
        asked = client.recv(65536).split(b"\\r\\n")[0]
        client.sendall(b"HTTP/1.0 200 OK\\r\\ncontent-type: text/plain\\r\\n\\r\\n" + asked)
        client.close()
if "--ui" in sys.argv:
    listener = socket.socket(fileno=int(sys.argv[sys.argv.index("--ui") + 1]))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
"""


def test_a_runner_shows_spark_on_a_socket_of_the_hosts_once_its_space_says_so(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def page(host: Host, path: str) -> str:
        async with host.ui_of("default", "shown.a").get(path, {}) as answer:
            await answer.aread()
            return answer.text

    def arguments() -> list[str]:
        argv: list[str] = service.heard("shown")[-1]["argv"]
        return argv

    async def play() -> None:
        service.space("shown")
        service.pipeline("shown.a")
        async with hosting(service, source=PAGES + RUNNER) as host:
            await until(running(service, "shown.a"))
            assert not {"--ui", "--event-log"} & set(arguments())
            with pytest.raises(UnavailableError, match=r"spec\.spark\.ui of the AddressSpace"):
                host.ui_of("default", "shown.a")
            headers = {"content-type": "application/merge-patch+json"}
            change = {"spec": {"spark": {"ui": True, "eventLog": True}}}
            service.http.patch(f"{ROOT}/addressspaces/shown", json=change, headers=headers).raise_for_status()
            # Another one is started, which gets all pipelines again.
            await until(lambda: {"--ui", "--event-log"} <= set(arguments()))
            await until(running(service, "shown.a"))
            assert await page(host, "/jobs/?a=%2F") == "GET /jobs/?a=%2F HTTP/1.1"
            folder = service.data / "pipelines" / "ui"
            (socket_,) = folder.iterdir()
            assert [path.stat().st_mode & 0o777 for path in (folder, socket_)] == [0o700, 0o600]
            (runner,) = [item for item in host.runners.values() if item.key.space == "default/shown"]
            os.kill(await until(lambda: runner.pid), signal.SIGKILL)
            await until(lambda: runner.restarts == 1 and runner.is_ready)
            assert await page(host, "/") == "GET / HTTP/1.1"
            with pytest.raises(UnavailableError, match="has no Spark session that runs"):
                host.ui_of("default", "shown.none")
        assert not list(folder.iterdir())
        # A mock, as nothing that a test can do has this fail: the disk is full, or there are too many open files.
        failures = [OSError("too many open files")]

        def launch(*given: Any) -> list[str]:
            if failures:
                raise failures.pop()
            return launch_command(*given)

        monkeypatch.setattr(runners, "launch_command", launch)
        # Somewhere else, with a path that is too long for a socket.
        elsewhere = service.data.with_name("elsewhere" * 20)
        async with hosting(service, source=PAGES + RUNNER, folder=elsewhere):
            await until(lambda: not failures)
            await until(lambda: len(list(folder.iterdir())) == 1)
            await until(running(service, "shown.a"))
            assert len(list(folder.iterdir())) == 1

    asyncio.run(play())
