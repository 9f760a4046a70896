"""``enmasse pipeline check`` and ``test``: what Spark says of a pipeline, and what it makes of given rows.

Neither deploys anything: the one asks Spark alone, the other a platform of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import httpx
import typer
import yaml

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.use.tryout_messages import MessageSchemas, readable
from enmasse.cli.commands.use.tryout_rows import check_rows, ends_of, read_rows
from enmasse.cli.errors import CliError, UsageError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.output import Writer, make_table
from enmasse.client import Message, connect
from enmasse.demo.service import Service
from enmasse.drivers.data_directory import Layout
from enmasse.errors import EnmasseError
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from enmasse.model.kinds.pipelines.databases import as_lake_table, as_lake_tables
from enmasse.model.kinds.pipelines.flow import AVAILABLE_NOW
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.sources import reader_name
from enmasse.model.schema.errors import ManifestError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, CONFIG_MAP, PIPELINE, kind_named
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.model.sql.functions import MODEL_PREFIX, model_calls
from enmasse.pipeline.host.api import api_client

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from enmasse.cli.commands.use.tryout_messages import GivenMessage
    from enmasse.cli.commands.use.tryout_rows import Expected, Given, Rows
    from enmasse.model.schema.resource import Resource

_READY_S: Final = 120.0
_BATCH_S: Final = 300.0
_SILENCE_S: Final = 1.0
_LOOK_S: Final = 0.2
_SHOWN: Final = 10
"""Rows of each kind of difference that are shown."""


Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", metavar="SUBJECT=SCHEMA", help="The file with the schema of a subject of the registry."),
]


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="YAML with pipelines, their addresses and code.")
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME=COLUMNS", help="A table that is read: 'devices=id INT, name STRING'."),
    ] = None,
    schemas: Schemas = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME=TYPE", help="What a model gives that SQL calls: 'pumps=DOUBLE'."),
    ] = None,
) -> None:
    """Have Spark look at declared pipelines, without running them, and tell all that is wrong.

    Beside what `apply` says it finds types that do not fit, wrong arguments of functions, and what streams cannot do.
    """
    writer = Writer()
    declared: dict[str, tuple[Pipeline, list[Resource]]] = {}
    wrong: list[str] = []
    for file in files:
        try:
            resources = read_manifests([file], None)
        except ManifestError as error:
            # The other files may be right.
            wrong.append(str(error))
            continue
        pipelines = [one for one in resources if isinstance(one, Pipeline)]
        if not pipelines:
            raise UsageError(f"{file}: expected a pipeline, got none")
        for pipeline in pipelines:
            name = file if len(pipelines) == 1 else f"{file}: {pipeline.metadata.name}"
            declared[name] = pipeline, resources
    known = _tables([pipeline for pipeline, _ in declared.values()], tables or ())
    types = _models([pipeline for pipeline, _ in declared.values()], models or ())
    asked = [
        _without_pipeline(pipeline, resources)
        | {
            "pipeline": pipeline.to_dict(),
            "tables": known,
            "schemas": _versions(pipeline, schemas or ()),
            "models": types,
        }
        for pipeline, resources in declared.values()
    ]
    for name, problems in zip(declared, _found_by_spark(asked, writer), strict=True):
        wrong += [f"{name}: {problem}" for problem in problems]
        if not problems:
            writer.say(f"{name}: Spark takes it")
    if wrong:
        raise CliError("\n".join(wrong))


def _found_by_spark(asked: Sequence[Mapping[str, Any]], writer: Writer) -> list[list[str]]:
    """Return what is wrong with each of some pipelines; Spark is not started for none."""
    if not asked:
        return []
    command = [sys.executable, "-m", "enmasse.pipeline", "check"]
    with writer.err.status("Spark looks at it ..."):
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CliError(next(iter(done.stderr.strip().splitlines()[-1:]), "Spark did not start"))
    found: list[list[str]] = json.loads(done.stdout)
    return found


def _without_pipeline(pipeline: Pipeline, resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the addresses and the code of a pipeline, as Spark is asked about them."""
    documents = [one.to_dict() for one in resources]
    addresses = {one["spec"]["address"]: one["spec"] for one in documents if one["kind"] == ADDRESS.name}
    code: dict[str, str] = {}
    if pipeline.spec.code is not None:
        maps = {one["metadata"]["name"]: one.get("data") or {} for one in documents if one["kind"] == CONFIG_MAP.name}
        modules = maps.get(pipeline.spec.code.config_map, {})
        code = {name.removesuffix(".py"): text for name, text in modules.items() if name.endswith(".py")}
    return {
        "addresses": {name: {"type": one["type"], "schema": one.get("schema")} for name, one in addresses.items()},
        "code": code,
    }


