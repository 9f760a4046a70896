"""The how-tos of pipelines do what they say, command by command; all but one share a space, and so its Spark."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.scenario.howto_place import Place, blocks
from tests.support.chance import is_long
from tests.support.foreign_tools import is_here, require
from tests.support.object_storage import ObjectStorage
from tests.support.polling import until
from tests.support.postgresql import DATABASE, PASSWORD, PROGRAMS, USER, PostgreSQL, postgresql

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

LATE_S = 300.0
"""Spark starts in seconds, or in minutes where the machine is busy with more than this."""

BUILTIN = {
    "alert-on-devices.md": ("hot", "boiler-1: temperature 41.5 is above 35"),
    "find-missing-devices.md": ("deleted", "valve-1: not expected any more"),
    "close-the-loop.md": ("loop", "oven-1: temperature 99 is above 35"),
    "meter-usage.md": ("usage", "default.shop"),
    "train-and-apply-a-model.md": ("odd", "pumps"),
    "python-in-a-pipeline.md": ("send", '"visits":3'),
}


@contextmanager
def installed(directory: Path, *arguments: str) -> Iterator[Place]:
    found = Place(directory, arguments)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def database() -> Iterator[PostgreSQL | None]:
    """The database of its page; None: there is no PostgreSQL here."""
    if is_here("PostgreSQL") and is_here("openssl"):
        with postgresql() as server:
            yield server
    else:
        yield None


@pytest.fixture(scope="module")
def shop(needs_spark: None, database: PostgreSQL | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The installation of all pages; those that share a space come first, and the first of them makes it."""
    with installed(tmp_path_factory.mktemp("howto"), "--pipelines-folder", "disk/pipelines") as place:
        if database is not None:
            # A host that is listed while Spark runs has it start again.
            allow, _ = blocks("write-results-to-a-database.md")["allow"]
            place.run(allow.replace("5432", str(database.port)))
        yield place
        assert {path.name for path in (place.data / "pipelines").iterdir()} <= {"host.sock", "ui"}


@pytest.fixture
def place(shop: Place) -> Place:
    """The installation without spaces, for a page that begins with a space of its own, and names none."""
    for name in names(shop, "addressspaces"):
        shop.run(f"enmasse delete space {name} && enmasse wait space {name} --for delete --timeout 150")
    return shop


def names(place: Place, kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in place.api(kind)["items"]]


def in_shop(page: str, space: str = "shop") -> dict[str, tuple[str, str | None]]:
    """The blocks of a page, with the space that is shared instead of its own, which may be there."""

    def changed(text: str) -> str:
        text = text.replace(space, "shop")
        return re.sub("^(enmasse create space shop .*)", r"\1 || enmasse get space shop", text, flags=re.MULTILINE)

    return {name: (changed(commands), told and changed(told)) for name, (commands, told) in blocks(page).items()}


def clear(shop: Place) -> None:
    """Leave nothing of a page in the space that is shared but its Spark."""
    for kind in ("pipelines", "addresses"):
        for name in names(shop, kind):
            shop.api(f"{kind}/{name}", "DELETE")
        until(lambda: not names(shop, kind), lambda: names(shop, kind), seconds=LATE_S)  # noqa: B023  # called at once
    for table in (shop.directory / "disk/pipelines/default.shop/lake").iterdir():
        shutil.rmtree(table)


def test_spark_is_looked_into_as_the_howto_says(shop: Place) -> None:
    told: dict[str, str] = {}
    for name, (commands, expected) in in_shop("look-into-spark.md", "kiln").items():
        told[name] = shop.run(commands.replace(".enmasse/pipelines", "disk/pipelines"))
        assert expected is None or told[name] == expected
    log = next((shop.directory / "disk/pipelines/default.shop/events").glob("eventlog_v2_*/events_*"))
    with pa.input_stream(log, compression="zstd") as file:
        assert b'JWSFilter.param.secretKey":"*********(redacted)' in file.read()
    clear(shop)


