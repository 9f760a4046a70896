"""Options of the sink."""

from __future__ import annotations

import pytest

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.sink.options import SinkOptions

URL = {"url": "amqp://127.0.0.1:5672"}


def test_names_are_known_in_any_case_and_values_have_units() -> None:
    options = SinkOptions.parse(
        {
            **URL,
            "ADDRESS": "alerts",
            "sendtimeout": "500ms",
            "retryTimeout": "2m",
            "onNoConsumer": "SKIP",
            "order": "content",
            "durable": "false",
            "badRecords": "bad",
            "credentials": "analyst",
            "checkpointLocation": "/somewhere",
            "queryName": "shop.hot/alerts",
        }
    )
    assert options.address == "alerts"
    assert (options.send_timeout_s, options.retry_timeout_s) == (0.5, 120.0)
    assert options.skips_no_consumer
    assert options.is_sorted
    assert not options.durable
    assert (options.bad_records, options.login.credentials) == ("bad", "analyst")


def test_a_path_is_the_address() -> None:
    assert SinkOptions.parse({**URL, "path": "alerts"}).address == "alerts"


def test_a_batch_has_a_name_and_a_number() -> None:
    options = SinkOptions.parse({**URL, "producer": "nightly", "sequence": "7"}, is_batch=True)
    assert (options.producer, options.sequence) == ("nightly", 7)


@pytest.mark.parametrize(
    ("options", "is_batch", "complaint"),
    [
        ({}, False, "url is missing"),
        ({"url": "http://x"}, False, "option url: expected amqp"),
        ({"url": "amqp://me:secret@x"}, False, "holds a password"),
        ({**URL, "adress": "a"}, False, "no option 'adress'"),
        ({**URL, "order": "random"}, False, "option order: expected arrival or content"),
        ({**URL, "onNoConsumer": "drop"}, False, "option onNoConsumer: expected fail or skip"),
        ({**URL, "durable": "1"}, False, "option durable: expected true or false"),
        ({**URL, "sendTimeout": "soon"}, False, "option sendTimeout: expected a duration"),
        ({**URL, "credentials": "../root"}, False, "option credentials"),
        ({**URL, "producer": "p", "sequence": "1"}, False, "it is for df.write only"),
        ({**URL, "producer": "p"}, True, "belong together"),
        ({**URL, "sequence": "1"}, True, "belong together"),
        ({**URL, "producer": "p", "sequence": "-1"}, True, "option sequence: expected a number"),
        ({**URL, "producer": "p", "sequence": str(1 << 31)}, True, "option sequence: expected a number"),
        ({**URL, "producer": "p" * 201, "sequence": "1"}, True, "at most 200 bytes"),
    ],
)
def test_wrong_options_are_told_in_words(options: dict[str, str], is_batch: bool, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint) as error:
        SinkOptions.parse(options, is_batch=is_batch)
    assert "secret" not in str(error.value)
