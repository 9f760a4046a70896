"""``python -m benchmarks``: measure this machine's EnMasse, beside whatever peers are installed.

Nothing here passes or fails: it prints what was measured, and keeps it below ``build/bench``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import (
    addresses,
    anycast,
    console_pages,
    consoles,
    devices,
    floods,
    http,
    mqtt,
    nodes,
    refusals,
    relay,
    returning,
    starting,
    stomp,
    stored,
    tenants,
    users,
)
from benchmarks.accounting import Patience
from benchmarks.artemis import Artemis
from benchmarks.cases import Case
from benchmarks.comparison import Plan, compare
from benchmarks.connections import measure_idle
from benchmarks.control import cost_of_addresses
from benchmarks.dispatch import QpidDispatch
from benchmarks.generators import build
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import Node
from benchmarks.peers import Floor, Mosquitto, Peer, RabbitMQ, Server
from benchmarks.reporting import Results
from benchmarks.secured import cost_of_tls, missing_tls
from benchmarks.spending import missing_profiler, spending
from enmasse.errors import EnmasseError

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "build" / "bench"

TRAFFIC: dict[str, tuple[str, tuple[Case, ...]]] = {
    "anycast": ("Direct addresses", anycast.CASES),
    "stored": ("Stored addresses", stored.CASES),
    "stomp": ("STOMP", stomp.CASES),
    "mqtt": ("MQTT", mqtt.CASES),
}
SCRIPTS = {
    "journal": ("The journal by itself", "journal.py", ("--seconds", "{seconds}", "--directory", "{directory}")),
    "topics": (
        "A topic with very many subscriptions, in the core alone",
        "topics.py",
        ("--seconds", "{seconds}"),
    ),
    "client": ("The client beside proton", "client.py", ("--seconds", "{seconds}", "--directory", "{directory}")),
    "spark": ("From a stream into Spark", "spark_source.py", ()),
    "spark-sink": ("From Spark into addresses", "spark_sink.py", ()),
}
"""Title, file in this folder, arguments."""
MEASUREMENTS: dict[str, tuple[Measurement, ...]] = {
    "stored": stored.MEASUREMENTS,
    "http": http.MEASUREMENTS,
    "mqtt": mqtt.MEASUREMENTS,
    "addresses": addresses.MEASUREMENTS,
    "users": (*users.MEASUREMENTS, *returning.MEASUREMENTS, *refusals.MEASUREMENTS),
    "tenants": tenants.MEASUREMENTS,
    "floods": floods.MEASUREMENTS,
    "relay": relay.MEASUREMENTS,
    "nodes": nodes.MEASUREMENTS,
    "tls": (Measurement("What TLS adds to a message", cost_of_tls, missing_tls),),
    "control": (Measurement("100,000 addresses in one installation", cost_of_addresses),),
    "devices": devices.MEASUREMENTS,
    "starting": starting.MEASUREMENTS,
    "consoles": (*console_pages.MEASUREMENTS, *consoles.MEASUREMENTS),
    "spending": (Measurement("What the microseconds of a message are spent on", spending, missing_profiler),),
}
SUITES = (
    *TRAFFIC,
    "http",
    "addresses",
    "users",
    "control",
    "consoles",
    "devices",
    "tenants",
    "floods",
    "relay",
    "nodes",
    "tls",
    "spending",
    "starting",
    "connections",
    *SCRIPTS,
)
PEERS: tuple[type[Peer], ...] = (QpidDispatch, RabbitMQ, Artemis, Mosquitto)


def main() -> int:
    """Run what was asked for; the exit code is 1 when something could not be measured at all."""
    parser = make_parser()
    given = parser.parse_args()
    unknown = set(given.suites) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    if given.list:
        show_list(given.suites or SUITES)
        return 0
    results = Results(given.directory, sys.argv[1:])
    return int(not run_suites(given, results))


def make_parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"which of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--list", action="store_true", help="show suites, cases and peers, and measure nothing")
    parser.add_argument("--case", metavar="TEXT", help="only the cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case and server (default: %(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait, in all, until others leave the machine alone (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="multiplies the numbers of messages that are stored at once (default: %(default)s)",
    )
    parser.add_argument("--no-peers", action="store_true", help="measure EnMasse alone")
    parser.add_argument("--peer", metavar="TEXT", help="only the peers whose name contains this")
    parser.add_argument(
        "--directory",
        type=Path,
        default=RESULTS,
        help="where results go, and what servers store meanwhile (default: build/bench)",
    )
    return parser


def run_suites(given: argparse.Namespace, results: Results) -> bool:
    """Run the suites that were asked for; whether everything could be measured."""
    # Whoever ends us this way, too, wants the servers stopped.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    plan = Plan(given.seconds, given.runs, Patience(given.patience))
    failed = False
    peers = () if given.no_peers else chosen(given.peer)
    for suite in given.suites or SUITES:
        try:
            if suite in TRAFFIC:
                run_traffic(suite, given.case, plan, results, peers=peers, with_floor=bool(peers))
            if suite in MEASUREMENTS:
                here = [peer for peer in peers if peer.is_installed()]
                setting = Setting(results.directory, given.seconds, given.runs, given.scale, plan.patience, here)
                failed |= not run_measurements(suite, given.case, setting, results)
            if suite == "connections":
                measure_idle(results, [peer for peer in peers if peer.is_installed()])
            if suite in SCRIPTS:
                failed |= not run_script(suite, given.seconds, results)
        except EnmasseError as error:
            failed = True
            results.console.print(f"[bold red]{suite}:[/] {error}", highlight=False)
    results.console.print(f"Kept in {results.path}", highlight=False)
    return not failed


def show_list(suites: Sequence[str]) -> None:
    for suite in suites:
        if suite in TRAFFIC:
            title, cases = TRAFFIC[suite]
            print(f"{suite}: {title}")
            names = [case.name for case in cases] + [one.name for one in MEASUREMENTS.get(suite, ())]
            print("\n".join(f"    {name}" for name in names))
        elif suite in MEASUREMENTS:
            print("\n".join(f"{suite}: {one.name}" for one in MEASUREMENTS[suite]))
        elif suite in SCRIPTS:
            print(f"{suite}: {SCRIPTS[suite][0]} (benchmarks/{SCRIPTS[suite][1]})")
        else:
            print(f"{suite}: Memory and CPU of idle connections")
    for peer in PEERS:
        print(f"{'installed' if peer.is_installed() else 'missing  '}  {peer.INSTALL}")


def chosen(text: str | None) -> tuple[type[Peer], ...]:
    """The peers to measure beside us."""
    return tuple(peer for peer in PEERS if text is None or text.lower() in peer.__name__.lower())


def run_traffic(
    suite: str, only: str | None, plan: Plan, results: Results, *, peers: Sequence[type[Peer]], with_floor: bool
) -> None:
    title, all_cases = TRAFFIC[suite]
    cases = [case for case in all_cases if only is None or only in case.name]
    if not cases:
        return
    for tool in {f"{case.protocol}_load" for case in cases}:
        build(tool)
    results.console.rule(f"[bold]{title}[/]: CPU microseconds of all processes of the server, per message")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=results.directory)))
        servers: list[Server] = []
        for server in start(scratch, results, peers, with_floor=with_floor):
            stack.callback(server.stop)
            server.prepare(cases)
            servers.append(server)
        for case in cases:
            with results.console.status(f"{title}: {case.name}"):
                found = compare(case, servers, plan)
            results.add(suite, found)
            results.show(found)


def start(directory: Path, results: Results, peers: Sequence[type[Peer]], *, with_floor: bool) -> Iterator[Server]:
    """Ourselves, the machine's floor, and the peers that are here."""
    yield Node(directory)
    if with_floor:
        yield Floor(directory)
    for peer in peers:
        if peer.is_installed():
            yield peer(directory)
        else:
            results.console.print(f"Not here to compare with: {peer.INSTALL}", highlight=False)