def _tables(pipelines: Iterable[Pipeline], given: Sequence[str]) -> dict[str, str]:
    """Return the columns of the tables that pipelines read, by their names in the lake."""
    columns = {}
    for text in given:
        name, _, declared = text.partition("=")
        if not declared:
            raise UsageError(f"--table: expected NAME=COLUMNS, as devices=id INT, name STRING, got '{text}'")
        columns[as_lake_table(name) if "." in name else name] = declared
    for source in (source for pipeline in pipelines for source in pipeline.spec.sources):
        table, in_lake = source.table, source.table
        if source.database is not None:
            table, in_lake = source.database.table, as_lake_table(source.database.table)
        if in_lake is not None and in_lake not in columns:
            raise UsageError(f"--table: say which columns the table {table} has, as '{table}=id INT, name STRING'")
    return columns


def _models(pipelines: Iterable[Pipeline], given: Sequence[str]) -> dict[str, str]:
    """Return what the models give that the pipelines' SQL calls."""
    types = dict(text.partition("=")[::2] for text in given)
    steps = [step for pipeline in pipelines for step in pipeline.spec.steps]
    called = {name.removeprefix(MODEL_PREFIX) for step in steps for name in model_calls(step.sql or "")}
    if missing := next((name for name in sorted(called) if not types.get(name)), None):
        raise UsageError(f"--model: say of which type is what the model gives, as {missing}=DOUBLE")
    for name, text in types.items():
        if name not in called:
            raise UsageError(f"--model: no sql of the steps calls {MODEL_PREFIX}{name}()")
        try:
            parse_ddl(f"given {text}")
        except DdlError as error:
            raise UsageError(f"--model: {name}: expected a type such as DOUBLE, got '{text}': {error}") from None
    return types


def _subjects(pipeline: Pipeline) -> dict[str | None, int | None]:
    """Return the version of each subject that a pipeline names; None: any subject, its latest one."""
    registries = [part.schema_registry for parts in (pipeline.spec.sources, pipeline.spec.sinks) for part in parts]
    return {registry.subject: registry.version for registry in registries if registry is not None}


def _versions(pipeline: Pipeline, given: Sequence[str]) -> list[dict[str, Any]]:
    """Return the subjects that a pipeline names, as the schema registry lists them."""
    files = dict(text.partition("=")[::2] for text in given)
    named = _subjects(pipeline)
    if missing := next((subject for subject in named if subject is not None and not files.get(subject)), None):
        raise UsageError(f"--schema: name the file with the schema of the subject, as {missing}={missing}.avsc")
    found = []
    for number, (subject, file) in enumerate(files.items(), start=1):
        try:
            text = Path(file).read_text("utf-8")
            is_record = json.loads(text).get("type") == "record"
        except OSError as error:
            raise UsageError(f"--schema: {file} cannot be read: {error.strerror}") from None
        except (ValueError, AttributeError):
            raise UsageError(f"--schema: {file}: expected a schema in JSON") from None
        kind = {} if is_record else {"schemaType": "JSON"}
        found.append({"subject": subject, "version": named.get(subject) or 1, "id": number, "schema": text} | kind)
    return found


