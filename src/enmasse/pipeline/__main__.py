"""``python -m enmasse.pipeline telemetry``: run a built-in job, alone or supervised."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from enmasse.errors import ConfigError, EnmasseError
from enmasse.pipeline.bands import Band, Bands
from enmasse.pipeline.session import require_spark

__all__ = ["main", "telemetry_command"]


def telemetry_command(arguments: Sequence[str]) -> list[str]:
    """The command that runs the telemetry job under a supervisor."""
    return [sys.executable, "-m", "enmasse.pipeline", "telemetry", "--supervised", *arguments]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m enmasse.pipeline", description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    job = jobs.add_parser("telemetry", help="raw messages, windowed statistics and alerts")
    job.add_argument("--url", required=True, help="where the space is reached, amqp://HOST:PORT")
    job.add_argument("--address", required=True, help="the stream of telemetry")
    job.add_argument("--alerts", help="address that alerts are sent to; none: alerts are only reported")
    job.add_argument("--space", default="", help="host name that chooses the space")
    job.add_argument("--out", required=True, type=Path, help="folder of the tables raw and windows")
    job.add_argument("--checkpoint", required=True, type=Path, help="folder of the queries' checkpoints")
    job.add_argument("--starting-offsets", default="earliest", help="where to begin without a checkpoint")
    job.add_argument("--max-rows", type=int, help="messages of one micro-batch at most")
    job.add_argument("--metric", default="temperature", help="the metric that has a band")
    job.add_argument("--band", default="10:35", help="values that raise no alert, LOW:HIGH")
    job.add_argument("--bands", type=Path, help='JSON file of single devices\' bands, {"freezer-1": "-25:-15"}')
    job.add_argument("--window", type=int, default=10, help="seconds of one window")
    job.add_argument("--lateness", type=int, default=10, help="seconds that a message may be late")
    job.add_argument("--live-trigger", type=float, default=1.0, help="seconds between looks for alerts")
    job.add_argument("--table-trigger", type=float, default=2.0, help="seconds between additions to raw")
    job.add_argument("--windows-trigger", type=float, default=5.0, help="seconds between additions to windows")
    job.add_argument("--work", type=Path, help="folder of Spark's log and temporary files; default OUT/_spark")
    job.add_argument("--cores", type=int, help="tasks at once; default: all cores")
    job.add_argument("--quick", action="store_true", help="start sooner, run slower")
    how = job.add_mutually_exclusive_group()
    how.add_argument("--supervise", action="store_true", help="run in a child process, again whenever it ends")
    how.add_argument("--supervised", action="store_true", help="stop when standard input ends")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    try:
        require_spark()
        if options.supervise:
            return _supervise(options, [argument for argument in given[1:] if argument != "--supervise"])
        return _run(options)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except EnmasseError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _supervise(options: argparse.Namespace, arguments: list[str]) -> int:
    from enmasse.pipeline.runner import Reporter, Stopping  # noqa: PLC0415  # needs PySpark
    from enmasse.pipeline.supervise import Supervisor  # noqa: PLC0415

    report = Reporter(sys.stdout)
    stopping = Stopping()
    stopping.watch(supervised=False)
    log = (options.work or options.out / "_spark") / "driver.log"
    supervisor = Supervisor(telemetry_command(arguments), log, lambda event: report(**event))
    supervisor.start()
    while not stopping.wait(1.0):
        pass
    supervisor.stop()
    return 0


def _run(options: argparse.Namespace) -> int:
    from enmasse.pipeline.alert_sender import AlertSender  # noqa: PLC0415  # these need PySpark
    from enmasse.pipeline.runner import Reporter, Stopping, run_queries  # noqa: PLC0415
    from enmasse.pipeline.session import start_session  # noqa: PLC0415
    from enmasse.pipeline.telemetry import TelemetryJob, TelemetrySettings  # noqa: PLC0415

    settings = TelemetrySettings(
        url=options.url,
        address=options.address,
        out=options.out,
        checkpoint=options.checkpoint,
        space=options.space,
        starting=options.starting_offsets,
        max_rows=options.max_rows,
        metric=options.metric,
        bands=Bands.load(Band.parse(options.band), options.bands),
        window_s=options.window,
        lateness_s=options.lateness,
        live_trigger_s=options.live_trigger,
        table_trigger_s=options.table_trigger,
        windows_trigger_s=options.windows_trigger,
    )
    report = Reporter(sys.stdout)
    stopping = Stopping()
    stopping.watch(supervised=options.supervised)
    report("starting", pid=os.getpid())
    spark = start_session(
        "telemetry", options.work or options.out / "_spark", cores=options.cores, quick=options.quick
    )
    sender = AlertSender(options.url, options.alerts, options.space) if options.alerts else None
    try:
        send = sender.send if sender is not None else (lambda _alerts: None)
        job = TelemetryJob(spark, settings, send, report)
        run_queries(TelemetryJob.QUERIES, job.start, report, stopping)
    finally:
        if sender is not None:
            sender.close()
        with suppress(Exception):
            # Java may have been ended together with us, by a signal to the whole group.
            spark.stop()
    report("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
