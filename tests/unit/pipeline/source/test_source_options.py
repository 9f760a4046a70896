from __future__ import annotations

import pytest

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.bounds import Moment
from enmasse.pipeline.source.options import SourceOptions, parse_seconds

LEAST = {"url": "amqp://127.0.0.1:5672", "address": "telemetry"}


def test_a_url_and_an_address_are_enough() -> None:
    options = SourceOptions.parse(LEAST)
    assert (options.address, options.starting, options.max_rows) == ("telemetry", "latest", None)
    assert options.fail_on_data_loss


def test_names_of_options_are_known_in_any_case() -> None:
    options = SourceOptions.parse({**LEAST, "STARTINGOFFSETS": "Earliest", "maxoffsetspertrigger": "50"})
    assert (options.starting, options.max_rows) == ("earliest", 50)


def test_the_path_of_load_is_the_address() -> None:
    assert SourceOptions.parse({"url": LEAST["url"], "path": "t"}).address == "t"


def test_offsets_by_partition_are_numbers_or_words() -> None:
    options = SourceOptions.parse({**LEAST, "startingOffsets": '{"0": 12, "1": "latest"}'})
    assert options.starting == {0: 12, 1: "latest"}


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"url": ""}, "url"),
        ({"url": "http://127.0.0.1"}, "url"),
        ({"address": ""}, "address"),
        ({"startingOffset": "latest"}, "startingOffset"),
        ({"startingOffsets": "newest"}, "startingOffsets"),
        ({"startingOffsets": '{"0": -3}'}, "startingOffsets"),
        ({"startingOffsets": '{"zero": 3}'}, "startingOffsets"),
        ({"startingOffsets": '{"0": true}'}, "startingOffsets"),
        ({"startingOffsets": "[1]"}, "startingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"pollTimeout": "soon"}, "pollTimeout"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "big"}, "maxBytesPerTrigger"),
        ({"includeProperties": "1"}, "includeProperties"),
        ({"startingTimestamp": "noon"}, "startingTimestamp"),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, "startingOffsets and startingTimestamp"),
        ({"endingOffsets": "latest"}, "endingOffsets is for spark.read only"),
        ({"endingTimestamp": "5"}, "endingTimestamp is for spark.read only"),
        ({"credentials": "ann:secret"}, "option credentials"),
        ({"consumer": "c" * 256}, "consumer"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, str], names: str) -> None:
    with pytest.raises(OptionError, match=names):
        SourceOptions.parse({**LEAST, **wrong})


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "http"])
def test_a_password_in_the_url_is_refused_and_not_repeated(scheme: str) -> None:
    with pytest.raises(OptionError, match="option credentials") as caught:
        SourceOptions.parse({**LEAST, "url": f"{scheme}://ann:secret@127.0.0.1"})
    assert "secret" not in str(caught.value)


def test_a_batch_begins_at_the_earliest_row_and_may_have_an_end() -> None:
    options = SourceOptions.parse({**LEAST, "endingTimestamp": "1000"}, is_batch=True)
    assert (options.starting, options.ending) == ("earliest", Moment(1_000_000))
    # What bounds micro-batches has nothing to bound here.
    assert SourceOptions.parse({**LEAST, "maxOffsetsPerTrigger": "5"}, is_batch=True).max_rows == 5


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("64m", 64 << 20), ("2 GiB", 2 << 30), ("10KB", 10 << 10), ("1k", 1024)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert SourceOptions.parse({**LEAST, "maxBytesPerTrigger": text}).max_bytes == size


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("2.5s", 2.5), ("500ms", 0.5), ("1m", 60.0)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_seconds("pollTimeout", text) == seconds


def test_several_addresses_share_their_other_options() -> None:
    found = SourceOptions.several({"url": "amqp://h", "Subscribe": "a, b,a", "maxOffsetsPerTrigger": "5"})
    assert [(name, one.address, one.max_rows) for name, one in found.items()] == [("a", "a", 5), ("b", "b", 5)]
    assert list(SourceOptions.several({"url": "amqp://h", "subscribe": '["x,y"]'})) == ["x,y"]
    assert SourceOptions.several({"url": "amqp://h", "address": "a"}) == {}
    for wrong, said in (
        ({"subscribe": "a,,b"}, "expected 1 to 200 addresses"),
        ({"subscribe": "a", "address": "b"}, "subscribe and address are both given"),
    ):
        with pytest.raises(OptionError, match=said):
            SourceOptions.several({"url": "amqp://h"} | wrong)
    with pytest.raises(OptionError, match="has addressPattern for it"):
        SourceOptions.parse({"url": "amqp://h", "subscribePattern": "a.*"})


def test_the_words_of_sparks_kafka_source_mean_the_same() -> None:
    options = SourceOptions.parse(
        {
            "url": "amqp://h",
            "address": "a",
            "startingOffsetsByTimestamp": '{"0": 1000, "1": 2000}',
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "1m",
            "maxRecordsPerPartition": "7",
        }
    )
    assert options.starting == {0: Moment(1_000_000), 1: Moment(2_000_000)}
    assert (options.min_rows, options.max_delay_s, options.max_task_rows) == (10, 60.0, 7)
    both = {"startingOffsets": "latest", "startingOffsetsByTimestamp": "{}"}
    with pytest.raises(OptionError, match="startingOffsets and startingOffsetsByTimestamp are both given"):
        SourceOptions.parse({"url": "amqp://h", "address": "a"} | both)
