"""The live table in a terminal, and plain lines everywhere else."""

from __future__ import annotations

from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from enmasse.demo.devices import LAKE
from enmasse.demo.figures import DeviceFigures, Figures

_ALERTS_SHOWN = 3
_FRAME_LINES = 8
"""Lines of heads and of the tables' own headings."""
_PLAIN_EVERY_S = 5.0


class Picture:
    """Shows the figures; ``update`` as often as you like.

    Args:
        console: the output.
        figures: read at each update.
    """

    def __init__(self, console: Console, figures: Figures) -> None:
        self._console = console
        self._figures = figures
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._shown_alerts = 0
        self._shown_states: list[str] = []
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def print(self, text: str) -> None:
        """Print a sentence above the table."""
        self._console.print(Text(text), soft_wrap=True)

    def update(self) -> None:
        """Show the figures of this moment."""
        if self._live is not None:
            self._live.update(_render(self._figures, self._console.height), refresh=True)
        else:
            self._print_plain()

    def _print_plain(self) -> None:
        figures = self._figures
        new = figures.alerts_received - self._shown_alerts
        for alert in list(figures.alerts)[-new:] if new else []:
            self.print(f"{'ALERT' if alert.get('state') == 'raised' else 'OVER '}  {alert.get('text', alert)}")
        self._shown_alerts = figures.alerts_received
        for at, command in enumerate(figures.commands):
            if self._shown_states[at : at + 1] != [command.state]:
                self._shown_states[at : at + 1] = [command.state]
                self.print(f"COMMAND  {command.device}: {command.name} is {command.state}")
        if figures.elapsed_s >= self._next_line_s:
            self._next_line_s = figures.elapsed_s + _PLAIN_EVERY_S
            stored = sum(address.stored for address in figures.addresses.values())
            self.print(
                f"{figures.elapsed_s:5.0f} s  devices {len(figures.devices)}  accepted {figures.accepted()}"
                f"  stored {stored}  rows in the lake {figures.rows_of(LAKE)}  alerts {figures.alerts_seen}"
                f"  {_phases(figures)}"
            )


def _render(figures: Figures, height: int) -> RenderableType:
    limit = f" of {figures.seconds:.0f} s" if figures.seconds else " (Ctrl-C ends)"
    head = Text.assemble(
        (f" {figures.phase} ", "reverse"),
        f"  {figures.elapsed_s:.0f} s{limit}   ",
        f"node restarts {figures.node_restarts}   runner restarts {figures.runner_restarts}",
    )
    alerts = Text("\n").join([_alerts(figures), _commands(figures)])
    # A low terminal cuts the end off, so what matters comes first and idle addresses share a line.
    others = len(figures.devices) + len(figures.pipelines) + len(alerts.plain.splitlines()) + _FRAME_LINES
    room = height - others >= len(figures.addresses)
    return Group(head, _pipelines(figures), alerts, *_addresses(figures, all_rows=room), _devices(figures))


def _phases(figures: Figures) -> str:
    return "  ".join(f"{pipeline.name} {pipeline.phase}" for pipeline in figures.pipelines.values())


def _pipelines(figures: Figures) -> Table:
    table = _table(
        ("pipeline", "<"), ("phase", "<"), ("batches", ">"), ("rows", ">"), ("rows/s", ">"), ("lag", ">"), ("", "<")
    )
    for pipeline in figures.pipelines.values():
        table.add_row(
            pipeline.name,
            pipeline.phase,
            f"{pipeline.batches:,}",
            f"{pipeline.rows:,}",
            f"{pipeline.rate:,.0f}",
            "" if pipeline.lag is None else f"{pipeline.lag:,}",
            Text(pipeline.problem, overflow="ellipsis", style="dim"),
        )
    return table


def _alerts(figures: Figures) -> Text:
    text = Text(f"Alerts {figures.alerts_seen}", style="bold")
    for alert in list(figures.alerts)[-_ALERTS_SHOWN:]:
        is_raised = alert.get("state") == "raised"
        text.append(f"\n  {alert.get('text', alert)}", style="not bold red" if is_raised else "not bold green")
    if not figures.alerts:
        text.append("\n  none yet", style="not bold dim")
    return text


def _commands(figures: Figures) -> Text:
    text = Text(f"Commands {len(figures.commands)}", style="bold")
    for command in figures.commands[-_ALERTS_SHOWN:]:
        style = "not bold green" if command.state == "accepted" else "not bold yellow"
        text.append(f"\n  {command.device}: {command.name} is {command.state}", style=style)
    return text


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, show_edge=False)
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == ">" else "left", no_wrap=True)
    return table


def _addresses(figures: Figures, *, all_rows: bool) -> list[RenderableType]:
    table = _table(
        ("address", "<"),
        ("type", "<"),
        ("in/s", ">"),
        ("out/s", ">"),
        ("stored", ">"),
        ("senders", ">"),
        ("consumers", ">"),
    )
    idle = []
    for address in sorted(figures.addresses.values(), key=lambda a: (-a.messages_in, a.address)):
        if not (all_rows or address.messages_in or address.senders or address.receivers):
            idle.append(f"{address.address} ({address.type})")
            continue
        table.add_row(
            address.address,
            address.type,
            f"{address.in_rate:.1f}",
            f"{address.out_rate:.1f}",
            f"{address.stored:,}",
            str(address.senders),
            str(address.receivers),
        )
    if not idle:
        return [table]
    return [table, Text(f"idle: {', '.join(idle)}", style="dim", no_wrap=True, overflow="ellipsis")]


def _devices(figures: Figures) -> Table:
    table = _table(
        ("device", "<"),
        ("client", "<"),
        ("accepted", ">"),
        ("latest window", "<"),
        ("metric", "<"),
        ("n", ">"),
        ("mean", ">"),
        ("min", ">"),
        ("max", ">"),
        ("stddev", ">"),
    )
    for device in figures.devices.values():
        table.add_row(device.name, device.client, f"{device.accepted:,}", *_window_cells(device))
    return table


def _window_cells(device: DeviceFigures) -> list[str]:
    window = device.window
    if window is None:
        return ["", "", "", "", "", "", ""]
    return [
        str(window["window_start"])[11:19],
        window["metric"],
        str(window["count"]),
        *(_number(window.get(name)) for name in ("mean", "min", "max", "stddev")),
    ]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.2f}"