def test(
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE ROWS...",
            help="YAML with the pipeline, its addresses and code; YAML with what is given and what is expected. "
            "Further pairs are quick.",
        ),
    ],
    schemas: Schemas = None,  # noqa: PT028  # a command, and no test
) -> None:
    """Run declared pipelines on given rows, and compare what comes of them with what is expected.

    Nothing is deployed: a platform of its own runs them one after the other, in a temporary folder, and is gone
    afterwards. The exit code is 1 if something else came of one.
    """
    if len(pairs) % 2:
        raise UsageError(f"expected FILE ROWS, and further such pairs, got {pairs[-1]} alone")
    tried = {names: _read_tried(*names, schemas or ()) for names in zip(pairs[::2], pairs[1::2], strict=True)}
    try:
        with _folder() as (folder, held):
            service = Service(folder / "data", folder / "up.log", automatic_ports=True, held=(held,))
            trials = {names: _Trial(one, service) for names, one in tried.items()}
            wrong = asyncio.run(_try_all(trials, service, Writer()))
    except EnmasseError as error:
        raise CliError(str(error)) from None
    if wrong:
        raise CliError("\n".join(wrong))


_REMOVE: Final = """
import pathlib, shutil, sys, time
sys.stdin.read()
folder = pathlib.Path(sys.argv[1])
for _ in range(100):  # processes that were killed may not have ended yet
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        break
    time.sleep(0.1)
"""


@contextmanager
def _folder() -> Iterator[tuple[Path, int]]:
    """Give a folder, and a file descriptor: once nobody has that any more, whoever was killed, the folder goes."""
    folder = Path(tempfile.mkdtemp(prefix="enmasse-test-"))
    folder.chmod(0o755)
    awaited, held = os.pipe()
    # A session of its own: what is sent to all of a terminal does not end it.
    command = [sys.executable, "-I", "-S", "-c", _REMOVE, str(folder)]
    remover = subprocess.Popen(command, stdin=awaited, start_new_session=True)
    os.close(awaited)
    try:
        yield folder, held
    finally:
        os.close(held)
        remover.wait()


async def _try_all(trials: Mapping[tuple[str, str], _Trial], service: Service, writer: Writer) -> list[str]:
    """Say of each trial what came of it, and return what was wrong."""
    wrong = []
    try:
        with writer.err.status("starting a platform ..."):
            await service.start()
        for (file, rows), trial in trials.items():
            if len(trials) > 1:
                writer.say(f"{file} {rows}")
            try:
                with writer.err.status(f"running {file} on {rows} ..."):
                    differences = await trial.run()
            except EnmasseError as error:
                wrong.append(f"{file}: {error}")
            else:
                trial.tell(differences, writer)
                if differences:
                    wrong.append(f"{file}: something else came of it than {rows} expects")
            await trial.clear()
    finally:
        await service.stop()
    return wrong


class _Tried(NamedTuple):
    """A pipeline to be tested: with what its file declares, its rows, and the schemas of its subjects."""

    pipeline: Pipeline
    resources: Sequence[Resource]
    rows: Rows
    versions: Sequence[Mapping[str, Any]]


def _read_tried(file: str, rows: str, schemas: Sequence[str]) -> _Tried:
    resources = read_manifests([file], None)
    pipelines = [one for one in resources if isinstance(one, Pipeline)]
    if len(pipelines) != 1:
        raise UsageError(f"{file}: expected one pipeline, got {len(pipelines)}")
    named, tried = _subjects(pipelines[0]), read_rows(rows)
    documents = [one.to_dict() for one in resources if one.kind == ADDRESS.name]
    check_rows(rows, tried, ends_of(pipelines[0].spec), {one["spec"]["address"] for one in documents})
    written = {given.subject for given in tried.given if given.subject is not None}
    versions = _versions(pipelines[0], schemas)
    if None not in named:  # which means any
        versions = [version for version in versions if version["subject"] in named.keys() | written]
    return _Tried(pipelines[0], resources, tried, versions)


