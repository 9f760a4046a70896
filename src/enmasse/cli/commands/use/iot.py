"""``enmasse iot``: tenants, devices and credentials of the device registry."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.use.iot_authorities import ca
from enmasse.cli.errors import ApiError, CliError, NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.passwords import ask_password
from enmasse.model.schema.manifest import read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

iot = typer.Typer(no_args_is_help=True, help="Tenants, devices and credentials of the device registry.")
tenant = typer.Typer(no_args_is_help=True, help="Tenants: whom devices belong to.")
device = typer.Typer(no_args_is_help=True, help="The devices of a tenant.")
credentials = typer.Typer(no_args_is_help=True, help="What devices prove with who they are.")
iot.add_typer(tenant, name="tenant")
iot.add_typer(device, name="device")
command = typer.Typer(no_args_is_help=True, help="Commands to devices, those that wait for them included.")
iot.add_typer(credentials, name="credentials")
iot.add_typer(command, name="command")
iot.add_typer(ca, name="ca")

_BASE: Final = "/registry/v1"
_PAGE: Final = 200
_MAX_LINES: Final = 1_000  # of a request; with passwords to be hashed, a tenth
_MAX_HASHED: Final = 100
_PART_BYTES: Final = 512 * 1024
_TIMEOUT_S: Final = 120.0  # a hundred passwords take some seconds to hash, on a busy machine more

Document = dict[str, Any]

TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="NAMESPACE.NAME, such as default.plant.")]
DeviceId = Annotated[str, typer.Argument(metavar="DEVICE", show_default=False)]
File = Annotated[
    str | None, typer.Option("--filename", "-f", metavar="FILE|-", help="The document, as YAML or JSON; - is stdin.")
]
Disabled = Annotated[bool, typer.Option("--disabled", help="It may not come in.")]
Via = Annotated[list[str] | None, typer.Option("--via", metavar="GATEWAY", help="May act for it; repeatable.")]
Count = Annotated[int, typer.Option("--count", "-c", min=1, help="Show at most so many.")]


class Existing(StrEnum):
    """The treatment of a line whose device is there already."""

    FAIL = "fail"
    REPLACE = "replace"
    SKIP = "skip"


class Form(StrEnum):
    """The forms of many devices."""

    JSON = "json"
    CSV = "csv"


@tenant.command("list")
def list_tenants(
    count: Count = 100, output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA
) -> None:
    """List the tenants that you may see."""
    with _registry(data) as api:
        found, total = _search(api, "tenants", {}, count)
    rows = [[item["id"], _enabled(item), item.get("alias", "-")] for item in found]
    _show_list(["ID", "ENABLED", "ALIAS"], rows, found, total, output, "tenants")


@tenant.command("create")
def create_tenant(identity: TenantId, filename: File = None, data: Data = DEFAULT_DATA) -> None:
    """Create a tenant."""
    with _registry(data) as api:
        api.exchange("POST", f"{_BASE}/tenants/{identity}", json=_document(filename))
    Writer().say(f"tenant {identity} created")


@tenant.command("show")
def show_tenant(
    identity: TenantId, output: StructuredChoice = StructuredOutput.YAML, data: Data = DEFAULT_DATA
) -> None:
    """Show a tenant."""
    _show(data, f"tenants/{identity}", output)


@tenant.command("usage")
def show_usage(
    identity: TenantId, output: StructuredChoice = StructuredOutput.YAML, data: Data = DEFAULT_DATA
) -> None:
    """Show what the devices of a tenant have used of its data volume and connection duration."""
    _show(data, f"tenants/{identity}/usage", output)


@tenant.command("update")
def update_tenant(identity: TenantId, filename: File = None, data: Data = DEFAULT_DATA) -> None:
    """Replace what is known of a tenant by a file."""
    with _registry(data) as api:
        api.exchange("PUT", f"{_BASE}/tenants/{identity}", json=_document(filename, is_needed=True))
    Writer().say(f"tenant {identity} updated")


@tenant.command("grant-alias")
def grant_alias(identity: TenantId, data: Data = DEFAULT_DATA) -> None:
    """Grant a tenant the alias that it asks for, as an operator."""
    with _registry(data) as api:
        found, _ = api.exchange("POST", f"{_BASE}/tenants/{identity}/alias")
    Writer().say(f"tenant {identity} has the alias {found['alias']}")


@tenant.command("delete")
def delete_tenant(identity: TenantId, data: Data = DEFAULT_DATA) -> None:
    """Delete a tenant with all its devices."""
    with _registry(data) as api:
        api.exchange("DELETE", f"{_BASE}/tenants/{identity}", timeout=_TIMEOUT_S)
    Writer().say(f"tenant {identity} deleted, with its devices")


@device.command("list")
def list_devices(
    identity: TenantId,
    via: Annotated[str | None, typer.Option("--via", metavar="GATEWAY", help="Only those of a gateway.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="Only such.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="/FIELD=VALUE", help="JSON, or text with * and ?; repeatable."),
    ] = None,
    count: Count = 100,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List devices, all or those that filters find."""
    wanted: list[tuple[str, Any]] = [_filter(item) for item in filters or ()]
    wanted += [("/via", via)] if via is not None else []
    wanted += [("/enabled", enabled)] if enabled is not None else []
    asked = {"filterJson": [json.dumps({"field": field, "value": value}) for field, value in wanted]}
    with _registry(data) as api:
        found, total = _search(api, f"devices/{identity}", asked, count)
    rows = [[item["id"], _enabled(item), " ".join(item.get("via", ())) or "-"] for item in found]
    _show_list(["ID", "ENABLED", "VIA"], rows, found, total, output, "devices")


