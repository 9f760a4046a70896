"""The checksums of files that never change, so that what a disk has changed is an error with the file's name.

    part-1.parquet
    .part-1.parquet.crc     the magic, how many bytes a part has (u32, big-endian), the CRC-32 of each part

It is the form in which Hadoop keeps them, and Spark compares them with whatever it reads.

Rules:
1. A file without one is taken as it is: it was written by an older version, or somebody else.
2. A checksum is made after its file is on disk, by one rename, and is not waited for: it fits into one page of a
   disk, so that a power cut leaves all of it, or none that anybody looks at.
3. Documents that are written anew have their checksum within: two files could not be replaced at once.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

_BEGIN: Final = b"crc\0"
_PART_BYTES: Final = 64 << 10
"""The least that a reader of some bytes has to read for them."""
_MAX_PARTS: Final = 1000
"""Of four bytes each, in a page."""
_FAR_S: Final = 10**9
"""The seconds that a checksum's time is ahead: Delta's library removes old files that no version of a table names."""
_KEY: Final = "crc32"


class DamagedFileError(ValueError):
    """A file is not as it was written."""


def sum_of(path: Path) -> Path:
    """Return where the checksum of a file is."""
    return path.with_name(f".{path.name}.crc")


def keep_sum(path: Path) -> None:
    """Write the checksum of a file beside it."""
    parts = max(1, -(-path.stat().st_size // (_PART_BYTES * _MAX_PARTS)))
    size = _PART_BYTES << (parts - 1).bit_length()
    beside = sum_of(path)
    new = beside.with_name(f"{beside.name}.{uuid4().hex}")
    try:
        new.write_bytes(_BEGIN + size.to_bytes(4, "big") + _sums(path, size))
        later_ns = time.time_ns() + _FAR_S * 1_000_000_000
        os.utime(new, ns=(later_ns, later_ns))
        new.rename(beside)
    except OSError:
        new.unlink(missing_ok=True)  # the disk may be full
        raise


def check_sum(path: Path) -> None:
    """Compare a file with the checksum beside it, if there is one.

    Raises:
        DamagedFileError: it is that of something else.
    """
    beside = sum_of(path)
    try:
        kept = beside.read_bytes()
    except FileNotFoundError:
        return
    size = int.from_bytes(kept[4:8], "big")
    if kept[:4] != _BEGIN or not size:
        return
    if _sums(path, size) != kept[8:]:
        raise DamagedFileError(f"{path} is not as it was written: its checksum, {beside.name}, is of something else")


def _sums(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in _parts(file, size))


def _parts(file: Any, size: int) -> Iterator[bytes]:
    while part := file.read(size):
        yield part


def remove_sum(path: Path) -> None:
    """Remove the checksum of a file that goes, or that another one takes the name of."""
    sum_of(path).unlink(missing_ok=True)


def remove_lonely_sums(folder: Path) -> None:
    """Remove the checksums below a folder whose files are gone."""
    for beside in folder.rglob(".*.crc"):
        if not beside.with_name(beside.name[1:-4]).exists():
            beside.unlink(missing_ok=True)


def sealed(document: Mapping[str, Any]) -> str:
    """Return a document of JSON with its checksum."""
    return json.dumps({**document, _KEY: _document_sum(document)}, indent=1)


def opened(text: str) -> dict[str, Any]:
    """Return a document as it was sealed; one of an older version has no checksum.

    Raises:
        ValueError: it is no document, or not as it was written.
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("expected an object of JSON")  # noqa: TRY004  # as for anything else that it is not
    if _KEY in document and document.pop(_KEY) != _document_sum(document):
        raise DamagedFileError("it is not as it was written: its checksum is of something else")
    return document


def resealed(text: str, changed: str) -> str:
    """Return a document that was changed with a checksum of its own, if it had one that was right."""
    try:
        if opened(text) == json.loads(text):
            return changed
        document = json.loads(changed)
    except ValueError:
        return changed
    return sealed({key: value for key, value in document.items() if key != _KEY})


def _document_sum(document: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(document, sort_keys=True).encode()):08x}"
