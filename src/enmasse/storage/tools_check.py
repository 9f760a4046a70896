"""``enmasse journal check`` and ``dump``: reading all of a journal."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.sections import Sections
from enmasse.messaging.log.frame import Frame, FrameError
from enmasse.messaging.log.holders import Holders
from enmasse.messaging.retained_log import decode_value
from enmasse.messaging.storage import Table
from enmasse.storage.batch import TABLE_PREFIX
from enmasse.storage.checksums import FORMAT_KEY, decode_format
from enmasse.storage.environment import FORMAT_VERSION
from enmasse.storage.errors import PageError
from enmasse.storage.records import describe, explain_bad_record, log_of, place_of, table_name
from enmasse.storage.seal import LAST_KEY, SEAL_KEY, explain_broken_seal, sealed_keys
from enmasse.storage.snapshot import Snapshot
from enmasse.storage.soundness import check_trees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.storage.progress import Progress

_ENTITY = TABLE_PREFIX[1]
_SHOWN_KEY_BYTES = 200
_SHOWN_HOLDERS = 100


class _Findings:
    """The result of a check."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.records: Counter[tuple[int, str]] = Counter()
        self.bytes: Counter[tuple[int, str]] = Counter()
        self.names: dict[int, str] = {}
        self.version = 0

    def report(self, problem: PageError | str) -> None:
        """Take up a problem."""
        self.problems.append(str(problem))


def check(directory: Path, progress: Progress) -> int:
    """Read every page and record, print what there is and what is wrong; returns the exit code."""
    found = _Findings()
    try:
        with Snapshot(directory) as snapshot:
            _check_snapshot(snapshot, found, progress)
    except PageError as error:
        found.report(f"{error}, so nothing can be read")
    _print_counts(found)
    for problem in found.problems:
        print(f"damaged: {problem}")  # noqa: T201 - this is the result
    total = f"{sum(found.records.values()):,} records, {sum(found.bytes.values()):,} bytes"
    if found.problems:
        print(f"{directory}: {len(found.problems)} problems; {total} were read. "  # noqa: T201
              f"`enmasse journal salvage {directory} TARGET` keeps what can be read")  # fmt: skip
        return 1
    print(f"{directory}: no damage; format {found.version}, {total}")  # noqa: T201
    return 0


def _check_snapshot(snapshot: Snapshot, found: _Findings, progress: Progress) -> None:
    for problem in snapshot.file.bad_metas:
        found.report(f"{problem}; what was read is the other state, perhaps that of the commit before")
    try:
        check_trees(snapshot.file, snapshot.meta)
    except PageError as error:
        found.report(error)
    progress.expect(snapshot.entries)
    wanted: dict[bytes, bytes | None] = {LAST_KEY: None}
    format_seen = False

    def note_page(problem: PageError) -> None:
        if str(problem) not in found.problems:
            found.report(problem)

    for node in snapshot.nodes(note_page):
        try:
            stored = snapshot.file.value(node)
        except PageError as error:
            found.report(f"{describe(node.key)}: {error}")
            continue
        progress.add(len(stored))
        value = snapshot.value(node.key, stored)
        if node.key == FORMAT_KEY:
            format_seen = True
            found.version = decode_format(stored) or 0
            if not 1 <= found.version <= FORMAT_VERSION:
                found.report(f"the journal has format {found.version}, this version reads up to {FORMAT_VERSION}")
        elif node.key == SEAL_KEY and value is not None:
            wanted = {**dict.fromkeys(sealed_keys(value)), **wanted, SEAL_KEY: value}
        _count(found, node.key, stored, value)
        if node.key in wanted:
            wanted[node.key] = value
    if not format_seen:
        found.report("the record that tells the format is missing: this is no journal, or its first page is lost")
    seal = wanted.get(SEAL_KEY)
    if seal is not None:
        broken = explain_broken_seal(seal, snapshot.meta.transaction, wanted.get)
        if broken is not None:
            found.report(broken)


