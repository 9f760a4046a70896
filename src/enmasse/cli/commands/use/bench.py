"""``enmasse bench``: load for any AMQP 1.0 peer, and its figures under it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from enmasse.bench import BenchError, Plan, measure
from enmasse.bench.histogram import PERCENTILES
from enmasse.bench.plan import Tls
from enmasse.cli.errors import UsageError
from enmasse.cli.installation import find_url, space_host
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.passwords import PASSWORD, password_of

if TYPE_CHECKING:
    from enmasse.bench import Report
    from enmasse.bench.conductor import Progress as Figures
    from enmasse.bench.histogram import Histogram


def bench(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="%d in it is the number of the sender, from 0.")],
    url: Annotated[
        str | None,
        typer.Option("--url", help="Another peer than this installation: amqp://HOST:PORT, or amqps:// for TLS."),
    ] = None,
    receive_address: Annotated[
        str | None,
        typer.Option("--receive-address", metavar="ADDRESS", help="Where messages come out, if elsewhere."),
    ] = None,
    senders: Annotated[int, typer.Option("--senders", min=0, help="Each with a connection of its own.")] = 1,
    receivers: Annotated[int, typer.Option("--receivers", min=0, help="The same; 0 measures acceptance alone.")] = 1,
    rate: Annotated[
        float,
        typer.Option(
            "--rate", min=0, metavar="N", help="Messages a second, due whatever the peer does. 0: all it takes."
        ),
    ] = 0.0,
    outstanding: Annotated[
        int,
        typer.Option("--outstanding", min=1, help="Without --rate: messages of a sender without outcome at a time."),
    ] = 1000,
    size: Annotated[int, typer.Option("--size", min=24, metavar="BYTES", help="Of each body.")] = 100,
    credit: Annotated[int, typer.Option("--credit", min=1, help="Of each receiver.")] = 1000,
    duration: Annotated[
        float, typer.Option("--duration", min=0.1, metavar="SECONDS", help="What is measured.")
    ] = 10.0,
    warm_up: Annotated[float, typer.Option("--warm-up", min=0, metavar="SECONDS", help="Sent before that.")] = 1.0,
    drain: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="How long missing messages are waited for.")
    ] = 10.0,
    durable: Annotated[bool, typer.Option("--durable", help="Mark messages durable.")] = False,
    presettled: Annotated[bool, typer.Option("--presettled", help="Send them settled: no outcome is now.")] = False,
    multicast: Annotated[bool, typer.Option("--multicast", help="Each receiver gets every message.")] = False,
    processes: Annotated[
        int, typer.Option("--processes", min=0, help="Of senders, and as many of receivers. 0: what cores allow.")
    ] = 0,
    user: Annotated[str | None, typer.Option("--user", help=f"The password is {PASSWORD}, or is asked for.")] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Authorities to trust (PEM).", exists=True, dir_okay=False),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Take any certificate.")] = False,
    allow_insecure_plain: Annotated[
        bool, typer.Option("--allow-insecure-plain", help="Show the password to a network without TLS.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Put load on an address of this installation or of any AMQP 1.0 peer, and print its figures.

    With --rate messages are due at fixed moments, and latencies count from
    there, however late the peer lets them go: a pause of the peer shows in
    them as it does for users. Without, each sender has so many messages under
    way as --outstanding says, and latencies count from when they were sent.
    """
    if url is not None and "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(f"a password in --url is seen by all who list processes: give --user, and {PASSWORD}")
    host = space_host(data if url is None else None, space, namespace)
    plan = Plan(
        url=url or find_url(data, "amqp"),
        address=address,
        receive_address=receive_address,
        user=user,
        password=None if user is None else password_of(user),
        hostname=host,
        tls=Tls(str(ca) if ca else None, insecure) if ca or insecure else None,
        senders=senders,
        receivers=receivers,
        size=size,
        rate=rate,
        outstanding=outstanding,
        credit=credit,
        duration_s=duration,
        warmup_s=warm_up,
        drain_s=drain,
        is_durable=durable,
        is_presettled=presettled,
        is_multicast=multicast,
        processes=processes,
        is_plain_allowed=allow_insecure_plain,
    )
    writer = Writer()
    try:
        plan.check()
    except BenchError as error:
        raise UsageError(str(error)) from None
    report = _measure(plan, writer)
    if json:
        write_structured(writer, "json", report.to_json())
    else:
        _show(report, writer)


def _measure(plan: Plan, writer: Writer) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[rates]}"))
    with Progress(*columns, console=writer.err, transient=True, disable=not writer.err.is_terminal) as bar:
        task = bar.add_task("connecting", total=plan.warmup_s + plan.duration_s, rates="")

        def show(now: Figures) -> None:
            phase = "warming up" if now.elapsed_s < plan.warmup_s else "measuring"
            if now.elapsed_s > plan.warmup_s + plan.duration_s:
                phase = "waiting for the rest"
            seconds = max(now.elapsed_s, 0.001)
            rates = f"{now.sent / seconds:,.0f} sent/s, {now.received / seconds:,.0f} received/s"
            bar.update(task, completed=now.elapsed_s, description=phase, rates=rates)

        return asyncio.run(measure(plan, show))


def _show(report: Report, writer: Writer) -> None:
    plan = report.plan
    what = (
        f"{plan.senders} to {plan.receivers}, {plan.size:,} B, {'presettled' if plan.is_presettled else 'unsettled'}"
    )
    how = f"{plan.rate:,.10g}/s" if plan.rate else f"{plan.outstanding:,} outstanding each"
    writer.say(f"{what}{', durable' if plan.is_durable else ''}, {how}, {plan.duration_s:g} s at {plan.url}")
    counts = []
    if plan.senders:
        counts.append(["sent", f"{report.sent:,}", ""])
        if not plan.is_presettled:
            counts.append(["accepted", f"{report.accepted:,}", f"{report.accepted_per_s:,.0f}"])
    if plan.receivers:
        counts.append(["received", f"{report.received or report.foreign:,}", f"{report.received_per_s:,.0f}"])
    writer.out.print(make_table(["MESSAGES", "ALL", "A SECOND"], counts))
    since = "due" if plan.rate else "sent"
    lines = [(f"{since} to received", report.delivery), (f"{since} to outcome", report.outcome)]
    if plan.rate:
        lines.append(("due to sent", report.late))
    rows = [[name, *_cells(histogram)] for name, histogram in lines if histogram.count]
    if rows:
        heads = ["MIN", "MEAN", *(f"P{share:g}" for share in PERCENTILES), "MAX"]
        writer.out.print(make_table(["LATENCY, MS", *heads], rows))
    for remark in report.remarks:
        writer.warn(remark)


def _cells(histogram: Histogram) -> list[str]:
    return [f"{value / 1e3:,.3f}" for value in histogram.figures().values()]