def run_measurements(suite: str, only: str | None, setting: Setting, results: Results) -> bool:
    """Measure what has a plan of its own; whether all of it came to its end."""
    is_done = True
    for measurement in MEASUREMENTS.get(suite, ()):
        if only is not None and only not in measurement.name:
            continue
        lines: list[Line] = []
        failure = ""
        build("amqp_load")
        if missing := measurement.missing():
            results.console.print(f"{measurement.name} needs {missing}", highlight=False, markup=False)
            continue
        with results.console.status(measurement.name):
            try:
                lines.extend(measurement.measure(setting))
            except EnmasseError as error:
                is_done = False
                failure = str(error)
        results.add_lines(suite, measurement.name, lines, failure)
    return is_done


def run_script(suite: str, seconds: float, results: Results) -> bool:
    """Run a benchmark that stands by itself; whether it came to its end."""
    title, script, arguments = SCRIPTS[suite]
    if suite == "spark" and shutil.which("java") is None:
        results.console.print("Spark needs Java and there is none: apt-get install openjdk-17-jre-headless")
        return True
    results.console.print(f"[italic]{title}[/]")
    given = [argument.format(seconds=seconds, directory=results.directory) for argument in arguments]
    command = [sys.executable, "-m", f"benchmarks.{Path(script).stem}", *given]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            print(lines[-1], flush=True)
    results.add_record(suite, {"command": command[1:], "exit": process.returncode, "lines": lines})
    return not process.returncode


if __name__ == "__main__":
    sys.exit(main())
