"""The reader process: brings pages of the journal into memory and checks frames on the way.

    python -m enmasse.storage.reader --directory D --fd N [--map-bytes B]

Started by ``enmasse.storage.fetching`` on first need. A page fault holds the thread that runs into it; here
that is nobody's event loop. Rules:

1. It reads and never writes; the node copies the records itself once they are in memory.
2. One read transaction a request, so that it pins freed pages for no longer than that.
3. Requests are answered in order. A damaged page may kill it: the request goes to its successor.
4. It ends at end of file. SIGINT and SIGTERM are for the node. Few imports.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import closing

import lmdb

from enmasse.messaging.log.frame import FrameError, check_frame
from enmasse.messaging.storage import Table
from enmasse.storage.batch import TABLE_PREFIX
from enmasse.storage.environment import DEFAULT_MAP_BYTES, ReadEnvironment
from enmasse.storage.errors import JournalFormatError, PageError
from enmasse.storage.pages import PageFile
from enmasse.storage.reading import FAILED, MAX_DAMAGED, READY, WARM, ReadRequest, encode_read, split_requests

_READ_BYTES = 1 << 16
_PAGE_BYTES = 4096


def _warm(environment: ReadEnvironment, directory: str, request: ReadRequest) -> bytes:
    """Touch what a request wants and return the answer."""
    damaged: list[bytes] = []
    size = 0
    last = b""
    found = False
    try:
        with closing(environment.views(request.table, request.first, request.last)) as records:
            for key, value in records:
                last, found = key, True
                if value is None:
                    damaged.append(key)
                    if len(damaged) >= MAX_DAMAGED:
                        break
                    continue
                size += len(value)
                if request.table != Table.FRAME:
                    value[::_PAGE_BYTES].tobytes()
                elif not _is_sound(key, value):
                    damaged.append(key)
                if size >= request.limit_bytes or len(damaged) >= MAX_DAMAGED:
                    break
    except lmdb.Error as error:
        # What comes before a damaged page is good; whoever asks on from there gets the page as an error.
        if not found:
            lost = _first_key(directory, request)
            return encode_read(FAILED, str(error).encode()[:1000], () if lost is None else (lost,))
    return encode_read(WARM, last, tuple(damaged), found=found)


def _first_key(directory: str, request: ReadRequest) -> bytes | None:
    """The key of the record that LMDB cannot read, found without it."""
    first, end = TABLE_PREFIX[request.table] + request.first, TABLE_PREFIX[request.table] + request.last
    try:
        file = PageFile(os.path.join(directory, "data.mdb"))  # noqa: PTH118 - see lock.py
    except PageError:
        return None
    try:
        for number, data in file.leaves(file.metas[0].main, lambda _problem: None):
            if file.ends(number, data).last >= first:
                found = next((node.key for node in file.nodes(number, data) if node.key >= first), end)
                return found[1:] if found < end else None
    except PageError:
        return None
    finally:
        file.close()
    return None


def _is_sound(key: bytes, value: memoryview) -> bool:
    try:
        check_frame(value, int.from_bytes(key[-8:], "big"))
    except FrameError:
        return False
    return True


def _serve(environment: ReadEnvironment, directory: str, fd: int) -> None:
    """Answer until the node closes its end."""
    _write(fd, encode_read(READY))
    partial = b""
    while data := _read(fd):
        requests, partial = split_requests(partial + data)
        for request in requests:
            _write(fd, _warm(environment, directory, request))


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except ConnectionResetError:
        return b""


def _write(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except (BrokenPipeError, ConnectionResetError):
            return


def main(arguments: list[str]) -> None:
    """Run the reader process for command-line arguments (without the program's name)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.disable()  # nothing here makes cycles
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    try:
        environment = ReadEnvironment(options["--directory"], int(options.get("--map-bytes", DEFAULT_MAP_BYTES)))
        environment.forget_dead_readers()
    except (JournalFormatError, lmdb.Error) as error:
        sys.stderr.write(f"reader {os.getpid()}: {error}\n")
        sys.exit(2)
    _serve(environment, options["--directory"], int(options["--fd"]))
    environment.close()


if __name__ == "__main__":
    main(sys.argv[1:])
