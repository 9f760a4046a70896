"""The dashboards for Grafana and the rules for alerts, held against a real Prometheus and Grafana's own types."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from enmasse.api.metrics.dashboards import documents
from tests.console.node_packages import SOURCE, bring_packages
from tests.scenario.howto_place import blocks
from tests.support.foreign_tools import HERE, PROMETHEUS, require
from tests.support.polling import until
from tests.support.ready_commands import command_path

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
RULES, PAGE = ROOT / "deploy/prometheus/alerts.yaml", ROOT / "docs/howto/watch-with-grafana.md"
CHOSEN = {"$namespace": "default", "$addressspace": ".*", "$node": ".*", "$pipeline": ".*", "$__range": "1h"}
CHOSEN |= {"$__rate_interval": "1m"}


@pytest.fixture
def prometheus(shared: Installation, tmp_path: Path) -> Iterator[str]:
    """The URL of one that reads the installation each second, set up as the how-to says, with our rules."""
    require("Prometheus")
    environment = os.environ | {"PATH": command_path(), "ENMASSE_DATA": str(shared.data)}
    shared.run("account", "remove", "prometheus")  # of another page
    for commands, told in blocks("watch-with-grafana.md").values():
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, told) in ((0, None), (0, done.stdout)), done.stderr
    assert (tmp_path / "enmasse.token").stat().st_mode & 0o777 == 0o600
    assert {path.stem: json.loads(path.read_text()) for path in (tmp_path / "dashboards").iterdir()} == documents()

    written = yaml.safe_load(re.findall(r"```yaml\n(rule_files:.*?)```", PAGE.read_text(), re.DOTALL)[0])
    (job,) = written["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["localhost:8080"]
    job["static_configs"][0]["targets"] = [shared.url("api").partition("//")[2]]
    job["scrape_interval"] = "1s"
    with socket.create_server(("127.0.0.1", 0)) as held:
        place = f"127.0.0.1:{held.getsockname()[1]}"
    shutil.copy(RULES, tmp_path / written["rule_files"][0])
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"global": {"evaluation_interval": "1s"}} | written))
    options = ("--config.file", tmp_path / "prometheus.yml", "--storage.tsdb.path", tmp_path / "tsdb")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([PROMETHEUS, *options, "--web.listen-address", place], stdout=log, stderr=log)
    try:
        yield f"http://{place}/api/v1"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def client(prometheus: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=prometheus, timeout=10, trust_env=False, verify=False) as found:  # it speaks no TLS
        yield found


def test_prometheus_has_what_every_panel_asks_for(shared: Installation, client: httpx.Client) -> None:
    for _ in range(3):
        shared.ok("send", "orders", "x")

    def asked(path: str, **parameters: str) -> Any:
        try:
            answer = client.get(path, params=parameters)
        except httpx.TransportError:
            return None  # it has no port yet
        if answer.status_code == 503:
            return None  # it begins
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def readings() -> float:
        found = asked("query", query="sum(count_over_time(enmasse_node_up[1h]))")
        return float(found["result"][0]["value"][1]) if found and found["result"] else 0.0

    until(lambda: readings() >= 3)  # a rate needs two
    told = {name for name in asked("label/__name__/values") if name.startswith("enmasse_")}
    empty = set()
    for document in documents().values():
        for panel in document["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in CHOSEN.items():
                    expression = expression.replace(variable, value)
                found = asked("query", query=expression)["result"]
                if not found and 'address=~"' not in expression:  # devices have not sent anything
                    empty |= set(re.findall(r"enmasse_\w+", expression))
    assert empty.isdisjoint(told)
    # There are no connectors, no pipelines, and no consumers of streams that have a name.
    without = ("enmasse_connector_", "enmasse_pipeline", "enmasse_consumer_lag")
    assert {name for name in empty if not name.startswith(without)} == set()
    groups = asked("rules")["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"] == []
    assert sum(len(group["rules"]) for group in groups) > 10


def test_grafanas_own_types_take_the_dashboards(tmp_path: Path) -> None:
    require("Grafana's schema")
    bring_packages()
    types = HERE / "node_modules/@grafana/schema/dist/esm/index.gen"
    lines = [
        f'import type {{ Dashboard, Panel }} from "{types}";',
        # A file has the values of their enumerations, and no names.
        "type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;",
    ]
    for name, document in documents().items():
        lines.append(f"export const {name}: Plain<Dashboard> = {json.dumps(document)};")
        lines.append(f"export const {name}Panels: Plain<Panel>[] = {json.dumps(document['panels'])};")
    (tmp_path / "dashboards.ts").write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler"]
    command = [str(SOURCE / "node_modules/.bin/tsc"), *options, str(tmp_path / "dashboards.ts")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
