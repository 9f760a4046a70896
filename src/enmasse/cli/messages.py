"""Connections and message texts, shared by the messaging commands."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import os
import re
import stat
import sys
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from enmasse.cli.errors import ApiError, CliError, NotFoundError, UnreachableError, UsageError, exit_code
from enmasse.cli.installation import find_endpoints, find_url, space_host
from enmasse.cli.passwords import PASSWORD, password_of
from enmasse.client import ConnectionDeniedError, TlsOptions, connect
from enmasse.client.options import GIVE, RISK
from enmasse.drivers.data_directory import Layout
from enmasse.errors import EnmasseError
from enmasse.message.sections import TOPIC_NAME
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from enmasse.client import Connection, Message
    from enmasse.client.link import Opening
    from enmasse.wire.sparkplug.edge_node import Reader


# No argument, which others could see.
_TOKEN = "ENMASSE_TOKEN"  # noqa: S105  the variable's name
# The client's errors name arguments of Python.
_GIVE = f"name yourself by --user, with the password in {PASSWORD}"
_TLS_HINT = re.compile(r"(: |,? or )give TlsOptions\(.*")

_SPARKPLUG = "spBv1.0/"
_PART_BYTES = 65536  # of standard input, at a time

_PATIENCE_S = 2.0  # a node that was killed is back by then


def open_connection(
    data: Path, command: str, space: str | None, namespace: str | None, user: str | None = None
) -> Opening[Connection]:
    """Connect to the installation, for one space of it.

    Args:
        data: the data directory.
        command: the command that it is for.
        space: the space; None: the only one there is.
        namespace: the namespace of the space; None: ``default``.
        user: the user who connects; None: the user that the environment names, else none.

    Raises:
        ConfigError: when the user's password is not known.
        NotFoundError: when a password would be asked for, and the space is not there.
        UsageError: when there is a namespace without a space.
    """
    host = space_host(data, space, namespace)
    user, token = user or os.environ.get("ENMASSE_USER"), os.environ.get(_TOKEN)
    password = None
    if user is not None and token is None:
        if space is not None and PASSWORD not in os.environ:
            _require_space(data, space, namespace or ADDRESS_SPACE.default_namespace)
        password = password_of(user)
    url, tls = find_url(data, "amqp"), None
    authority = Layout(data).tls / "authority" / "ca.crt"
    if (user or token) and authority.exists():
        # Only a provider of identities is shown the password or the token itself.
        secure = find_endpoints(data).url("amqps")
        url, tls = (url, None) if secure is None else (secure, TlsOptions(ca_file=authority))
    name = f"enmasse-{command}-{uuid.uuid4().hex[:8]}"
    return connect(
        url,
        container_id=name,
        hostname=host,
        patience=_PATIENCE_S,
        user=user,
        password=password,
        token=token,
        tls=tls,
    )


def _require_space(data: Path, space: str, namespace: str) -> None:
    """Check that a space is there, where the API tells us: nobody types a password for one that is not."""
    from enmasse.cli.api_client import ApiClient, operator_token  # noqa: PLC0415  most commands ask the node alone
    from enmasse.cli.targets import find_space  # noqa: PLC0415  the same

    with suppress(ApiError, UnreachableError):
        url = find_url(data, "api")
        with ApiClient(url, warn=lambda _warning: None, token=operator_token(data)) as api:
            find_space(api, namespace, space)


def explain(error: EnmasseError) -> EnmasseError:
    """Return an error in the words of the command line where it has better ones than node and client."""
    if isinstance(error, ConnectionDeniedError) and "names no space" in error.description:
        is_given = "the connection names no space;" not in error.description
        hint = "see which there are with `enmasse get spaces -A`" if is_given else "name the space with --space"
        return ConnectionDeniedError(error.condition, f"{error.description} ({hint})", "no space")
    text = _TLS_HINT.sub("", str(error).replace(RISK, "").replace(GIVE, _GIVE))
    return error if text == str(error) else CliError(text, code=exit_code(error))


def read_body(body: str | None, file: Path | None = None) -> str | bytes:
    """Return the body of a message: the argument, what a file has, or standard input without its last line end.

    Raises:
        NotFoundError: when the file cannot be read.
        UsageError: when there is none of them.
    """
    if file is not None:
        with _opened(file) as opened:
            return opened.read()
    if body is not None and body != "-":
        return body
    if body is None and sys.stdin.isatty():
        raise UsageError("give a BODY, or pipe one into standard input")
    text = _text(sys.stdin.buffer.read())
    return text.removesuffix("\n") if isinstance(text, str) else text


async def read_lines(body: str | None, file: Path | None) -> AsyncIterator[str | bytes]:
    """Yield the lines of the argument, of a file or of standard input, as they come; empty ones are left out.

    Raises:
        NotFoundError: when the file cannot be read.
    """
    parts = _parts_of_input() if file is None and (body is None or body == "-") else _parts_of(read_body(body, file))
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line := line.rstrip(b"\r"):
                yield _text(line)
    if rest:
        yield _text(rest)


async def _parts_of(given: str | bytes) -> AsyncIterator[bytes]:
    yield given.encode() if isinstance(given, str) else given


async def _parts_of_input() -> AsyncIterator[bytes]:
    try:
        number = sys.stdin.fileno()
    except io.UnsupportedOperation:  # it is in memory
        yield sys.stdin.buffer.read()
        return
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    try:
        loop.add_reader(number, is_readable.set)
    except PermissionError:  # a file, which has no wait
        is_readable.set()
    try:
        while await is_readable.wait() and (part := os.read(number, _PART_BYTES)):
            yield part
            if not stat.S_ISREG(os.fstat(number).st_mode):
                is_readable.clear()
    finally:
        loop.remove_reader(number)


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise NotFoundError(f"{file} cannot be read: {error.strerror}") from None


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def parse_properties(pairs: Sequence[str]) -> dict[str, Any]:
    """Return application properties from ``key=text`` and ``key:=json`` words.

    Raises:
        UsageError: for a word of another form, or a value that is no number, text, true, false or null.
    """
    properties: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.rstrip(":") or not equals:
            raise UsageError(f"--property takes KEY=TEXT or KEY:=JSON, not '{pair}'")
        properties[key.removesuffix(":")] = _json_value(pair, value) if key.endswith(":") else value
    return properties


def _json_value(pair: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = ...
    if not isinstance(value, str | int | float | bool | None):
        raise UsageError(f"--property takes a number, a quoted text, true, false or null after ':=', not '{pair}'")
    return value


class Bodies:
    """Decodes the bodies of an address's messages as their names say: payloads of Sparkplug, in the order they come.

    Args:
        address: the name of the address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader: Reader | None = None

    def decode(self, message: Message) -> None:
        """Put what a body says in its place; one that cannot be decoded stays."""
        body = message.body
        # Bad records of pipelines have the name that they were sent to as a property.
        bad = message.properties.get("address")
        sent_to = (message.annotations.get(TOPIC_NAME), message.to, bad, self._address)
        name = next((str(name) for name in sent_to if isinstance(name, str) and name.startswith(_SPARKPLUG)), None)
        if name is None or not isinstance(body, bytes | bytearray | memoryview):
            return
        from enmasse.wire.sparkplug.edge_node import Reader  # noqa: PLC0415  # protocol buffers are slow to load

        if self._reader is None:
            self._reader = Reader()
        with suppress(ValueError):
            message.body = self._reader.read(name, bytes(body)) or body


