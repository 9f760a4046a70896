"""One process of a measurement: ``python -m enmasse.bench.worker``, started by the conductor.

It reads lines of JSON from standard input (its job, then the window, then the end) and writes lines to
standard output (ready, progress, done, result). It ends when its input does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
import uuid
from contextlib import AsyncExitStack
from typing import Any

from enmasse.bench.load import Feed, Intake, Pacer, ReceivedCounts, SentCounts, Window
from enmasse.bench.plan import Job
from enmasse.client import Connection, TlsOptions, connect
from enmasse.errors import EnmasseError
from enmasse.net.loop import run

REPORT_S = 0.25
MAX_LINE = 1 << 22


def _report(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def _listen() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next line; the process ends with its input."""
    line = await reader.readline()
    if not line:
        raise SystemExit(1)
    message: dict[str, Any] = json.loads(line)
    return message


async def _open(job: Job, stack: AsyncExitStack) -> Connection:
    tls = None
    if job.ca_file is not None or job.is_trusting:
        tls = TlsOptions(ca_file=job.ca_file, verify=not job.is_trusting)
    return await stack.enter_async_context(
        connect(
            job.url,
            container_id=f"enmasse-bench-{job.run:08x}-{uuid.uuid4().hex[:8]}",
            user=job.user,
            password=job.password,
            hostname=job.hostname,
            tls=tls,
            allow_insecure_plain=job.is_plain_allowed,
            reconnect=False,
        )
    )


class _Usage:
    """The processor time of the process during the measured part."""

    def __init__(self, window: Window) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self.share = 0.0
        self._seconds = (window.end - window.start) / 1e9
        now = time.monotonic_ns()
        self._loop.call_later((window.start - now) / 1e9, self._begin)
        self._loop.call_later((window.end - now) / 1e9, self._end)

    def _begin(self) -> None:
        self._began = time.process_time()

    def _end(self) -> None:
        self.share = (time.process_time() - self._began) / self._seconds


async def _send(job: Job, reader: asyncio.StreamReader, stack: AsyncExitStack) -> None:
    counts = SentCounts()
    pacer = Pacer()
    feeds = []
    for number, address in job.links:
        connection = await _open(job, stack)
        # What waits for credit is bounded by us, where it is bounded at all.
        sender = await connection.sender(str(address), max_pending=1 << 30, resend=False)
        feeds.append(Feed(sender, int(number), job, counts, pacer))
    _report(ready=True)
    window = Window(**await _read(reader))
    usage = _Usage(window)
    gc.freeze()
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(_report_progress(counts))
        watching = group.create_task(_read(reader))
        async with asyncio.TaskGroup() as sending:
            for feed in feeds:
                sending.create_task(feed.run(window))
        summary = {"sent": counts.sent, "failed": counts.failed, "outcomes": counts.outcomes}
        _report(done=True, sent=counts.sent, summary=summary)
        reporting.cancel()
        await watching
    _report(result=counts.dump(), cpu=usage.share)


async def _report_progress(counts: SentCounts | ReceivedCounts) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        if isinstance(counts, SentCounts):
            _report(sent=counts.sent)
        else:
            _report(received=counts.received, foreign=counts.foreign)


async def _receive(job: Job, reader: asyncio.StreamReader, stack: AsyncExitStack) -> None:
    counts = ReceivedCounts()
    intakes = []
    for _, address in job.links:
        connection = await _open(job, stack)
        receiver = await connection.receiver(str(address), credit=job.credit, settled=job.is_presettled)
        intakes.append(Intake(receiver, job, counts))
    _report(ready=True)
    window = Window(**await _read(reader))
    usage = _Usage(window)
    gc.freeze()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(intake.run(window)) for intake in intakes]
        tasks.append(group.create_task(_report_progress(counts)))
        await _read(reader)
        for task in tasks:
            task.cancel()
    _report(result=counts.dump(), cpu=usage.share)


async def _work() -> None:
    reader = await _listen()
    job = Job(**await _read(reader))
    async with AsyncExitStack() as stack:
        await (_send if job.is_sending else _receive)(job, reader, stack)


def _explain(group: BaseExceptionGroup[BaseException]) -> str:
    found = group.exceptions[0]
    return _explain(found) if isinstance(found, BaseExceptionGroup) else str(found)


def main() -> int:
    """Do one job; errors are reported to the conductor."""
    # Ctrl-C reaches the whole group of processes; the conductor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(_work())
    except EnmasseError as error:
        _report(error=str(error))
        return 1
    except BaseExceptionGroup as group:
        _, others = group.split(EnmasseError)
        if others is not None:
            raise
        _report(error=_explain(group))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
