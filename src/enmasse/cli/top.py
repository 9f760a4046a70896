"""``enmasse top``: what flows through the addresses now."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families

from enmasse.cli.api_client import ApiClient
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table

__all__ = ["top"]

_COLUMNS = ("SPACE", "ADDRESS", "TYPE", "IN/S", "OUT/S", "STORED", "BYTES", "SENDERS", "RECEIVERS")
_IN, _OUT = "enmasse_messages_in_total", "enmasse_messages_out_total"
_STORED, _BYTES = "enmasse_messages_stored", "enmasse_bytes_stored"
_SENDERS, _RECEIVERS = "enmasse_senders", "enmasse_receivers"
_IS_UP = "enmasse_node_up"
_SHOWN = frozenset({_IN, _OUT, _STORED, _BYTES, _SENDERS, _RECEIVERS})
_UNITS = ("", "k", "M", "G", "T")

_Key = tuple[str, str, str]
_Sample = dict[_Key, dict[str, float]]


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=1.0, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="How many tables; 0: until Ctrl-C.")] = 0,
    lines: Annotated[int, typer.Option("--lines", min=1, help="How many addresses, the busiest first.")] = 20,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the busiest addresses with their rates, again and again."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        (before, _), at = _read(api.text("/metrics")), time.monotonic()
        shown = 0
        while not count or shown < count:
            time.sleep(interval)
            (now, silent), read_at = _read(api.text("/metrics")), time.monotonic()
            if writer.out.is_terminal:
                writer.out.clear()
            rows = _rows(before, now, read_at - at)
            writer.out.print(make_table(_COLUMNS, rows[:lines]))
            if len(rows) > lines:
                writer.note(f"{len(rows) - lines} more addresses")
            for node in silent:
                writer.warn(f"{node} did not answer within two seconds: what flows through it is not shown")
            before, at = now, read_at
            shown += 1


def _read(metrics: str) -> tuple[_Sample, list[str]]:
    """Return the figures of each address, and the nodes that told none."""
    found: _Sample = {}
    silent = []
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == _IS_UP and not sample.value:
                silent.append(sample.labels["node"])
            elif sample.name in _SHOWN:
                labels = sample.labels
                key = (f"{labels['namespace']}/{labels['addressspace']}", labels["address"], labels["type"])
                found.setdefault(key, {})[sample.name] = sample.value
    return found, silent


def _rows(before: _Sample, now: _Sample, seconds: float) -> list[list[str]]:
    """Return a row for each address, the busiest first."""
    rated = []
    for key, figures in now.items():
        former = before.get(key, {})
        rates = [max(0.0, figures.get(name, 0.0) - former.get(name, 0.0)) / seconds for name in (_IN, _OUT)]
        rated.append((sum(rates), key, rates, figures))
    rated.sort(key=lambda item: (-item[0], item[1]))
    return [
        [
            *key,
            *(_short(rate) for rate in rates),
            *(_short(figures.get(name, 0.0)) for name in (_STORED, _BYTES, _SENDERS, _RECEIVERS)),
        ]
        for _, key, rates, figures in rated
    ]


def _short(value: float) -> str:
    """Write a number in four characters or so: ``12``, ``1.2k``, ``340M``."""
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    digits = 1 if value < 100 and value != int(value) else 0
    return f"{value:.{digits}f}{_UNITS[unit]}"
