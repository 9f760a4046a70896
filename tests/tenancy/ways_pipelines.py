"""Ways over pipelines: what red's Python, SQL, declarations and requests reach of what blue's pipelines have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx

from tests.tenancy import pipeline_attack
from tests.tenancy.refusals import Way, forbidden
from tests.tenancy.tenants import NAMESPACES

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

__all__ = ["OUTCOMES", "PYTHON_WAYS", "REQUEST_WAYS", "SQL_WAYS", "pipelines_of", "query"]

OUTCOMES: dict[str, str] = {}
"""What red's pipeline wrote of each way of its Python, once it has run."""

ROOT = "/apis/enmasse.io/v1beta1/namespaces"


def pipelines_of(who: str, name: str = "") -> str:
    return f"{ROOT}/{NAMESPACES[who]}/pipelines" + (f"/{name}" if name else "")


def query(tenants: Tenants, sql: str, *, as_: str = "red", of: str = "red", **more: Any) -> httpx.Response:
    with tenants.http(as_) as http:
        path = f"{ROOT}/{NAMESPACES[of]}/addressspaces/{of}/query"
        return http.post(path, json={"sql": sql, **more}, timeout=180)


def _tried(words: str) -> Callable[[Tenants], None]:
    def look(_tenants: Tenants) -> None:
        outcome = OUTCOMES[words]
        assert outcome == "nothing" or outcome.startswith("refused"), outcome

    return look


def _refused(sql: str) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        answer = query(tenants, sql.format(data=tenants.data))
        assert answer.status_code in (400, 422), (answer.status_code, answer.text)
        assert "the formula of blue" not in answer.text

    return attempt


def _declared(name: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Tenants], None]:
    """Declare a pipeline in red's namespace that points at blue's: it is refused, or waits for ever."""

    def attempt(tenants: Tenants) -> None:
        import time

        body: dict[str, Any] = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": {"name": name},
            "spec": {
                "credentialsSecret": "runner",
                "sources": [{"name": "rows", "address": "history"}],
                "sinks": [{"table": "mine"}],
            },
        }
        change(body["spec"])
        with tenants.http("red") as http:
            answer = http.post(pipelines_of("red"), json=body)
            if answer.status_code in (400, 403, 422):
                return
            assert answer.status_code == 201, answer.text
            try:
                deadline = time.monotonic() + 40
                while True:
                    status = http.get(pipelines_of("red", name)).json().get("status", {})
                    if status.get("phase") in ("Pending", "Failed") and status.get("messages"):
                        return
                    assert status.get("phase") != "Running", status
                    assert time.monotonic() < deadline, status
                    time.sleep(0.2)
            finally:
                http.delete(pipelines_of("red", name))

    return attempt


def _query_of_blue(tenants: Tenants) -> None:
    forbidden(query(tenants, "SELECT * FROM treasure", of="blue"))


