"""One run of a pipeline on given rows, on the platform of ``enmasse pipeline test``, and what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.declare.apply import wait_until_ready
from enmasse.cli.commands.use.pipeline_query import QUERY_TIMEOUT_S
from enmasse.cli.commands.use.tryout_declared import UNKEPT, USER, declared, playing
from enmasse.cli.commands.use.tryout_messages import MessageSchemas, readable
from enmasse.cli.errors import CliError, UsageError
from enmasse.cli.installation import space_host
from enmasse.cli.output import make_table
from enmasse.client import Message, TlsOptions, connect
from enmasse.drivers.data_directory import Layout
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from enmasse.model.kinds.pipelines.sources import FILES, reader_name
from enmasse.model.schema.kinds import ADDRESS_SPACE, PIPELINE, kind_named
from enmasse.model.schema.manifest import in_order
from enmasse.model.schema.objects import decode
from enmasse.pipeline.host.api import api_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from enmasse.cli.commands.use.tryout_messages import GivenMessage
    from enmasse.cli.commands.use.tryout_rows import Expected, Given, Rows
    from enmasse.cli.output import Writer
    from enmasse.client import Connection, Receiver
    from enmasse.demo.service import Service
    from enmasse.model.kinds.pipelines.pipeline import Pipeline, PipelineSpec
    from enmasse.model.schema.resource import Resource

_READY_S: Final = 120.0
_BATCH_S: Final = 300.0
_WAITING_S: Final = 30.0
"""All that a pipeline may wait for is there before it: what it still waits for then never comes."""
_ANSWER_S: Final = 60.0
_LOOK_S: Final = 0.25
_AT_ONCE: Final = 1000
_MAX_ROWS: Final = 10_000
_SHOWN: Final = 10
"""Rows of each kind of difference that are shown."""


class Tried(NamedTuple):
    """A pipeline to be tested: with what its file declares, its rows, and the schemas of its subjects."""

    pipeline: Pipeline
    resources: Sequence[Resource]
    rows: Rows
    versions: Sequence[Mapping[str, Any]]


class _Heard(NamedTuple):
    """A receiver of an address that keeps nothing, and the bodies that came."""

    receiver: Receiver
    bodies: list[bytes]


class Trial:
    """One run of a pipeline on given rows.

    Args:
        tried: the pipeline and its rows.
        service: the platform.
    """

    def __init__(self, tried: Tried, service: Service) -> None:
        self._pipeline, resources, self._rows, self._versions = tried
        self._schemas = MessageSchemas(self._pipeline.spec, ())
        self._service = service
        self._namespace, self._space = str(self._pipeline.metadata.namespace), self._pipeline.space
        self._folder = service.data / "pipelines" / f"{self._namespace}.{self._space}"
        self._declared = declared(self._pipeline, resources, self._rows)
        self._types = self._declared.types

    async def run(self) -> dict[str, list[tuple[str, str]]]:
        """Return what differs, by table or address.

        Raises:
            CliError: the pipeline fails.
            ApiError: the API refuses it.
            UnavailableError: the platform does not do what it is asked for.
        """
        await self._apply()
        await self._register()
        for given in self._rows.given:
            if given.table is not None:
                self._fill(given)
        async with AsyncExitStack() as stack:
            await self._subscribe()
            connection = await stack.enter_async_context(self._connected())
            heard = await self._listen(connection, stack)
            for number, batch in enumerate(batches(self._pipeline.spec, self._rows.given)):
                for given in batch:
                    await self._give(connection, given, number)
                await self._play(number)
            expected = self._rows.expect
            found = [await self._differences(one, connection, heard) for one in expected]
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
        paths = [self._path]
        for document in self._declared.documents:
            kind = kind_named(document["kind"])
            if kind not in (None, ADDRESS_SPACE) and kind.scope == "Namespaced":
                place = f"namespaces/{document['metadata']['namespace']}/{kind.plural}"
                paths.append(f"{kind.base_path()}/{place}/{document['metadata']['name']}")
        await self._delete(paths)
        for folder in (self._folder / "lake").glob("*"):
            shutil.rmtree(folder)

    async def _delete(self, paths: Iterable[str]) -> None:
        async with self._api() as client, asyncio.timeout(_READY_S):
            for path in paths:
                await client.delete(path)
            for path in paths:
                while (await client.get(path)).status_code != httpx.codes.NOT_FOUND:
                    await asyncio.sleep(_LOOK_S)

    @property
    def _path(self) -> str:
        place = f"{PIPELINE.base_path()}/namespaces/{self._namespace}/{PIPELINE.plural}"
        return f"{place}/{self._pipeline.metadata.name}"

    @property
    def _space_path(self) -> str:
        return f"{ADDRESS_SPACE.base_path()}/namespaces/{self._namespace}/{ADDRESS_SPACE.plural}/{self._space}"

    def _api(self) -> httpx.AsyncClient:
        return api_client(str(self._service.url("api")), Layout(self._service.data).operator_token)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        """Connect to the space, as its user where it lets in nobody else."""
        data, user, tls = self._service.data, None, None
        url = str(self._service.url("amqp"))
        if self._declared.password:
            authority = Layout(data).tls / "authority" / "ca.crt"
            user, url, tls = USER, str(self._service.url("amqps")), TlsOptions(ca_file=authority)
        host = space_host(data, self._space, self._namespace)
        password = self._declared.password or None
        async with connect(url, hostname=host, user=user, password=password, tls=tls) as connection:
            yield connection

    async def _apply(self) -> None:
        space = self._declared.documents[0]
        async with self._api() as client:
            found = await client.get(self._space_path)
        if found.is_success and any(found.json()["spec"].get(key) != value for key, value in space["spec"].items()):
            await self._delete([self._space_path])  # that of another trial lets in others
        documents = [one.to_dict() for one in in_order(map(decode, self._declared.documents))]
        with ApiClient.find(self._service.data, warn=lambda _: None) as api:
            made = api.apply_all(documents, api.find_present(documents))
        wait_until_ready((item for item, _ in made), _READY_S, self._service.data)

    async def _register(self) -> None:
        """Have the schema registry of the space have the schemas that are given."""
        place = ("--space", self._space, "--namespace", self._namespace)
        file = self._service.data.parent / "schema.json"
        for version in self._versions:
            file.write_text(version["schema"])
            kind = version.get("schemaType", "AVRO").lower()
            await self._service.run("schema", "register", version["subject"], "-f", str(file), "--type", kind, *place)
        if self._versions:
            there = json.loads(await self._service.run("schema", "list", "-o", "json", *place))
            self._schemas = MessageSchemas(self._pipeline.spec, there)

    async def _subscribe(self) -> None:
        """Have topics keep what is sent to them before the pipeline runs for the first time."""
        read = [one for one in self._pipeline.spec.sources if self._types.get(str(one.address)) == "topic"]
        async with AsyncExitStack() as stack:
            for source in read:
                # A connection that ends leaves the subscription, and a link that is closed does not.
                connection = await stack.enter_async_context(self._connected())
                await connection.receiver(
                    str(source.address),
                    name=reader_name(str(self._pipeline.metadata.name), source),
                    credit=0,
                    durable=True,
                    capabilities=("shared", "global", SUBTREE_CAPABILITY),
                )

    async def _listen(self, connection: Connection, stack: AsyncExitStack) -> dict[str, _Heard]:
        """Take what goes to addresses that keep nothing, while the pipeline runs."""
        found: dict[str, _Heard] = {}

        async def take(receiver: Receiver, bodies: list[bytes]) -> None:
            async for delivery in receiver:
                bodies.append(_body(delivery.message))
                delivery.accept()

        sent = {sink.address for sink in self._pipeline.spec.sinks} | {one.address for one in self._rows.expect}
        for address, kind in self._types.items():
            if kind in UNKEPT and address in sent:
                heard = found[address] = _Heard(await connection.receiver(address, credit=_AT_ONCE), [])
                stack.callback(asyncio.create_task(take(*heard)).cancel)
        return found

    def _fill(self, given: Given) -> None:
        """Have a table be there that is joined, as if the space's user had made it."""
        from enmasse.cli.commands.use.tryout_tables import write_table  # noqa: PLC0415  # loads Arrow

        with _owned(self._folder) as lake:
            write_table(lake, str(given.table), given.schema_, given.rows)

    async def _give(self, connection: Connection, given: Given, number: int) -> None:
        if given.files is not None:
            from enmasse.cli.commands.use.tryout_tables import write_file  # noqa: PLC0415  # loads Arrow

            with _owned(self._folder) as lake:
                folder = lake / FILES / given.files.strip("/")
                folder.mkdir(parents=True, exist_ok=True)
                if "rows" in given.model_fields_set:
                    write_file(folder / f"given-{number}.parquet", given.files, given.schema_, given.rows)
                for index, one in enumerate(given.messages):
                    (folder / f"given-{number}-{index}").write_bytes(one.body)
            return
        address = str(given.address)
        sender = await connection.sender(address)
        for one in given.messages:
            await self._send(sender, address, one, given.subject)
        await sender.close()

    async def _send(self, sender: Any, address: str, one: GivenMessage, subject: str | None) -> None:
        body = self._schemas.encode(one, address, subject)
        message = Message(body, subject=one.key, properties=one.properties)
        outcome = await sender.send(message, timeout=_ANSWER_S)
        if str(outcome) != "accepted":
            raise UsageError(f"given message for {address}: {outcome}")

    async def _play(self, number: int) -> None:
        """Have the pipeline read what there is: start it, or start it again."""
        with ApiClient.find(self._service.data, warn=lambda _: None) as api:
            if number:
                found = api.get(PIPELINE, self._namespace, str(self._pipeline.metadata.name))
                found = api.merge(found, {"spec": {"restart": {"at": str(number)}}})
            else:
                # What is said of others who read the same comes with apply: here there are none.
                found = api.create(playing(self._pipeline))
        await self._finish(found["metadata"]["generation"])

    async def _finish(self, generation: int) -> None:
        """Wait until the pipeline has read what there is.

        Raises:
            CliError: it fails, or waits for what does not come.
        """
        clock = asyncio.get_running_loop().time
        name, begun, waits_since = self._pipeline.metadata.name, clock(), clock()
        async with self._api() as client:
            while True:
                found = (await client.get(self._path)).raise_for_status().json()
                status, seen = found.get("status") or {}, found["metadata"]["generation"]
                said = "; ".join(status.get("messages") or ())
                if status.get("phase") != "Pending":
                    waits_since = clock()
                if seen >= generation and status.get("observedGeneration") == seen:
                    if status.get("phase") == "Finished":
                        return
                    if status.get("lastError") and status.get("phase") != "Starting":
                        raise CliError(f"pipeline {name}: {status['lastError']}")
                    if status.get("phase") == "Failed":
                        raise CliError(f"pipeline {name}: {said}")
                    if clock() - waits_since > _WAITING_S:
                        raise CliError(f"pipeline {name} waits for what nobody gives it: {said}")
                if clock() - begun > _BATCH_S:
                    raise CliError(f"pipeline {name} did not end within {_BATCH_S:g} s: {said}")
                await asyncio.sleep(_LOOK_S)

    async def _differences(
        self, expected: Expected, connection: Connection, heard: Mapping[str, _Heard]
    ) -> list[tuple[str, str]]:
        """Return what is missing and what is there and was not expected."""
        if expected.table is not None:
            return differing(expected.table, expected.rows, await self._table(expected.table))
        address = str(expected.address)
        if address in heard:
            receiver, bodies = heard[address]
            await receiver.drain(_ANSWER_S)
            while receiver.waiting:
                await asyncio.sleep(0)
        else:
            bodies = await self._messages(connection, address)
        found = [self._schemas.decode(body, address) for body in bodies]
        return compared([one.readable for one in expected.messages], found)

    async def _table(self, name: str) -> list[dict[str, Any]]:
        """Return all rows of a table, as queries have them."""
        if not (self._folder / "lake" / name).is_dir():
            return []  # no row ever made it
        asked = {"sql": f"SELECT * FROM `table:{name}`", "limit": _MAX_ROWS}  # noqa: S608
        with ApiClient.find(self._service.data, warn=lambda _: None) as api:
            answer = api.call("POST", f"{self._space_path}/query", json=asked, timeout=QUERY_TIMEOUT_S)
        if answer.get("truncated"):
            raise CliError(f"table {name}: expected at most {_MAX_ROWS:,} rows, or 4 MiB: give fewer")
        heads = [column["name"] for column in answer["columns"]]
        return [dict(zip(heads, row, strict=True)) for row in answer["rows"]]

    async def _messages(self, connection: Connection, address: str) -> list[bytes]:
        """Return the messages that an address keeps."""
        is_stream = self._types.get(address) == "stream"
        options: dict[str, Any] = {"filters": {"enmasse:start": "first"}} if is_stream else {"browse": True}
        found: list[bytes] = []
        async with connection.receiver(address, credit=0, **options) as receiver:
            while True:
                receiver.grant(_AT_ONCE)
                if not await receiver.drain(_ANSWER_S):
                    return found
                while (delivery := receiver.receive_nowait()) is not None:
                    found.append(_body(delivery.message))


def batches(spec: PipelineSpec, given: Iterable[Given]) -> list[list[Given]]:
    """Return what comes together: each entry for itself; of a pipeline with several watermarks one of each place.

    Spark forgets the watermarks of single sources as a query ends: all of them have to move in one batch.
    """
    together = sum(source.watermark is not None for source in spec.sources) > 1
    found: list[list[Given]] = []
    for one in given:
        place = one.address or one.files
        if one.table is not None:
            continue
        if together and found and place not in {other.address or other.files for other in found[-1]}:
            found[-1].append(one)
        else:
            found.append([one])
    return found or [[]]


@contextmanager
def _owned(folder: Path) -> Iterator[Path]:
    """Give the lake of a space's folder; what is made there is as if the space's user had made it."""
    work, lake = folder / "work", folder / "lake"
    work.mkdir(parents=True, exist_ok=True)
    yield lake
    owner = work.stat()
    for path in (lake, *lake.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _body(message: Message) -> bytes:
    body = message.body
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else str(body).encode()


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
