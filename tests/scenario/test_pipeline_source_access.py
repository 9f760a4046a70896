"""Who the Spark source comes as, over TLS: credentials by name, what shows them, and what their end means."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from enmasse.client.background import Background
from enmasse.client.blocking import Connection, Message, TlsOptions, connect
from enmasse.drivers.authority import Authority
from enmasse.identity.users import key_fields, make_keys
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.unit.net.providers import Provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PASSWORD = "not to be seen anywhere"


class Guarded:
    """A node with TLS and a space that only its users enter; stream ``t`` has three rows."""

    def __init__(self, node: NodeProcess, authority: Authority, folder: Path) -> None:
        self.node = node
        self.authority = authority
        self.ca_file = str(authority.path)
        self.url = f"amqps://127.0.0.1:{node.port}"
        self.folder = folder
        space = {"spaceType": "standard", "authentication": "standard", "uid": "s1", "generation": 1}
        stream = {"space": "default/shop", "address": "t", "addressType": "stream", "uid": "t", "generation": 1}
        self.manage(lambda m: m.create("io.enmasse.space", "default/shop", space))
        self.manage(lambda m: m.create("io.enmasse.address", "default/shop.t", stream))
        self.add_user("maker", "send")
        self.send(b"1", b"2", b"3")

    def manage(self, act: Callable[[Any], Any]) -> Any:
        with connect(self.node.admin_url, timeout=30, patience=30) as connection:
            return act(connection.management())

    def add_user(self, name: str, *operations: str) -> None:
        """Declare a user, and put its credentials where Spark's processes look."""
        keys = key_fields(make_keys("SCRAM-SHA-256", PASSWORD, b"salt" * 4, 4096))
        attributes = {
            "space": "default/shop",
            "spaceUid": "s1",
            "username": name,
            "scram": {"SCRAM-SHA-256": keys},
            "authorization": [{"operations": list(operations), "addresses": ["t"]}],
            "uid": f"user-{name}",
            "generation": 1,
            "revision": "1",
        }
        self.manage(lambda m: m.create("io.enmasse.user", f"default/shop.{name}", attributes))
        (self.folder / f"{name}.json").write_text(json.dumps({"user": name, "password": PASSWORD}))

    def add_machine(self, name: str) -> dict[str, str]:
        """Declare a user who comes by certificate; the options that show it."""
        attributes = {
            "space": "default/shop",
            "spaceUid": "s1",
            "username": name,
            "certificates": [f"{name}.example.com"],
            "authorization": [{"operations": ["send", "recv"], "addresses": ["t"]}],
            "uid": f"user-{name}",
            "generation": 1,
            "revision": "1",
        }
        self.manage(lambda m: m.create("io.enmasse.user", f"default/shop.{name}", attributes))
        return self.certificate(name)

    def certificate(self, name: str) -> dict[str, str]:
        certificate, key = self.authority.issue_client(f"{name}.example.com").write(self.folder, name)
        return {"tlsCertificate": str(certificate), "tlsKey": str(key)}

    def remove_user(self, name: str) -> None:
        self.manage(lambda m: m.delete("io.enmasse.user", f"default/shop.{name}"))

    def connect(self, name: str) -> Connection:
        tls = TlsOptions(ca_file=self.ca_file)
        return connect(self.url, user=name, password=PASSWORD, hostname="shop.default", tls=tls, timeout=30)

    def send(self, *bodies: bytes) -> None:
        with self.connect("maker") as connection:
            outcomes = connection.sender("t").send_all([Message(body) for body in bodies], timeout=30)
            assert {str(outcome) for outcome in outcomes} == {"accepted"}

    def options(self, credentials: str = "") -> dict[str, str]:
        return {
            "url": self.url,
            "address": "t",
            "space": "shop.default",
            "caFile": self.ca_file,
            "credentials": credentials,
            "startingOffsets": "earliest",
        }


@pytest.fixture
def guarded(tmp_path: Path, credentials_folder: Path) -> Iterator[Guarded]:
    authority = Authority(tmp_path / "tls")
    authority.keep_server_certificate("default", ["127.0.0.1", "localhost"])
    with NodeProcess(tmp_path / "data", "--tls", str(tmp_path / "tls")) as node:
        yield Guarded(node, authority, credentials_folder)


def table(spark: SparkSession, guarded: Guarded, credentials: str, **options: str) -> DataFrame:
    return spark.read.format("enmasse").options(**{**guarded.options(credentials), **options}).load()


