"""``enmasse pipeline check`` and ``test``: what Spark says of a pipeline, and what it makes of given rows.

Neither deploys anything: the one asks Spark alone, the other a platform of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import httpx
import typer

from enmasse.cli.commands.use.schema import descriptor_text
from enmasse.cli.commands.use.tryout_rows import check_rows, ends_of, read_rows
from enmasse.cli.commands.use.tryout_trial import Trial, Tried
from enmasse.cli.errors import CliError, UsageError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.output import Writer
from enmasse.demo.service import Service
from enmasse.errors import EnmasseError
from enmasse.model.kinds.pipelines.databases import as_lake_table
from enmasse.model.kinds.pipelines.pipeline import Pipeline, full_name
from enmasse.model.schema.errors import ManifestError
from enmasse.model.schema.kinds import ADDRESS, CONFIG_MAP
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.model.sql.functions import MODEL_PREFIX, model_calls
from enmasse.schemas.errors import SchemaRegistryError
from enmasse.schemas.protobuf_schemas import canonical_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from enmasse.model.schema.resource import Resource

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
        except (ManifestError, CliError) as error:
            # The other files may be right.
            wrong.append(str(error))
            continue
        pipelines = [one for one in resources if isinstance(one, Pipeline)]
        if not pipelines:
            wrong.append(f"{file}: expected a pipeline, got none")
        for pipeline in pipelines:
            name = file if len(pipelines) == 1 else f"{file}: {pipeline.metadata.name}"
            declared[name] = pipeline, resources
    try:
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
    except UsageError as error:
        raise UsageError("\n".join([*wrong, str(error)])) from None
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
    missing: dict[str, str] = {}
    for source in (source for pipeline in pipelines for source in pipeline.spec.sources):
        table, in_lake = source.table, source.table
        if source.database is not None:
            table, in_lake = source.database.table, as_lake_table(source.database.table)
        if table is not None and in_lake is not None and in_lake not in columns:
            missing[in_lake] = f"--table: say which columns the table {table} has, as '{table}=id INT, name STRING'"
    if missing:
        raise UsageError("\n".join(missing.values()))
    return columns


def _models(pipelines: Iterable[Pipeline], given: Sequence[str]) -> dict[str, str]:
    """Return what the models give that the pipelines' SQL calls."""
    types = dict(text.partition("=")[::2] for text in given)
    steps = [step for pipeline in pipelines for step in pipeline.spec.steps]
    called = {name.removeprefix(MODEL_PREFIX) for step in steps for name in model_calls(step.sql or "")}
    if missing := [name for name in sorted(called) if not types.get(name)]:
        lines = (f"--model: say of which type is what the model gives, as {name}=DOUBLE" for name in missing)
        raise UsageError("\n".join(lines))
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
    if missing := [subject for subject in named if subject is not None and not files.get(subject)]:
        lines = (f"--schema: name the file with the schema of the subject, as {one}={one}.avsc" for one in missing)
        raise UsageError("\n".join(lines))
    found = []
    for number, (subject, file) in enumerate(files.items(), start=1):
        try:
            text, kind = _schema(Path(file).read_bytes())
        except OSError as error:
            raise UsageError(f"--schema: {file} cannot be read: {error.strerror}") from None
        except (ValueError, AttributeError, SchemaRegistryError) as error:
            said = f", or what protoc --descriptor_set_out writes: {error}"
            raise UsageError(f"--schema: {file}: expected a schema in JSON{said}") from None
        found.append({"subject": subject, "version": named.get(subject) or 1, "id": number, "schema": text} | kind)
    return found


def _schema(content: bytes) -> tuple[str, dict[str, str]]:
    """Return the text of a schema in a file, and its type where that is not Avro."""
    try:
        text = content.decode()
        return text, {} if json.loads(text).get("type") == "record" else {"schemaType": "JSON"}
    except ValueError:
        return canonical_protobuf(descriptor_text(content)), {"schemaType": "PROTOBUF"}


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
            trials = {names: Trial(one, service) for names, one in tried.items()}
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


_FAILURES: Final = (EnmasseError, httpx.HTTPError, TimeoutError)


async def _try_all(trials: Mapping[tuple[str, str], Trial], service: Service, writer: Writer) -> list[str]:
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
            except _FAILURES as error:
                wrong.append(f"{file}: {error or type(error).__name__}")
            else:
                trial.tell(differences, writer)
                if differences:
                    wrong.append(f"{file}: something else came of it than {rows} expects")
            try:
                await trial.clear()
            except _FAILURES as error:  # those that follow would find what it left
                wrong.append(f"{file}: what it left could not be removed: {error or type(error).__name__}")
                break
    finally:
        await service.stop()
    return wrong


def _read_tried(file: str, place: str, schemas: Sequence[str]) -> Tried:
    resources, rows = read_manifests([file], None), read_rows(place)
    pipelines = [one for one in resources if isinstance(one, Pipeline)]
    if rows.pipeline is not None:
        pipelines = [one for one in pipelines if full_name(rows.pipeline, one.space) == one.metadata.name]
    if len(pipelines) != 1:
        of = f" called {rows.pipeline}" if rows.pipeline is not None else ""
        hint = f"; {place} says by pipeline: NAME which one" if len(pipelines) > 1 else ""
        raise UsageError(f"{file}: expected one pipeline{of}, got {len(pipelines)}{hint}")
    documents = [one.to_dict() for one in resources if one.kind == ADDRESS.name]
    check_rows(place, rows, ends_of(pipelines[0].spec), {one["spec"]["address"] for one in documents})
    named = _subjects(pipelines[0])
    written = {given.subject for given in rows.given if given.subject is not None}
    versions = _versions(pipelines[0], schemas)
    if None not in named:  # which means any
        versions = [version for version in versions if version["subject"] in named.keys() | written]
    return Tried(pipelines[0], resources, rows, versions)