@device.command("create")
def create_device(
    identity: TenantId,
    name: Annotated[str | None, typer.Argument(metavar="[DEVICE]", help="Left out: an id is made.")] = None,
    via: Via = None,
    disabled: Disabled = False,
    filename: File = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create a device and print its id."""
    document = _document(filename) | ({"via": via} if via else {}) | ({"enabled": False} if disabled else {})
    with _registry(data) as api:
        made, _ = api.exchange("POST", f"{_BASE}/devices/{identity}" + (f"/{name}" if name else ""), json=document)
    Writer().say(f"device {made['id']} created")


@device.command("show")
def show_device(
    identity: TenantId, name: DeviceId, output: StructuredChoice = StructuredOutput.YAML, data: Data = DEFAULT_DATA
) -> None:
    """Show a device."""
    _show(data, f"devices/{identity}/{name}", output)


@device.command("update")
def update_device(
    identity: TenantId,
    name: DeviceId,
    via: Via = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="Whether it may come in.")] = None,
    filename: File = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Change a device: some of it by options, or all of it by a file."""
    changes = ({"via": via} if via else {}) | ({"enabled": enabled} if enabled is not None else {})
    if filename is None and not changes:
        raise UsageError("say what is to change: --via, --enabled, --disabled, or --filename")
    path = f"{_BASE}/devices/{identity}/{name}"
    with _registry(data) as api:
        headers = {}
        document = _document(filename)
        if filename is None:
            document, tag = api.exchange("GET", path)
            headers = {"If-Match": tag}
        api.exchange("PUT", path, json=document | changes, headers=headers)
    Writer().say(f"device {name} updated")


@device.command("delete")
def delete_device(
    identity: TenantId,
    names: Annotated[list[str] | None, typer.Argument(metavar="DEVICE...", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All devices of the tenant.")] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="All that were registered to be simulated.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete devices with their credentials."""
    if bool(names) + every + simulated != 1:
        raise UsageError("name devices, or give --all or --simulated")
    writer = Writer()
    with _registry(data) as api:
        if simulated:
            from enmasse.cli.simulating import remove  # noqa: PLC0415  # the other commands need not wait for it

            asked = {"filterJson": [json.dumps({"field": "/ext/simulated", "value": True})]}
            found, _ = _search(api, f"devices/{identity}", asked, sys.maxsize)
            writer.say(f"{remove(api, identity, [item['id'] for item in found])} simulated devices deleted")
        for name in names or ():
            api.exchange("DELETE", f"{_BASE}/devices/{identity}/{name}")
            writer.say(f"device {name} deleted")
        if every:
            api.exchange("DELETE", f"{_BASE}/devices/{identity}", timeout=_TIMEOUT_S)
            writer.say(f"all devices of {identity} deleted")


@device.command("import")
def import_devices(
    identity: TenantId,
    filename: Annotated[str, typer.Argument(metavar="FILE|-", help="Lines of JSON; or CSV, if it ends with .csv.")],
    form: Annotated[Form | None, typer.Option("--format", help="Of the lines, whatever the name ends with.")] = None,
    existing: Annotated[Existing, typer.Option("--existing", help="What becomes of devices that are there.")] = (
        Existing.FAIL
    ),
    data: Data = DEFAULT_DATA,
) -> None:
    """Create many devices, one for each line; lines that are wrong are named, and the others taken."""
    is_csv = form == Form.CSV if form else filename.endswith(".csv")
    writer = Writer()
    sums = {"created": 0, "updated": 0, "skipped": 0}
    failed = 0
    with _registry(data) as api, _opened(filename) as lines:
        for first, part in _parts(lines, is_csv=is_csv):
            if first > 1 and writer.err.is_terminal:
                writer.note(f"{sum(sums.values()) + failed:,} devices so far")  # passwords take their time
            answer, _ = api.exchange(
                "POST",
                f"{_BASE}/import/{identity}",
                params={"existing": existing.value},
                content="".join(part).encode(),
                headers={"content-type": "text/csv" if is_csv else "application/x-ndjson"},
                timeout=_TIMEOUT_S,
            )
            for name in sums:
                sums[name] += answer[name]
            failed += len(answer["failed"])
            for item in answer["failed"]:
                writer.note(f"line {first + item['line'] - 1}: {item['error']}")
    told = ", ".join(f"{number} {name}" for name, number in sums.items() if number or name == "created")
    writer.say(f"devices: {told}")
    if failed:
        raise CliError(f"{failed} lines were not imported")


@device.command("export")
def export_devices(
    identity: TenantId,
    form: Annotated[Form, typer.Option("--format", help="Lines of JSON, or CSV.")] = Form.JSON,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print all devices, one on each line, without credentials."""
    writer = Writer()
    with _registry(data) as api:
        for line in api.lines(f"{_BASE}/export/{identity}", {"format": form.value}):
            writer.say_line(line)


@credentials.command("list")
def list_credentials(
    identity: TenantId,
    name: DeviceId,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List the credentials of a device; what is secret is never shown."""
    with _registry(data) as api:
        found, _ = api.exchange("GET", f"{_BASE}/credentials/{identity}/{name}")
    rows = [[item["auth-id"], item["type"], _enabled(item), str(len(item["secrets"])), _ends(item)] for item in found]
    _show_list(["AUTH-ID", "TYPE", "ENABLED", "SECRETS", "ENDS"], rows, found, len(found), output, "credentials")


@credentials.command("show")
def show_credentials(
    identity: TenantId, name: DeviceId, output: StructuredChoice = StructuredOutput.YAML, data: Data = DEFAULT_DATA
) -> None:
    """Show the credentials of a device as they can be sent back; what is secret is never shown."""
    _show(data, f"credentials/{identity}/{name}", output)


@credentials.command("create")
def create_credentials(
    identity: TenantId,
    name: DeviceId,
    auth_id: Annotated[
        str | None, typer.Option("--auth-id", metavar="NAME", help="What it logs in with; else the device's id.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", metavar="FILE", help="Its first line is the password.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Former passwords of this name stay valid, too.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Give a device a password; it is asked for, or is the first line of standard input or of a file."""
    called, path = auth_id or name, f"{_BASE}/credentials/{identity}/{name}"
    password = ask_password() if password_file is None else _first_line(password_file)
    with _registry(data) as api:
        found, tag = api.exchange("GET", path)
        mine = [item for item in found if (item["type"], item["auth-id"]) == ("hashed-password", called)]
        others = [item for item in found if item not in mine]
        made = {"type": "hashed-password", "auth-id": called} | (mine[0] if mine else {})
        made["secrets"] = [*(made.get("secrets", ()) if keep else ()), {"pwd-plain": password}]
        api.exchange("PUT", path, json=[*others, made], headers={"If-Match": tag})
    Writer().say(f"device {name} logs in as {called}@{identity}")


@credentials.command("update")
def update_credentials(identity: TenantId, name: DeviceId, filename: File = None, data: Data = DEFAULT_DATA) -> None:
    """Replace all credentials of a device by a file; secrets with their id alone stay what they are."""
    with _registry(data) as api:
        given = _document(filename, is_needed=True)
        api.exchange("PUT", f"{_BASE}/credentials/{identity}/{name}", json=given, timeout=_TIMEOUT_S)
    Writer().say(f"credentials of device {name} updated")


@credentials.command("delete")
def delete_credentials(
    identity: TenantId,
    name: DeviceId,
    auth_id: Annotated[str | None, typer.Option("--auth-id", metavar="NAME", help="Only those of this name.")] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete the credentials of a device: all, or those of one name."""
    path = f"{_BASE}/credentials/{identity}/{name}"
    with _registry(data) as api:
        found, tag = api.exchange("GET", path)
        left = [item for item in found if auth_id is not None and item["auth-id"] != auth_id]
        if auth_id is not None and len(left) == len(found):
            raise NotFoundError(f"device {name} has no credentials of {auth_id}")
        api.exchange("PUT", path, json=left, headers={"If-Match": tag})
    Writer().say(f"{len(found) - len(left)} credentials of device {name} deleted")


@command.command("send")
def send_command(
    identity: TenantId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the device is to do, such as blink.")],
    devices: Annotated[list[str] | None, typer.Option("--device", "-d", metavar="DEVICE", help="Repeatable.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="All devices that name it in ext.groups.")
    ] = None,
    payload: Annotated[str, typer.Option("--payload", "-p", help="Text for the device; @FILE is a file.")] = "",
    content_type: Annotated[str | None, typer.Option("--content-type", metavar="TYPE")] = None,
    now: Annotated[bool, typer.Option("--now", help="Not stored: deliver it now, or fail.")] = False,
    wait_s: Annotated[float, typer.Option("--wait", min=0, help="With --now: seconds to wait for an answer.")] = 0,
    answer: Annotated[bool, typer.Option("--answer", help="The device is to answer.")] = False,
    ttl: Annotated[int | None, typer.Option("--ttl", min=1, help="Seconds after which it is worthless.")] = None,
    key: Annotated[
        str | None, typer.Option("--supersede", metavar="KEY", help="Take the place of those with this key.")
    ] = None,
    attempts: Annotated[int | None, typer.Option("--attempts", min=1, help="With --answer: how often.")] = None,
    at_once: Annotated[int | None, typer.Option("--at-once", min=1, help="Devices that have it unanswered.")] = None,
    per_second: Annotated[float | None, typer.Option("--per-second", help="Devices that are sent it.")] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send a command: it is stored until the device listens, or delivered now with --now."""
    asked: Document = {"name": name, "mode": "direct" if now else "stored", **_payload(payload)}
    pace = {field: value for field, value in (("at-once", at_once), ("per-second", per_second)) if value is not None}
    asked |= {"response-required": True} if answer or wait_s else {}
    more = {
        "content-type": content_type,
        "ttl": ttl,
        "supersede-key": key,
        "attempts": attempts,
        "pace": pace or None,
    }
    asked |= {field: value for field, value in more.items() if value is not None}
    path, writer = f"{_BASE}/commands/{identity}", Writer()
    if bool(devices) == (group is not None):
        raise UsageError("name a --device, several, or a --group")
    with _registry(data) as api:
        if devices and len(devices) == 1 and not pace:
            params, timeout = {"wait": str(wait_s)}, max(wait_s, 30.0) + 10
            found, _ = api.exchange("POST", f"{path}/{devices[0]}", json=asked, params=params, timeout=timeout)
            if "status" in found:
                writer.say(f"device {devices[0]} answers {found['status']}: {found.get('payload', '')}".rstrip(": "))
            else:
                writer.say(f"command {found.get('id', '')} is {found['state']}".replace("  ", " "))
            return
        asked |= {"group": group} if group is not None else {"devices": devices}
        found, _ = api.exchange("POST", path, json=asked)
    writer.say(f"command {found['batch']} is stored for {found['devices']} devices")


@command.command("list")
def list_commands(
    identity: TenantId,
    of_device: Annotated[str | None, typer.Option("--device", "-d", metavar="DEVICE")] = None,
    state: Annotated[str | None, typer.Option("--state", help="Such as queued.")] = None,
    batch: Annotated[str | None, typer.Option("--batch", metavar="ID", help="Those of one group's command.")] = None,
    count: Count = 100,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List commands, the latest first."""
    wanted = {"device": of_device, "state": state, "batch": batch}
    with _registry(data) as api:
        asked = {name: value for name, value in wanted.items() if value is not None}
        found, total = _search(api, f"commands/{identity}", asked, count)
    rows = [
        [item["id"], item["device"], item["name"], item["state"], str(item.get("response", {}).get("status", "-"))]
        for item in found
    ]
    _show_list(["ID", "DEVICE", "COMMAND", "STATE", "ANSWER"], rows, found, total, output, "commands")


@command.command("show")
def show_command(
    identity: TenantId,
    of: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    output: StructuredChoice = StructuredOutput.YAML,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show a command, and what became of it."""
    _show(data, f"commands/{identity}/{of}", output)


@command.command("cancel")
def cancel_command(
    identity: TenantId,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", show_default=False)],
    data: Data = DEFAULT_DATA,
) -> None:
    """Take back commands that wait."""
    writer = Writer()
    with _registry(data) as api:
        for each in ids:
            api.exchange("DELETE", f"{_BASE}/commands/{identity}/{each}")
            writer.say(f"command {each} is cancelled")


def _payload(text: str) -> Document:
    """Return the payload that an option names."""
    if not text.startswith("@"):
        return {"payload": text} if text else {}
    try:
        found = Path(text[1:]).read_bytes()
    except OSError as error:
        raise NotFoundError(f"{text[1:]} cannot be read: {error.strerror}") from None
    return {"payload-base64": b64encode(found).decode()}


@iot.command("simulate")
def simulate(
    identity: TenantId,
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, max=100_000, help="How many.")] = 10,
    http: Annotated[int, typer.Option("--http", min=0, help="So many of them speak HTTP.")] = 0,
    amqp: Annotated[int, typer.Option("--amqp", min=0, help="So many of them speak AMQP; the others MQTT.")] = 0,
    period: Annotated[float, typer.Option("--period", min=0.01, help="Seconds between two messages of one.")] = 10.0,
    event: Annotated[bool, typer.Option("--event", help="Send events, not telemetry.")] = False,
    churn: Annotated[float, typer.Option("--churn", min=0, max=1, help="The share that leaves in a minute.")] = 0.0,
    faults: Annotated[float, typer.Option("--faults", min=0, max=1, help="The share of wrong readings.")] = 0.0,
    prefix: Annotated[str, typer.Option("--prefix", help="Their ids begin with it.")] = "sim",
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="End after so long; 0: on Ctrl-C.")] = 0,
    is_removed: Annotated[bool, typer.Option("--remove", help="Delete the devices at the end.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Register devices and play them: they connect, send readings, and answer commands, until Ctrl-C."""
    if http + amqp > devices:
        raise UsageError(f"--http and --amqp are parts of --devices: {http} and {amqp} are more than {devices}")
    from enmasse.cli.simulating import play, register, remove  # noqa: PLC0415  # the other commands need not wait for it

    names = [f"{prefix}-{number:05}" for number in range(devices)]
    from enmasse.iot.simulator.fleet import Plan  # noqa: PLC0415  # as above

    plan = Plan(period, "event" if event else "telemetry", churn, faults)
    try:
        with _registry(data) as api:
            passwords = register(api, identity, names)
        counts = play(data, identity, passwords, plan, http=http, amqp=amqp, seconds=seconds)
    finally:
        if is_removed:
            with _registry(data) as api:
                count = remove(api, identity, names)
            Writer().say(f"{count} simulated devices deleted")
    if counts["arrived"] < devices:
        raise CliError(f"{counts['arrived']} of {devices} devices came in")


@contextmanager
def _registry(data: Path) -> Iterator[ApiClient]:
    with ApiClient.find(data, warn=Writer().warn) as api:
        yield api


def _search(api: ApiClient, path: str, asked: dict[str, Any], count: int) -> tuple[list[Document], int]:
    """Return what a search finds, up to a number, and how many there are."""
    found: list[Document] = []
    total = 1
    while len(found) < min(count, total):
        page = {"pageSize": min(_PAGE, count - len(found)), "pageOffset": len(found)}
        try:
            answer, _ = api.exchange("GET", f"{_BASE}/{path}", params=asked | page)
        except ApiError as error:
            if error.status == 404 and "nothing matches" in str(error):
                return found, 0
            raise
        total = answer["total"]
        if not answer["result"]:
            break
        found += answer["result"]
    return found, total


def _show_list(
    columns: list[str], rows: list[list[str]], found: list[Document], total: int, output: StructuredOutput, what: str
) -> None:
    writer = Writer()
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, found)
    elif not found:
        writer.note(f"there are no {what}")
    else:
        writer.out.print(make_table(columns, rows))
        if len(found) < total:
            writer.note(f"these are {len(found)} of {total}; --count shows more")


def _show(data: Path, path: str, output: StructuredOutput) -> None:
    with _registry(data) as api:
        found, _ = api.exchange("GET", f"{_BASE}/{path}")
    form = StructuredOutput.YAML if output == StructuredOutput.TABLE else output
    write_structured(Writer(), form.value, found)


def _enabled(item: Document) -> str:
    return "yes" if item.get("enabled", True) else "no"


def _ends(item: Document) -> str:
    """Return when the last secret ends."""
    ends = [secret.get("not-after") for secret in item["secrets"]]
    return "-" if None in ends else max(str(end) for end in ends)


def _filter(text: str) -> tuple[str, Any]:
    field, separator, value = text.partition("=")
    if not separator or not field.startswith("/"):
        raise UsageError(f"--filter {text}: expected /FIELD=VALUE, such as /ext/brand=Acme*")
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    return field, found if isinstance(found, str | bool | int | float) else value


def _document(filename: str | None, *, is_needed: bool = False) -> Any:
    if filename is None:
        if is_needed:
            raise UsageError("--filename: name the file, or - for standard input")
        return {}
    with _opened(filename) as lines:
        documents = read_documents(lines.read(), filename)
    if len(documents) != 1:
        raise UsageError(f"{filename}: expected one document, got {len(documents)}")
    return documents[0]


@contextmanager
def _opened(filename: str) -> Iterator[Any]:
    if filename == "-":
        yield sys.stdin
        return
    try:
        with Path(filename).open(encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise NotFoundError(f"{filename} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{filename} is not UTF-8: {error}") from None


def _first_line(path: Path) -> str:
    with _opened(str(path)) as file:
        password = str(file.readline()).rstrip("\r\n")
    if not password:
        raise UsageError(f"{path}: the first line is empty, and is to be the password")
    return password


def _parts(lines: Iterator[str], *, is_csv: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield lines in parts that one request takes, each with the number of its first line."""
    head = [next(lines, "")] if is_csv else []
    part, size, hashed, first = list(head), 0, 0, 1
    for number, line in enumerate(lines, 1 + len(head)):
        plain = line.count('"pwd-plain"')
        is_full = len(part) >= _MAX_LINES or size + len(line) > _PART_BYTES or hashed + plain > _MAX_HASHED
        if is_full and len(part) > len(head):
            yield first, part
            part, size, hashed, first = list(head), 0, 0, number - len(head)
        part.append(line)
        size, hashed = size + len(line.encode()), hashed + plain
    yield first, part