def to_text(message: Message) -> str:
    """Return the body of a message as a line or more of text."""
    body = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        raw = bytes(body)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(raw).decode()
    if isinstance(body, str):
        return body
    if body is None:
        return ""
    return json.dumps(_plain(body), ensure_ascii=False)


def to_json(message: Message) -> dict[str, Any]:
    """Return the sections of a message that are set, in JSON form."""
    fields = {
        "subject": message.subject,
        "to": message.to,
        "replyTo": message.reply_to,
        "messageId": message.message_id,
        "correlationId": message.correlation_id,
        "contentType": message.content_type,
        "durable": message.durable or None,
        "priority": None if message.priority == 4 else message.priority,  # AMQP's own default
        "ttl": message.ttl,
        "creationTime": message.creation_time,
        "groupId": message.group_id,
        "deliveryCount": message.delivery_count or None,
        "properties": message.properties or None,
        "annotations": message.annotations or None,
    }
    found = {name: _plain(value) for name, value in fields.items() if value is not None}
    return found | {"body": _plain(message.body)}


def _plain(value: Any) -> Any:
    """Return a value of AMQP's as one of JSON's."""
    match value:
        case None | bool():
            return value
        case float() if not math.isfinite(value):
            return str(float(value))
        case int() | float() | str():
            # The types of AMQP refine these.
            return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))
        case bytes() | bytearray() | memoryview():
            raw = bytes(value)
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(raw).decode()
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)
