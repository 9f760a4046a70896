"""``metering``: messages and bytes of each address by window of time.

Rules:
1. A message counts when the stream accepted it, so nothing that a device says changes the account.
2. Each stream has a watermark of its own, and the slowest counts: one that is far behind loses nothing.
3. A row of the table is written again while its window grows; reading it at any time is right so far.
4. Bytes are those of key and value, as the source gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from enmasse.messaging.patterns import matches, parse_permission
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.builtins import MeteringParameters
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.pipeline.builtin.plans import checked, compaction_of
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.planning.plans import AddressFacts, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

KEYS: Final = ("window_start", "space", "address")


def build(context: PlanContext, parameters: MeteringParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """One query for all addresses.

    Raises:
        PlanError: a parameter is wrong, an address is no stream, or no address fits a pattern.
    """
    wanted = checked(MeteringParameters, parameters)
    names = streams_of(wanted.addresses, context.addresses)
    lateness = f"{milliseconds(wanted.lateness)} milliseconds"
    messages = reduce(
        lambda left, right: left.union(right), [_messages(context, wanted, name, lateness) for name in names]
    )
    window = F.window("timestamp", f"{milliseconds(wanted.window)} milliseconds")
    usage = (
        messages.groupBy(window, "address")
        .agg(F.count("bytes").alias("messages"), F.sum("bytes").alias("bytes"))
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            F.lit(context.place.folder.name).alias("space"),
            "address",
            "messages",
            "bytes",
        )
    )
    state = (f"metering 1: {milliseconds(wanted.window)} ms, address -> messages, bytes", *names)
    return [
        QueryPlan("usage", usage, TableTarget(wanted.table, Layout(mode="update", keys=KEYS)), state),
        compaction_of(context, wanted.table),
    ]


def _messages(context: PlanContext, wanted: MeteringParameters, address: str, lateness: str) -> DataFrame:
    source = SourceSpec(
        name=f"messages of {address}", address=address, format="raw", starting_offsets=wanted.starting_offsets
    )
    return (
        context.read(source)
        .select(
            "timestamp",
            F.lit(address).alias("address"),
            (F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0)))
            .cast("bigint")
            .alias("bytes"),
        )
        .withWatermark("timestamp", lateness)
    )


def streams_of(wanted: Sequence[str], addresses: Mapping[str, AddressFacts]) -> list[str]:
    """Return the streams that the patterns match, sorted, so that a query's sources stay in order.

    Args:
        wanted: addresses and patterns.
        addresses: the facts about the space's addresses.

    Raises:
        PlanError: one is no stream, or nothing fits.
    """
    found: set[str] = set()
    for name in wanted:
        if "*" not in name and "#" not in name:
            facts = addresses.get(name)
            if facts is not None and facts.type != "stream":
                raise PlanError(
                    f"spec.builtin.parameters.addresses: {name} is a {facts.type}; only a stream can be counted "
                    "without taking its messages away"
                )
            found.add(name)
            continue
        pattern = parse_permission(name, "")
        found |= {one for one, facts in addresses.items() if facts.type == "stream" and matches(pattern, one)}
    if not found:
        raise PlanError(
            f"spec.builtin.parameters.addresses: there is no stream that fits {', '.join(wanted)}; declare one"
        )
    return sorted(found)
