"""One installation for all attempts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.tenancy.tenants import NAMESPACES, PASSWORDS, Tenants, account, declare, fill, run


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    data = tmp_path_factory.mktemp("tenancy") / "data"
    environment = os.environ | {"ENMASSE_CONFIG": str(data.parent / "config")}
    account("add", "root-of-all", "--admin", data=data, environment=environment, stdin="nobody guesses this\n")
    log = data.with_name("up.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "enmasse", "up", "--data", str(data), "--ports", "auto", "--api-auth", "required"],
        stdout=log, stderr=log, env=environment,
    )  # fmt: skip
    try:
        run("status", "--wait", "60", data=data, environment=environment)
        found = {
            item["protocol"]: item["url"] for item in json.loads((data / "endpoints.json").read_text())["endpoints"]
        }
        api = next(url for name, url in found.items() if url.startswith("http://"))
        both = Tenants(data, found["amqp"], found["amqps"], api)
        for who, namespace in NAMESPACES.items():
            run("create", "namespace", namespace, data=data, environment=environment)
            account("add", who, data=data, environment=environment, stdin=f"{PASSWORDS[who]}\n")
            account("grant", who, "tenant-edit", "--namespace", namespace, data=data, environment=environment)
            both.tokens[who] = run(
                "token", "create", "--account", who, "--note", "tests", data=data, environment=environment
            ).strip()
            declare(both, who, namespace)
        fill(both)
        yield both
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
        log.close()