class _Trial:
    """One run of a pipeline on given rows."""

    def __init__(self, tried: _Tried, service: Service) -> None:
        self._pipeline, self._resources, self._rows, self._versions = tried
        self._schemas = MessageSchemas(self._pipeline.spec, ())
        self._service = service
        self._namespace = str(self._pipeline.metadata.namespace)
        self._folder = service.data / "pipelines" / f"{self._namespace}.{self._pipeline.space}"

    async def run(self) -> dict[str, list[tuple[str, str]]]:
        """Return what differs, by table or address.

        Raises:
            CliError: the pipeline fails.
            ApiError: the API refuses it.
            UnavailableError: the platform does not do what it is asked for.
        """
        for given in self._rows.given:
            if given.table is not None:
                self._fill(given)
        documents = self._declared()
        await self._apply(documents)
        await self._subscribe(_topics(documents))
        await self._register()
        name = self._pipeline.metadata.name
        batches = [given for given in self._rows.given if given.address is not None]
        for number in range(max(1, len(batches))):
            if batches:
                await self._send(str(batches[number].address), batches[number].messages, batches[number].subject)
            if number:
                await self._service.run("pipeline", "restart", name, "--namespace", self._namespace)
            else:
                # What is said of others who read the same comes with apply: here there are none.
                with ApiClient.find(self._service.data, warn=lambda _: None) as api:
                    api.create(self._playing(self._pipeline.to_dict()))
            await self._finish(name, number + 1)
        expected = self._rows.expect
        found = await asyncio.gather(*(self._differences(one) for one in expected))
        return {one.table or str(one.address): lines for one, lines in zip(expected, found, strict=True) if lines}

    def tell(self, differences: Mapping[str, Iterable[tuple[str, str]]], writer: Writer) -> None:
        """Say of each table and address what came of it."""
        for expected in self._rows.expect:
            name = expected.table or expected.address or ""
            number = len(expected.rows if expected.table else expected.messages)
            if name not in differences:
                writer.say(f"{name}: {number:,} {'rows' if expected.table else 'messages'}, as expected")
        if differences:
            lines = [[name, what, text] for name, found in differences.items() for what, text in found]
            writer.out.print(make_table(("IN", "WHAT", "ROW"), lines))

    async def clear(self) -> None:
        """Leave nothing of it to the next trial but its space and schemas, and the Spark of that space."""
        paths = [
            f"{PIPELINE.base_path()}/namespaces/{self._namespace}/{PIPELINE.plural}/{self._pipeline.metadata.name}"
        ]
        for document in self._declared():
            kind = kind_named(document["kind"])
            if kind not in (None, ADDRESS_SPACE) and kind.scope == "Namespaced":
                place = f"namespaces/{document['metadata']['namespace']}/{kind.plural}"
                paths.append(f"{kind.base_path()}/{place}/{document['metadata']['name']}")
        async with self._api() as client:
            for path in paths:
                await client.delete(path)
            async with asyncio.timeout(_READY_S):
                for path in paths:
                    while (await client.get(path)).status_code != httpx.codes.NOT_FOUND:
                        await asyncio.sleep(_LOOK_S)
        for folder in (self._folder / "lake").glob("*"):
            shutil.rmtree(folder)

    def _declared(self) -> list[dict[str, Any]]:
        """Return all but the pipeline, with the space and the addresses that nobody declares."""
        documents = [one.to_dict() for one in self._resources if one is not self._pipeline]
        for document in documents:
            if document["kind"] == ADDRESS_SPACE.name:
                document["spec"].pop("lake", None)  # nothing is written into anybody's bucket
        kinds = {(one["kind"], one.get("spec", {}).get("address") or one["metadata"]["name"]) for one in documents}
        space, spec = self._pipeline.space, self._pipeline.spec
        meta = {"namespace": self._namespace}
        api = {"apiVersion": "enmasse.io/v1beta1"}
        if (ADDRESS_SPACE.name, space) not in kinds:
            declared = {"kind": ADDRESS_SPACE.name, "metadata": meta | {"name": space}, "spec": {"type": "standard"}}
            documents.insert(0, api | declared)
        wanted = self._read(documents)
        letters = [part.bad_records for parts in (spec.sources, spec.steps, spec.sinks) for part in parts]
        letters += [source.watermark.late for source in spec.sources if source.watermark is not None]
        for address in filter(None, letters):
            wanted.setdefault(address, "queue")
        for sink in spec.sinks:
            if sink.address not in (None, "*", *wanted):
                wanted[str(sink.address)] = "queue"
        for expected in self._rows.expect:
            if expected.address is not None:
                wanted[expected.address] = wanted.get(expected.address, expected.type)
        for number, (address, kind) in enumerate(wanted.items()):
            if (ADDRESS.name, address) not in kinds:
                named = meta | {"name": f"{space}.test-{number}"}
                one = {"address": address, "type": kind} | ({"partitions": 1} if kind == "stream" else {})
                documents.append(api | {"kind": ADDRESS.name, "metadata": named, "spec": one})
        return documents

    def _read(self, documents: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return the addresses that are read or written to, by their types where nobody declares them.

        One that has messages given to names below it is a topic, and those are no addresses.
        """
        sources = [(source.address, *source.addresses) for source in self._pipeline.spec.sources]
        read = dict.fromkeys(name for names in sources for name in names if name is not None)
        named = {one["spec"]["address"] for one in documents if one["kind"] == ADDRESS.name} | read.keys()
        wanted = dict.fromkeys(read, "stream")
        for given in self._rows.given:
            if given.address is None:
                continue
            above = [name for name in (*read, *_topics(documents)) if given.address.startswith(f"{name}/")]
            if given.address in named or not above:
                wanted.setdefault(given.address, "stream")
            else:
                wanted |= {name: "topic" for name in above if name in read}
        return wanted

    async def _subscribe(self, topics: Container[str]) -> None:
        """Have topics keep what is sent to them before the pipeline runs for the first time."""
        async with connect(str(self._service.url("amqp"))) as connection:
            for source in self._pipeline.spec.sources:
                if source.address is not None and source.address in topics:
                    await connection.receiver(
                        source.address,
                        name=reader_name(str(self._pipeline.metadata.name), source),
                        credit=0,
                        durable=True,
                        capabilities=("shared", "global", SUBTREE_CAPABILITY),
                    )

    async def _register(self) -> None:
        """Have the schema registry of the space have the schemas that are given."""
        place = ("--space", self._pipeline.space, "--namespace", self._namespace)
        file = self._service.data.parent / "schema.json"
        for version in self._versions:
            file.write_text(version["schema"])
            kind = version.get("schemaType", "AVRO").lower()
            await self._service.run("schema", "register", version["subject"], "-f", str(file), "--type", kind, *place)
        if self._versions:
            there = json.loads(await self._service.run("schema", "list", "-o", "json", *place))
            self._schemas = MessageSchemas(self._pipeline.spec, there)

    async def _apply(self, documents: Iterable[Mapping[str, Any]]) -> None:
        file = self._service.data.parent / "objects.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        await self._service.run("apply", "-f", str(file))
        await self._service.run("status", "--wait", f"{_READY_S:.0f}")

    def _api(self) -> httpx.AsyncClient:
        return api_client(str(self._service.url("api")), Layout(self._service.data).operator_token)

    @staticmethod
    def _playing(document: dict[str, Any]) -> dict[str, Any]:
        """Return a pipeline that reads what is there, and ends.

        Tables of databases are those of the lake, and each subject has the one version that is given.
        """
        document = as_lake_tables(document)
        document.pop("status", None)
        document["spec"] = document["spec"] | {"trigger": AVAILABLE_NOW, "paused": False}
        for part in (*(document["spec"].get("sources") or ()), *(document["spec"].get("sinks") or ())):
            (part.get("schemaRegistry") or {}).pop("version", None)
        return document

    def _fill(self, given: Given) -> None:
        """Have a table be there that is joined, as if the space's user had made it."""
        from enmasse.cli.commands.use.tryout_tables import write_table  # noqa: PLC0415  # loads Arrow

        work, lake = self._folder / "work", self._folder / "lake"
        work.mkdir(parents=True, exist_ok=True)
        write_table(lake, str(given.table), given.schema_, given.rows)
        owner = work.stat()
        for path in (lake, *lake.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    async def _send(self, address: str, messages: Iterable[GivenMessage], subject: str | None = None) -> None:
        async with connect(str(self._service.url("amqp"))) as connection:
            sender = await connection.sender(address)
            for one in messages:
                body = self._schemas.encode(one, address, subject)
                outcome = await sender.send(Message(body, subject=one.key, properties=one.properties))
                if str(outcome) != "accepted":
                    raise UsageError(f"given message for {address}: {outcome}")

    async def _finish(self, name: str, generation: int) -> None:
        """Wait until a pipeline has read what there is.

        Raises:
            CliError: it fails.
        """
        deadline = asyncio.get_running_loop().time() + _BATCH_S
        path = f"{PIPELINE.base_path()}/namespaces/{self._namespace}/{PIPELINE.plural}/{name}"
        async with self._api() as client:
            while True:
                found = (await client.get(path)).raise_for_status().json()
                status, seen = found.get("status") or {}, found["metadata"]["generation"]
                if seen >= generation and status.get("observedGeneration") == seen:
                    if status.get("phase") == "Finished":
                        return
                    if status.get("lastError") and status.get("phase") != "Starting":
                        raise CliError(f"pipeline {name}: {status['lastError']}")
                if asyncio.get_running_loop().time() > deadline:
                    said = status.get("messages")
                    raise CliError(f"pipeline {name} did not end within {_BATCH_S:g} s: {said}")
                await asyncio.sleep(_LOOK_S)

    async def _differences(self, expected: Expected) -> list[tuple[str, str]]:
        """Return what is missing and what is there and was not expected."""
        if expected.table is not None:
            return differing(expected.table, expected.rows, await self._table(expected.table))
        bodies = await self._messages(str(expected.address), expected)
        found = [self._schemas.decode(body, str(expected.address)) for body in bodies]
        return compared([one.readable for one in expected.messages], found)

    async def _table(self, name: str) -> list[dict[str, Any]]:
        asked = ("pipeline", "query", f"SELECT * FROM `table:{name}`", "--limit", "10000", "-o", "json")  # noqa: S608
        try:
            text = await self._service.run(*asked, "--space", self._pipeline.space, "--namespace", self._namespace)
        except EnmasseError as error:
            if f"'table:{name}'" in str(error):
                return []  # no row ever made it
            raise
        rows: list[dict[str, Any]] = json.loads(text)
        return rows

    async def _messages(self, address: str, expected: Expected) -> list[bytes]:
        options: dict[str, Any] = {"browse": True}
        if expected.type == "stream" or any(given.address == address for given in self._rows.given):
            options = {"filters": {"enmasse:start": "first"}}
        found = []
        async with (
            connect(str(self._service.url("amqp"))) as connection,
            connection.receiver(address, credit=1000, **options) as receiver,
        ):
            while (delivery := await receiver.receive(timeout=_SILENCE_S)) is not None:
                body = delivery.message.body
                found.append(body if isinstance(body, bytes) else str(body).encode())
        return found


def _topics(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the topics among declared objects."""
    specs = [one["spec"] for one in documents if one["kind"] == ADDRESS.name]
    return {spec["address"] for spec in specs if spec["type"] == "topic"}


def differing(
    table: str, wanted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Return what differs in rows of a table, by the columns that are expected of any of them.

    Raises:
        UsageError: the table has no such column.
    """
    names = {name for row in wanted for name in row}
    if found and (odd := sorted(names - found[0].keys())):
        columns = ", ".join(found[0])
        raise UsageError(f"expected rows of {table}: there is no column {odd[0]}; expected one of {columns}")

    def text(row: Mapping[str, Any]) -> str:
        # A moment of a table without a zone is in UTC, as it is in messages.
        return readable({name: row.get(name) for name in names} if wanted else row, zone=UTC)

    return compared(map(text, wanted), map(text, found))


def compared(wanted: Iterable[str], found: Iterable[str]) -> list[tuple[str, str]]:
    """Return what is missing, and what is there and was not expected; the first few of each."""
    missing, more = Counter(wanted), Counter(found)
    missing, more = missing - more, more - missing
    lines = [("missing", text) for text in missing.elements()][:_SHOWN]
    return lines + [("not expected", text) for text in more.elements()][:_SHOWN]