def _count(found: _Findings, key: bytes, stored: bytes, value: bytes | None) -> None:
    log = log_of(key)
    where = (-1 if log is None else log, table_name(key))
    found.records[where] += 1
    found.bytes[where] += len(stored if value is None else value)
    problem = explain_bad_record(key, value)
    if value is None or problem is not None:
        found.report(f"{describe(key)} {problem}")
    elif key[:1] == _ENTITY and key[1:2] == b"a":
        document = json.loads(value)
        if isinstance(document.get("log"), int):
            found.names[document["log"]] = str(document.get("name", ""))


def _print_counts(found: _Findings) -> None:
    rows = [("LOG", "ADDRESS", "TABLE", "RECORDS", "BYTES")]
    for (log, table), count in sorted(found.records.items()):
        name = found.names.get(log, "")
        rows.append(("" if log < 0 else str(log), name, table, f"{count:,}", f"{found.bytes[log, table]:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for log_text, name, table, count_text, size in rows:
        print(f"{log_text:>{widths[0]}}  {name:<{widths[1]}}  {table:<{widths[2]}}  "  # noqa: T201
              f"{count_text:>{widths[3]}}  {size:>{widths[4]}}")  # fmt: skip


def dump(directory: Path, progress: Progress, *, messages: bool) -> int:
    """Print one JSON object a record, and one a message if wanted; returns the exit code."""
    code = 0

    def say(document: dict[str, Any]) -> None:
        print(json.dumps(document, ensure_ascii=False))  # noqa: T201 - this is the result

    def note_page(problem: PageError) -> None:
        nonlocal code
        code = 1
        say({"damaged": str(problem)})

    with Snapshot(directory) as snapshot:
        progress.expect(snapshot.entries)
        for node in snapshot.nodes(note_page):
            line = place_of(node.key)
            try:
                stored = snapshot.file.value(node)
            except PageError as error:
                note_page(error)
                say(line | {"damaged": str(error)})
                continue
            progress.add(len(stored))
            value = snapshot.value(node.key, stored)
            problem = explain_bad_record(node.key, value)
            if value is None or problem is not None:
                code = 1
                say(line | {"bytes": len(stored), "damaged": problem})
                continue
            say(line | _contents(node.key, value))
            if messages and node.key[0] == Table.FRAME:
                for message in _messages(value):
                    say(message)
            elif messages and node.key[0] == Table.RETAINED:
                say(_message(decode_value(value)[2]))
    return code


def _contents(key: bytes, value: bytes) -> dict[str, Any]:
    if key[0] == Table.FRAME:
        frame = Frame(value, verify=False)
        shown: dict[str, Any] = {"rows": frame.rows, "bytes": len(value), "volatile": frame.is_volatile}
        if frame.producer:
            shown |= {"producer": frame.producer.hex(), "sequence": frame.sequence}
        return shown
    if key[0] == Table.HOLDER:
        holders = Holders(value)
        first = dict(islice(holders.items(), _SHOWN_HOLDERS))
        rows = {str(log): list(own) for log, own in first.items()}
        return {"bytes": len(value), "owners": len(holders), "rows": rows}
    if key[0] == Table.RETAINED:
        time, name, payload = decode_value(value)
        return {"name": name, "time": time, "bytes": len(payload)}
    if key[0] == Table.ENTITY and key[1:2] != b"\0":
        return {"value": json.loads(value)}
    return {"bytes": len(value), "value": value[:_SHOWN_KEY_BYTES].hex()}


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        frame = Frame(data, verify=False)
        rows = zip(frame.timestamps(), frame.cells(frame.keys), frame.payloads(), strict=True)
        for row, (timestamp, key, payload) in enumerate(rows):
            yield {"offset": frame.first_offset + row, "time": timestamp, "key": _plain(key), **_message(payload)}
    except FrameError as error:
        yield {"damaged": str(error)}


def _message(payload: bytes) -> dict[str, Any]:
    try:
        sections = Sections(payload)
        shown = {
            "durable": sections.header.durable,
            "properties": {name: value for name, value in asdict(sections.properties).items() if value is not None},
            "annotations": sections.message_annotations,
            "application-properties": sections.application_properties,
            "body": sections.body,
        }
    except DecodeError as error:
        return {"undecodable": str(error), "payload": base64.b64encode(payload).decode()}
    return {name: _plain(value) for name, value in shown.items() if value is not None and value != {}}


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; bytes that are no text as {"base64": ...}."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
