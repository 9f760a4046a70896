"""``enmasse schema``: the subjects of a space's schema registry."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import FAILED, NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.targets import find_space
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[..., Any]

schema = typer.Typer(no_args_is_help=True, help="The schema registry of a space: its subjects and their versions.")

_BASE: Final = "/schemas/v1/spaces"


class SchemaKind(StrEnum):
    """The types of schemas."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as telemetry-value.")]
File = Annotated[
    str,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|-",
        help="The schema: JSON, or what protoc --descriptor_set_out writes; - is stdin.",
    ),
]
Kind = Annotated[SchemaKind, typer.Option("--type", "-t", help="What the schema is.")]


@schema.command("list")
def list_subjects(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="Only its versions.")] = None,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List subjects with their latest versions, or the versions of one."""
    with _registry(space, namespace, data) as ask:
        if subject is None:
            found = ask("GET", "/schemas", params={"latestOnly": "true"})
        else:
            ask("GET", f"/subjects/{_quoted(subject)}/versions")  # tells that there is none
            all_versions = ask("GET", "/schemas", params={"subjectPrefix": subject})
            found = [item for item in all_versions if item["subject"] == subject]
    writer = Writer()
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, found)
    elif not found:
        writer.note("there are no subjects")
    else:
        rows = [
            [item["subject"], str(item["version"]), str(item["id"]), item.get("schemaType", "AVRO").lower()]
            for item in found
        ]
        writer.out.print(make_table(["SUBJECT", "VERSION", "ID", "TYPE"], rows))


@schema.command("get")
def get(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", show_default=False)] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Left out: the latest.")] = None,
    number: Annotated[int | None, typer.Option("--id", min=1, help="The schema with this id instead.")] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print a schema, as JSON; of Protobuf its descriptor in base64."""
    if (subject is None) == (number is None) or (version is not None and subject is None):
        raise UsageError("name either a subject, and perhaps a --version, or an --id")
    with _registry(space, namespace, data) as ask:
        if subject is None:
            found = ask("GET", f"/schemas/ids/{number}")
        else:
            found = ask("GET", f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}")
    if found.get("schemaType") == "PROTOBUF":
        Writer().say(found["schema"])
    else:
        Writer().say_json(json.loads(found["schema"]), indent=2)


@schema.command("register")
def register(
    subject: Subject,
    filename: File,
    kind: Kind = SchemaKind.AVRO,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Add a version to a subject, unless one has this schema, and print its number and id."""
    body = _body(filename, kind)
    with _registry(space, namespace, data) as ask:
        ask("POST", f"/subjects/{_quoted(subject)}/versions", json=body)
        found = ask("POST", f"/subjects/{_quoted(subject)}", json=body)
    Writer().say(f"version {found['version']} of subject {subject} has id {found['id']}")


@schema.command("check")
def check(
    subject: Subject,
    filename: File,
    kind: Kind = SchemaKind.AVRO,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Compare with this one alone.")] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """See whether a schema could be added to a subject; the exit code is 1 if not."""
    path = f"/compatibility/subjects/{_quoted(subject)}/versions" + (f"/{version}" if version else "")
    with _registry(space, namespace, data) as ask:
        found = ask("POST", path, params={"verbose": "true"}, json=_body(filename, kind))
    writer = Writer()
    if found["is_compatible"]:
        writer.say(f"the schema goes with those of subject {subject}")
        return
    writer.fail(f"the schema does not go with those of subject {subject}: {'; '.join(found['messages'])}")
    raise typer.Exit(FAILED)


@schema.command("level")
def level(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="Left out: of the space.")] = None,
    to: Annotated[str | None, typer.Option("--set", metavar="LEVEL", help="Such as FULL or NONE.")] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show or set the level of compatibility of a subject, or of the space."""
    path = "/config" + (f"/{_quoted(subject)}" if subject is not None else "")
    with _registry(space, namespace, data) as ask:
        if to is not None:
            ask("PUT", path, json={"compatibility": to})
        found = ask("GET", path, params={"defaultToGlobal": "true"})
    Writer().say(found["compatibilityLevel"])


@schema.command("delete")
def delete(
    subject: Subject,
    permanent: Annotated[bool, typer.Option("--permanent", help="For good what was deleted before.")] = False,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete a subject; messages of its schemas can be read until that is done for good."""
    with _registry(space, namespace, data) as ask:
        params = {"permanent": "true"} if permanent else {}
        found = ask("DELETE", f"/subjects/{_quoted(subject)}", params=params)
    Writer().say(f"subject {subject} deleted{' for good' if permanent else ''}: {len(found)} versions")


@contextmanager
def _registry(space: str | None, namespace: str | None, data: Path) -> Iterator[Ask]:
    """Yield what sends a request to the registry of a space, and returns its answer."""
    place = namespace or ADDRESS_SPACE.default_namespace
    with ApiClient.find(data, warn=Writer().warn) as api:
        root = f"{_BASE}/{place}/{find_space(api, place, space)}"
        yield lambda method, path, **options: api.exchange(method, f"{root}{path}", **options)[0]


def _quoted(subject: str) -> str:
    if "/" in subject or not subject:
        raise UsageError(f"expected the name of a subject, without '/', got '{subject}'")
    return quote(subject, safe="")


def descriptor_text(content: bytes) -> str:
    """Return what a file with a descriptor of Protobuf says, in base64, in which it may be already."""
    try:
        base64.b64decode(b"".join(content.split()), validate=True)
    except binascii.Error:
        return base64.b64encode(content).decode()
    return content.decode()


def _body(filename: str, kind: SchemaKind) -> dict[str, str]:
    try:
        content = sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()
        text = descriptor_text(content) if kind is SchemaKind.PROTOBUF else content.decode()
    except OSError as error:
        raise NotFoundError(f"{filename} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{filename} is not UTF-8: {error}") from None
    return {"schema": text, "schemaType": kind.value.upper()}
