"""The reader process: brings pages of the journal into memory and checks frames on the way.

    python -m enmasse.storage.reader --directory D --fd N [--map-bytes B]

Started by ``enmasse.storage.fetching`` on first need. A page fault holds whoever runs into it; here
that is nobody's event loop. Rules:

1. It reads and never writes; the node copies the records itself once they are in memory.
2. One read transaction a request, so that it pins freed pages for no longer than that.
3. Requests are answered in order. A damaged page may kill it: whoever asked asks its successor.
4. It ends at end of file. SIGINT and SIGTERM are for the node. Few imports.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import closing

import lmdb

from enmasse.messaging.storage import Table
from enmasse.storage.environment import DEFAULT_MAP_BYTES, ReadEnvironment, is_sound_frame
from enmasse.storage.errors import JournalFormatError
from enmasse.storage.reading import FAILED, MAX_DAMAGED, READY, WARM, ReadRequest, encode_read, split_requests

__all__ = ["main"]

_READ_BYTES = 1 << 16
_PAGE_BYTES = 4096


def _warm(environment: ReadEnvironment, request: ReadRequest) -> bytes:
    """Touch what a request wants and return the answer."""
    damaged: list[bytes] = []
    size = 0
    last = b""
    found = False
    with closing(environment.views(request.table, request.first, request.last)) as records:
        for key, value in records:
            last, found = key, True
            size += len(value)
            if request.table != Table.FRAME:
                value[::_PAGE_BYTES].tobytes()
            elif not is_sound_frame(key, value):
                damaged.append(key)
            if size >= request.limit_bytes or len(damaged) >= MAX_DAMAGED:
                break
    return encode_read(WARM, last, tuple(damaged), found=found)


def _serve(environment: ReadEnvironment, fd: int) -> None:
    """Answer until the node closes its end."""
    _write(fd, encode_read(READY))
    partial = b""
    while data := _read(fd):
        requests, partial = split_requests(partial + data)
        for request in requests:
            try:
                answer = _warm(environment, request)
            except lmdb.Error as error:
                answer = encode_read(FAILED, str(error).encode()[:1000])
            _write(fd, answer)


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
    _serve(environment, int(options["--fd"]))
    environment.close()


if __name__ == "__main__":
    main(sys.argv[1:])
