"""The Spark source follows a stream to the node that is its home; what Spark's processes do, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client.blocking import Message
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.frames_client import Connections
from enmasse.pipeline.source.offsets import Span
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.reading import read_span
from tests.support.stream_node import StreamNode

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[StreamNode]:
    """Another node, with the stream ``t`` of three rows."""
    with StreamNode(tmp_path / "home") as node:
        node.create("t", uid="t", partitions=1)
        with node.connect() as connection:
            connection.sender("t").send_all([Message(b"%d" % n) for n in range(3)], timeout=30)
        yield node


def declare(node: StreamNode, address: str, home: str) -> None:
    attributes = {
        "space": "default/demo", "address": address, "addressType": "stream", "uid": address, "generation": 1,
        "partitions": 1, "home": home,
    }  # fmt: skip
    node.manage(lambda m: m.create("io.enmasse.address", f"default/demo.{address}", attributes))


def test_a_stream_is_read_where_its_home_is(stream_node: StreamNode, home: StreamNode) -> None:
    declare(stream_node, "t", home.url)
    options = SourceOptions.parse({"url": stream_node.url, "address": "t"})
    connections = Connections()
    try:
        stream = connections.get(options.url, options)
        assert stream.state().partitions[0].next == 3
        assert connections.get(options.url, options) is stream
        assert stream.rows_since(0) == {0: 0}
        span = Span("t", 0, 0, 3)
        batches = read_span(span, lambda: stream, fail_on_data_loss=True, backoff=Backoff(30))
        assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"0", b"1", b"2"]
    finally:
        connections.close()


def test_what_is_no_stream_is_named(stream_node: StreamNode) -> None:
    stream_node.create("q", "queue")
    options = SourceOptions.parse({"url": stream_node.url, "address": "q"})
    connections = Connections()
    try:
        with pytest.raises(OptionError, match=r"'q' at .* is not a stream but of the type queue"):
            connections.get(options.url, options).state()
    finally:
        connections.close()