def _log_of_blue(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        forbidden(http.get(f"{pipelines_of('blue', 'blue.keep')}/log"))


def _pages_of_blue(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        forbidden(http.get(f"{pipelines_of('blue', 'blue.keep')}/ui"))


def _dots_below_pages(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        led = http.get(f"{pipelines_of('red', 'red.probe')}/ui")
        assert led.status_code == 303, led.text
        base = led.headers["location"].removesuffix("jobs/")
        assert http.get(f"{base}jobs/").status_code == 200
        for dots in ("..", "%2e%2E", ".%2e"):
            for place in ("log/team-b/blue.keep", "ui/team-b/blue.keep/jobs/", "state"):
                # As it is: httpx would put it right.
                target = f"{base}{dots}/{dots}/{dots}/{place}".encode()
                forbidden(http.get("/", extensions={"target": target}), 404)


def _tables_listed(tenants: Tenants) -> None:
    answer = query(tenants, "SHOW TABLES")
    assert answer.status_code == 200, answer.text
    assert "treasure" not in answer.text


def _secret_of_nobody(tenants: Tenants) -> None:
    answer = query(tenants, "SELECT 1 AS a", credentialsSecret="../../team-b.blue/credentials/runner")
    forbidden(answer, 403, 404, 422)


def _restart_of_blue(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        headers = {"content-type": "application/merge-patch+json"}
        forbidden(http.patch(pipelines_of("blue", "blue.keep"), json={"spec": {"paused": True}}, headers=headers))


def _status_of_blue(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        headers = {"content-type": "application/merge-patch+json"}
        path = f"{pipelines_of('blue', 'blue.keep')}/status"
        forbidden(http.patch(path, json={"status": {"phase": "Finished"}}, headers=headers))


PYTHON_WAYS = tuple(Way(f"Python: {words}", _tried(words)) for words in pipeline_attack.WAYS)

LAKE = "{data}/pipelines/team-b.blue/lake/treasure"

SQL_WAYS = (
    Way("SQL: read blue's table by its name", _refused("SELECT * FROM treasure")),
    Way("SQL: read blue's table by its folder, as Delta", _refused(f"SELECT * FROM delta.`{LAKE}`")),
    Way("SQL: read blue's table by its folder, as Parquet", _refused(f"SELECT * FROM parquet.`{LAKE}`")),
    Way("SQL: read any file as text", _refused("SELECT * FROM text.`/etc/passwd`")),
    Way("SQL: read a file that is binary", _refused("SELECT * FROM binaryFile.`{data}/control/operator.token`")),
    Way("SQL: read the operator's token as CSV", _refused("SELECT * FROM csv.`{data}/control/operator.token`")),
    Way("SQL: read a page of the metadata address", _refused("SELECT * FROM text.`http://169.254.169.254/latest`")),
    Way("SQL: read an address of blue's alone", _refused("SELECT * FROM private")),
    Way("SQL: name a catalog and a database", _refused("SELECT * FROM spark_catalog.default.treasure")),
    Way("SQL: call Java by reflect", _refused("SELECT reflect('java.lang.System', 'getenv', 'PATH')")),
    Way("SQL: call Java by java_method", _refused("SELECT java_method('java.lang.System', 'getenv', 'PATH')")),
    Way("SQL: call Java by try_reflect", _refused("SELECT try_reflect('java.lang.System', 'getenv', 'PATH')")),
    Way(
        "SQL: start a program by TRANSFORM",
        _refused("SELECT TRANSFORM(a) USING 'cat /etc/passwd' FROM VALUES (1) t(a)"),
    ),
    Way("SQL: start a program by MAP", _refused("FROM VALUES (1) t(a) MAP a USING 'id' AS b SELECT b")),
    Way("SQL: make a table of files", _refused("CREATE TABLE t USING text LOCATION '/etc'")),
    Way("SQL: make a view of files", _refused("CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')")),
    Way("SQL: write a folder", _refused("INSERT OVERWRITE DIRECTORY '/tmp/x' USING text SELECT 'a'")),
    Way("SQL: load a library", _refused("ADD JAR '/tmp/a.jar'")),
    Way("SQL: make a function of Java", _refused("CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'")),
    Way("SQL: change a setting", _refused("SET spark.sql.runSQLOnFiles=true")),
    Way("SQL: list blue's tables among its own", _tables_listed),
    Way("SQL: two statements in one", _refused("SELECT 1; SELECT * FROM text.`/etc/passwd`")),
    Way(
        "SQL: hide it in a query within a query", _refused("SELECT (SELECT max(value) FROM text.`/etc/passwd`) AS a")
    ),
    Way(
        "SQL: hide it in a common table expression",
        _refused("WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a"),
    ),
    Way("SQL: call a function that reads files", _refused("SELECT * FROM read_files('/etc/passwd')")),
    Way("SQL: call a data source as a function", _refused("SELECT * FROM enmasse('amqp://127.0.0.1', 'private')")),
)

REQUEST_WAYS = (
    Way("a query in blue's space", _query_of_blue),
    Way("the log of blue's pipeline", _log_of_blue),
    Way("Spark's pages of blue's pipeline", _pages_of_blue),
    Way("blue's log and pages, by dots in a path below Spark's pages of red's pipeline", _dots_below_pages),
    Way("a query as a Secret whose name is a path", _secret_of_nobody),
    Way("pausing blue's pipeline", _restart_of_blue),
    Way("writing the status of blue's pipeline", _status_of_blue),
    Way("a pipeline of red's in a space of blue's name", _declared("blue.mole", lambda spec: None)),
    Way(
        "a pipeline that reads an address which only blue has",
        _declared("red.mole-a", lambda spec: spec["sources"][0].update(address="private")),
    ),
    Way(
        "a pipeline that writes a table by a path",
        _declared("red.mole-b", lambda spec: spec["sinks"][0].update(table="../../team-b.blue/lake/treasure")),
    ),
    Way(
        "a pipeline that reads a table by a path",
        _declared(
            "red.mole-c", lambda spec: spec["sources"][0].update(address=None, table="../../team-b.blue/lake/x")
        ),
    ),
    Way(
        "a pipeline as a Secret of blue's namespace",
        _declared("red.mole-d", lambda spec: spec.update(credentialsSecret="team-b/runner")),
    ),
    Way(
        "a pipeline as a Secret that holds no user",
        _declared("red.mole-e", lambda spec: spec.update(credentialsSecret="keys")),
    ),
    Way("a pipeline as nobody in particular", _declared("red.mole-f", lambda spec: spec.pop("credentialsSecret"))),
    Way(
        "a pipeline with the code of a ConfigMap of blue's",
        _declared("red.mole-g", lambda spec: spec.update(code={"configMap": "team-b/facts"})),
    ),
    Way(
        "a pipeline with SQL that reads files",
        _declared(
            "red.mole-h",
            lambda spec: spec.update(steps=[{"name": "files", "sql": "SELECT * FROM text.`/etc/passwd`"}]),
        ),
    ),
    Way(
        "a pipeline whose checkpoints would lie in blue's folder",
        _declared("red...team-b.blue", lambda spec: None),
    ),
)