def test_a_pipeline_is_declared_as_the_howto_says(shop: Place) -> None:
    told: dict[str, str] = {}
    for name, (commands, expected) in in_shop("declare-a-pipeline.md", "plant").items():
        if name == "builtin":
            # What was deleted is listed until its queries have stopped.
            until(lambda: "shop.hot" not in names(shop, "pipelines"), "shop.hot is still there", seconds=LATE_S)
        if name == "query":
            # The table has a query of its own, beside that of the alerts.
            rows = partial(shop.run, f"({commands}) 2>&1 || true")
            until(lambda: "boiler-2" in rows(), rows, seconds=LATE_S, step=0.3)  # noqa: B023  # called at once
        told[name] = shop.run(commands)
        if name == "run":
            status = partial(shop.pipeline, "shop.hot")
            until(lambda: status()["phase"] == "Running", status, seconds=LATE_S, step=0.3)  # noqa: B023  # called at once
        if expected is not None:
            lines = [line.rstrip() for line in told[name].splitlines()]
            # What sending says is beside the point.
            assert lines[-len(expected.splitlines()) :] == [line.rstrip() for line in expected.splitlines()], name
    assert "shop.hot" in told["status"]
    assert "table-readings" in told["status"]
    assert "Running" in told["status"]
    assert "boiler-2 ████" in told["chart"]
    assert (shop.directory / "disk/pipelines/default.shop/lake/readings").is_dir()
    clear(shop)


@pytest.mark.parametrize(("page", "space"), [("mqtt-to-a-table.md", "plant"), ("sparkplug.md", "works")])
def test_messages_of_mqtt_become_columns_as_the_howto_says(shop: Place, page: str, space: str) -> None:
    require("mosquitto_pub and mosquitto_sub")
    for name, (commands, expected) in in_shop(page, space).items():
        told = shop.run(commands.replace("1883", shop.ports["5672"]))  # which speaks MQTT, too
        assert expected is None or told == expected, name
    clear(shop)


FLEET = """
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {name: fleet}
spec:
  anonymous: true
  downstreamStrategy:
    managedStrategy:
      addressSpace: {name: shop}
      addresses: {telemetry: {type: stream}}
"""


@pytest.mark.chance
@pytest.mark.skipif(not is_long(), reason="`make soak` plays it")
def test_a_fleet_is_registered_played_and_in_sql_and_whoever_falls_silent_is_told(shop: Place) -> None:
    """Two thousand devices; one of the registry is heard once, and then no more, and one never."""
    require("curl")
    count, period_s = 2_000, 10
    (shop.directory / "fleet.yaml").write_text(FLEET)
    shop.run("enmasse create space shop --wait 60 || enmasse get space shop")
    shop.run("enmasse create address silent --type queue --wait 60")
    shop.run("enmasse apply -f fleet.yaml && enmasse wait iotproject fleet --for condition=Ready --timeout 120")
    shop.run("enmasse iot device create default.fleet quiet && enmasse iot device create default.fleet unheard")
    shop.run("echo 'says little' | enmasse iot credentials create default.fleet quiet")
    shop.run(
        "enmasse pipeline run --detach --builtin heartbeat --set address=telemetry/default.fleet"
        " --set alerts=silent --set after=60s --set startingOffsets=earliest --set registered=true"
    )
    play = f"enmasse iot simulate default.fleet -n {count} --http 4 --amqp 4 --period {period_s}"
    log = shop.directory / "fleet.log"
    with log.open("w") as told:
        fleet = subprocess.Popen(
            shlex.split(play), cwd=shop.directory, env=shop.environment, stdout=told, stderr=told
        )
    try:
        until(lambda: f"{count} connected" in log.read_text(), log.read_text, seconds=LATE_S)
        url = f"http://127.0.0.1:{shop.ports['5672']}/telemetry"
        heard = f"curl --silent --fail -u 'quiet@default.fleet:says little' -H 'Content-Type: application/json' {url}"
        shop.run(f"""{heard} --data '{{"device": "quiet", "temperature": 20}}'""")
        seen = "SELECT count(DISTINCT CAST(key AS STRING)) AS devices FROM `telemetry/default.fleet`"
        rows = partial(shop.run, f"enmasse pipeline query -o csv '{seen}' 2>&1 || true")
        until(lambda: str(count + 1) in rows().split(), rows, seconds=LATE_S, step=1)
        alerts: dict[tuple[str, str], str] = {}

        def tell(device: str, state: str) -> str:
            while (device, state) not in alerts:
                alert = json.loads(shop.run("enmasse receive silent --count 1 --timeout 180"))
                alerts[alert["device"], alert["state"]] = alert["text"]
            return alerts[device, state]

        assert "not heard since" in tell("quiet", "missing")
        assert "and not heard" in tell("unheard", "missing")
        shop.run("enmasse iot device delete default.fleet unheard")
        assert "not expected any more" in tell("unheard", "cleared")
        listed = json.loads(shop.run(f"enmasse iot device list default.fleet --count {count + 1} -o json"))
        assert len(listed) == count + 1
    finally:
        fleet.terminate()
        fleet.wait(60)
    deleted = shop.run("enmasse iot device delete default.fleet --simulated")
    assert f"{count} simulated devices deleted" in deleted
    shop.run("enmasse delete iotproject fleet && enmasse wait iotproject fleet --for delete --timeout 120")
    for name in names(shop, "pipelines"):
        shop.api(f"pipelines/{name}", "DELETE")
    until(lambda: not names(shop, "pipelines"), lambda: names(shop, "pipelines"), seconds=LATE_S)