def test_a_user_reads_over_tls_by_credentials_that_no_plan_shows(spark: SparkSession, guarded: Guarded) -> None:
    guarded.add_user("reader", "recv")
    frame = table(spark, guarded, "reader")
    assert sorted(bytes(row["value"]) for row in frame.collect()) == [b"1", b"2", b"3"]
    frame.createOrReplaceTempView("guarded")
    shown = "".join(row[0] for row in spark.sql("EXPLAIN EXTENDED SELECT * FROM guarded").collect())
    assert "enmasse" in shown
    assert PASSWORD not in shown + repr(frame)


@pytest.mark.parametrize(
    ("credentials", "options", "complaint"),
    [
        ("nobody", {}, r"there are no credentials 'nobody': .*nobody\.json should hold"),
        ("wrong", {}, "unauthorized-access"),
        ("maker", {}, r"unauthorized-access: user 'maker' may not receive from 't'"),
        ("", {}, "unauthorized-access"),
        ("reader", {"caFile": ""}, "authority that is not known here"),
        ("reader", {"caFile": "/nowhere.pem"}, r"cannot read authorities from /nowhere\.pem"),
    ],
)
def test_who_may_not_come_in_is_told_in_words(
    spark: SparkSession, guarded: Guarded, credentials: str, options: dict[str, str], complaint: str
) -> None:
    guarded.add_user("reader", "recv")
    wrong = {"user": "reader", "password": PASSWORD + "!"}
    (guarded.folder / "wrong.json").write_text(json.dumps(wrong))
    with pytest.raises(PySparkException, match=complaint) as caught:
        table(spark, guarded, credentials, **options).count()
    assert PASSWORD not in str(caught.value)


def test_a_revoked_user_ends_the_query_and_a_new_one_goes_on_at_its_checkpoint(
    spark: SparkSession, guarded: Guarded, tmp_path: Path
) -> None:
    got: list[bytes] = []

    def keep(frame: DataFrame, _batch: int) -> None:
        got.extend(bytes(row["value"]) for row in frame.collect())

    def start(credentials: str) -> Any:
        rows = spark.readStream.format("enmasse").options(**guarded.options(credentials)).load()
        return rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c")).start()

    guarded.add_user("analyst", "recv")
    query = start("analyst")
    until(lambda: len(got) == 3)
    guarded.remove_user("analyst")
    until(lambda: not query.isActive)
    with pytest.raises(PySparkException, match=r"user 'analyst' .* may not read the stream 't'.*or not any more"):
        query.awaitTermination()
    guarded.send(b"4")
    guarded.add_user("successor", "recv")
    query = start("successor")
    until(lambda: len(got) >= 4 or not query.isActive)
    assert query.exception() is None
    query.stop()
    assert sorted(got) == [b"1", b"2", b"3", b"4"]


def test_who_only_reads_may_show_its_lag(spark: SparkSession, guarded: Guarded, tmp_path: Path) -> None:
    guarded.add_user("watcher", "recv")
    rows = spark.readStream.format("enmasse").options(**guarded.options("watcher"), consumer="shop.hot").load()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    def consumers() -> Any:
        return guarded.manage(lambda m: m.read("io.enmasse.address", "default/shop.t"))["consumers"]

    until(lambda: consumers() == [{"name": "shop.hot", "partition": 0, "offset": 3, "lag": 0}])
    guarded.send(b"4", b"5")
    assert consumers() == [{"name": "shop.hot", "partition": 0, "offset": 3, "lag": 2}]


def test_a_client_certificate_reads_and_writes_and_one_that_nobody_knows_does_not(
    spark: SparkSession, guarded: Guarded
) -> None:
    shown = guarded.add_machine("robot")
    assert table(spark, guarded, "", **shown).count() == 3
    where = {name: value for name, value in guarded.options().items() if name != "startingOffsets"}
    rows = spark.createDataFrame([("4",)], "value STRING")
    rows.write.format("enmasse").mode("append").options(**where, **shown).save()
    (guarded.folder / "robot-too.json").write_text(json.dumps({"tlsCertificate": "robot.crt", "tlsKey": "robot.key"}))
    assert table(spark, guarded, "robot-too").count() == 4
    stranger = guarded.certificate("stranger")
    with pytest.raises(PySparkException, match=r"not let in the certificate .*stranger\.crt: .*EXTERNAL") as caught:
        table(spark, guarded, "", **stranger).count()
    assert "PRIVATE KEY" not in str(caught.value)
    with pytest.raises(PySparkException, match=r"not let in the certificate .*stranger\.crt: .*EXTERNAL"):
        rows.write.format("enmasse").mode("append").options(**where, **stranger).save()


def _create(management: Any, *, kind: str, name: str, attributes: dict[str, Any]) -> None:
    management.create(kind, name, attributes)


