from __future__ import annotations

import pytest

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.options import SourceOptions, parse_seconds

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
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, str], names: str) -> None:
    with pytest.raises(OptionError, match=names):
        SourceOptions.parse({**LEAST, **wrong})


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse({**LEAST, "url": "amqp://ann:secret@127.0.0.1"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("2.5s", 2.5), ("500ms", 0.5), ("1m", 60.0)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_seconds("pollTimeout", text) == seconds