@pytest.mark.parametrize("page", list(BUILTIN))
def test_what_is_built_in_does_what_the_howto_says(page: str, shop: Place) -> None:
    step, wanted = BUILTIN[page]
    told = {}
    before = names(shop, "pipelines")
    for name, (commands, _) in in_shop(page).items():
        if name == "train":
            # With all rows in the table it trains at once, and not when it looks again.
            until(
                lambda: shop.pipeline("shop.lake")["rows"] >= 300,
                lambda: shop.api("pipelines"),
                seconds=LATE_S,
                step=0.3,
            )
        told[name] = shop.run(commands)
    assert wanted in told[step], told
    # What a page leaves at work would take its share of all that is sent by the next. One stays, for its Java.
    for name in set(names(shop, "pipelines")) - {*before, "shop.anomalies"}:
        shop.api(f"pipelines/{name}", "DELETE")


def test_schemas_are_shared_as_the_howto_says(shop: Place) -> None:
    told = {}
    shop.run("enmasse create space shop --wait 60 || enmasse get space shop")
    for name, (commands, expected) in blocks("share-schemas.md").items():
        told[name] = shop.run(commands)
        if expected is not None:
            lines = [line.rstrip() for line in told[name].splitlines()]
            assert lines[-len(expected.splitlines()) :] == expected.splitlines(), told[name]
    assert "it is not in the wire format" in told["unread"]
    assert "not registered" in told["check"]
    status = partial(shop.pipeline, "shop.heat")
    until(lambda: status()["rows"] == 4, status, seconds=LATE_S, step=0.3)
    shop.api("pipelines/shop.heat", "DELETE")


def test_a_database_is_written_to_as_the_howto_says(shop: Place, database: PostgreSQL | None) -> None:
    require("PostgreSQL", "openssl")
    assert database is not None
    (shop.directory / "ca.crt").write_text(database.authorities)
    shop.environment |= {
        "PATH": f"{shop.environment['PATH']}:{PROGRAMS}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(database.port),
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": DATABASE,
    }
    told = {}
    shop.run("enmasse create space shop --wait 60 || enmasse get space shop")
    for name, (commands, expected) in blocks("write-results-to-a-database.md").items():
        if name == "look":
            rows = partial(database.rows, "SELECT max(temperature) FROM latest HAVING count(*) = 2")
            until(lambda: rows() == [(73.0,)], partial(shop.pipeline, "shop.latest"), seconds=LATE_S, step=0.3)  # noqa: B023  # called at once
        told[name] = shop.run(commands.replace("5432", str(database.port)))
        if expected is not None:
            lines = [line.rstrip() for line in told[name].splitlines() if line.strip()]
            assert lines == [line.rstrip() for line in expected.splitlines()]
    assert "does not take a row" in told["refused"]
    assert "latest_temperature_check" in told["refused"]
    assert "boiler-2" in told["refused"]


def test_tables_are_kept_in_object_storage_as_the_howto_says(place: Place, tmp_path: Path) -> None:
    with ObjectStorage(tmp_path / "storage", access="plant", secret="a-secret-key") as storage:
        place.ports["9000"] = str(storage.port)
        status = partial(place.pipeline, "plant.latest")
        for name, (commands, expected) in blocks("keep-tables-in-object-storage.md").items():
            told = place.run(commands)
            if name == "space":
                until(lambda: status()["rows"] == 3, status, seconds=LATE_S, step=0.3)
            if name == "query":
                assert re.search(r"boiler-1 +22.5 *\n *boiler-2 +19", told)
            assert expected is None or told == expected, told
        assert not (place.directory / "disk/pipelines/default.plant/lake/latest").exists()
