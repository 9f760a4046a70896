"""What a query over a queue is told, and what it is told in vain."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.consumed.browsing import check_browsable
from enmasse.pipeline.source.consumed.options import ConsumedOptions, check_stream, place_of, shared

GIVEN = {"url": "amqp://h", "address": "q", "spoolDir": "/spool", "checkpointLocation": "/checkpoint"}


def parse(kind: str = "queue", *, is_batch: bool = False, **options: str) -> ConsumedOptions:
    given = {"url": "amqp://h", "address": "q"} if is_batch else GIVEN
    return ConsumedOptions.parse({**given, **options}, kind, is_batch=is_batch)


def test_defaults_bound_what_is_held() -> None:
    options = parse()
    assert (options.max_rows, options.max_bytes) == (10_000, 32 << 20)
    assert (options.spool, options.checkpoint) == (Path("/spool"), "/checkpoint")
    assert options.properties_of == ""


def test_names_are_known_in_any_case() -> None:
    options = ConsumedOptions.parse({name.lower(): value for name, value in GIVEN.items()}, "queue")
    assert options == parse()


def test_limits_are_taken_as_of_streams() -> None:
    options = parse(maxOffsetsPerTrigger="7", maxBytesPerTrigger="1m", includeProperties="true")
    assert (options.max_rows, options.max_bytes, options.properties_of) == (7, 1 << 20, "q")


def test_one_checkpoint_has_one_name() -> None:
    assert parse(checkpointLocation="file:///checkpoint/").checkpoint == "/checkpoint"
    assert parse(checkpointLocation="s3a://bucket/c").checkpoint == "s3a://bucket/c"


def test_a_topic_has_a_subscription_that_stays_the_same() -> None:
    assert parse("topic", subscription="lake").subscription == "lake"
    named = parse("topic").subscription
    assert named.startswith("spark-")
    assert named == parse("topic").subscription
    assert named != parse("topic", checkpointLocation="/other").subscription


@pytest.mark.parametrize(
    ("kind", "lossy", "confirmed"),
    [("queue", False, True), ("topic", False, True), ("anycast", False, False), ("multicast", True, False)],
)
def test_what_an_address_promises_is_its_types(kind: str, lossy: bool, confirmed: bool) -> None:
    options = parse(kind)
    assert (options.is_lossy, options.is_confirmed) == (lossy, confirmed)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "earliest"}, "option startingOffsets has no meaning for queue 'q'"),
        ({"startingTimestamp": "2026-01-31T12:00:00Z"}, "option startingTimestamp has no meaning"),
        ({"minPartitions": "4"}, "option minPartitions has no meaning"),
        ({"failOnDataLoss": "false"}, "option failOnDataLoss has no meaning"),
        ({"consumer": "lake"}, "option consumer has no meaning"),
        ({"spoolDir": ""}, "option spoolDir is missing: queue 'q' gives a message once"),
        ({"checkpointLocation": ""}, "option checkpointLocation is missing"),
        ({"spoolDir": "hdfs://x/y"}, "option spoolDir: expected a folder that is mounted here"),
        ({"subscription": "lake"}, "option subscription is for topics"),
        ({"spool": "/x"}, "has no option 'spool'"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger"),
    ],
)
def test_what_cannot_be_is_told_by_name(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        ConsumedOptions.parse({**GIVEN, **options}, "queue")


@pytest.mark.parametrize("name", ["x" * 256, "a|b"])
def test_a_subscription_has_a_name_that_the_node_keeps(name: str) -> None:
    with pytest.raises(OptionError, match="option subscription: expected a name"):
        parse("topic", subscription=name)


def test_a_look_takes_no_options_of_a_stream() -> None:
    assert parse(is_batch=True).source.address == "q"
    with pytest.raises(OptionError, match="option spoolDir is for streams"):
        parse(is_batch=True, spoolDir="/x")
    with pytest.raises(OptionError, match="option startingOffsets has no meaning"):
        parse(is_batch=True, startingOffsets="earliest")


@pytest.mark.parametrize("kind", ["topic", "anycast", "multicast"])
def test_only_what_is_stored_can_be_looked_at(kind: str) -> None:
    check_browsable(parse(is_batch=True))
    with pytest.raises(OptionError, match=f"cannot read {kind} 'q'"):
        check_browsable(parse(kind, is_batch=True))


def test_the_type_may_be_said() -> None:
    assert place_of({**GIVEN, "addressType": "deadletter"})[1] == "queue"
    assert place_of(GIVEN)[1] == ""
    with pytest.raises(OptionError, match="option addressType: expected one of"):
        place_of({**GIVEN, "addressType": "heap"})


def test_a_stream_is_not_told_what_only_others_need() -> None:
    check_stream({"url": "amqp://h", "address": "t", "addressType": "stream"})
    with pytest.raises(OptionError, match="option spoolDir is for queues"):
        check_stream(GIVEN)
    assert shared({**GIVEN, "addressType": "queue"}) == {"url": "amqp://h", "address": "q"}