class Federated:
    """The space ``office`` of the same node, whose users a provider knows, with the stream ``t``."""

    def __init__(self, guarded: Guarded, provider: Provider, folder: Path) -> None:
        self.guarded, self.provider, self.file = guarded, provider, folder / "token"
        self.tokens: list[str] = []
        oidc = {"issuer": provider.issuer, "audience": "messaging", "clientId": "messaging", "leeway": 0}
        space = {"spaceType": "standard", "authentication": "external", "oidc": oidc, "uid": "s2", "generation": 1}
        stream = {"space": "default/office", "address": "t", "addressType": "stream", "uid": "t2", "generation": 1}
        queue = {"space": "default/office", "address": "q", "addressType": "queue", "uid": "q2", "generation": 1}
        user = {
            "space": "default/office",
            "spaceUid": "s2",
            "username": "ida",
            "authorization": [{"operations": ["send", "recv"], "addresses": ["t", "q"]}],
            "uid": "ida",
            "generation": 1,
            "revision": "1",
        }
        for kind, name, attributes in (
            ("io.enmasse.space", "default/office", space),
            ("io.enmasse.address", "default/office.t", stream),
            ("io.enmasse.address", "default/office.q", queue),
            ("io.enmasse.user", "default/office.ida", user),
        ):
            guarded.manage(partial(_create, kind=kind, name=name, attributes=attributes))

    def renew(self, **claims: Any) -> None:
        """Put another token into the file, as whoever keeps it does."""
        token = self.provider.token(**claims)
        self.tokens.append(token)
        new = self.file.with_suffix(".new")
        new.write_text(token + "\n")
        new.replace(self.file)

    def options(self, address: str = "t") -> dict[str, str]:
        return {
            "url": self.guarded.url,
            "address": address,
            "space": "office.default",
            "caFile": self.guarded.ca_file,
            "tokenFile": str(self.file),
        }

    @contextmanager
    def renewing(self, life_s: int = 4) -> Iterator[None]:
        """Have the file hold a token that is good for a moment, until the end."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(1):
                self.renew(exp=int(time.time()) + life_s)

        self.renew(exp=int(time.time()) + life_s)
        thread = threading.Thread(target=renew)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def write(self, spark: SparkSession, *values: str) -> None:
        rows = spark.createDataFrame([(value,) for value in values], "value STRING").coalesce(1)
        for address in ("t", "q"):
            rows.write.format("enmasse").mode("append").options(**self.options(address)).save()

    def connections(self) -> set[str]:
        found = self.guarded.manage(lambda m: m.query("io.enmasse.connection", ["identity", "user", "properties"]))
        return {one["identity"] for one in found if one["user"] == "ida"}


@pytest.fixture
def federated(guarded: Guarded, tmp_path: Path) -> Iterator[Federated]:
    background, provider = Background.acquire(), Provider()
    try:
        background.run(provider.start())
        yield Federated(guarded, provider, tmp_path)
    finally:
        background.run(provider.stop())
        background.release()


def test_a_query_goes_on_with_the_token_that_its_file_holds_when_the_last_one_ends(
    spark: SparkSession, federated: Federated, tmp_path: Path
) -> None:
    got: dict[str, list[bytes]] = {"t": [], "q": []}

    def start(address: str, **options: str) -> Any:
        def keep(frame: DataFrame, _batch: int) -> None:
            got[address].extend(bytes(row["value"]) for row in frame.collect())

        checkpoint = str(tmp_path / address)
        rows = spark.readStream.format("enmasse").options(**federated.options(address), **options).load()
        return rows.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).start()

    consumed = {"spoolDir": str(tmp_path / "spool"), "checkpointLocation": str(tmp_path / "q")}
    with federated.renewing():
        federated.write(spark, "1", "2")
        queries = [start("t", startingOffsets="earliest"), start("q", **consumed)]

        def have(count: int) -> bool:
            return all(len(values) >= count for values in got.values()) or not all(q.isActive for q in queries)

        until(lambda: have(2))
        planning = federated.connections()
        assert planning
        until(lambda: not planning & federated.connections())
        federated.write(spark, "3")
        until(lambda: have(3))
        for query in queries:
            assert query.exception() is None
            query.stop()
    assert all(sorted(values) == [b"1", b"2", b"3"] for values in got.values())
    federated.renew(exp=int(time.time()) - 5)
    frame = spark.read.format("enmasse").options(**federated.options()).load()
    with pytest.raises(
        PySparkException, match=r"not let in the user of the token in .*/token: .*OAUTHBEARER"
    ) as caught:
        frame.count()
    frame.createOrReplaceTempView("federated")
    shown = "".join(row[0] for row in spark.sql("EXPLAIN EXTENDED SELECT * FROM federated").collect())
    for token in federated.tokens:
        assert token not in shown + str(caught.value)
