"""The Spark source reads a stream through a node that is not its home; what Spark's processes do, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.client.blocking import Message, connect
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.source.frames_client import Connections
from enmasse.pipeline.source.offsets import Span
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.reading import read_span
from tests.support.nodes import two_nodes
from tests.support.stream_node import StreamNode

pytestmark = pytest.mark.slow


def test_a_stream_is_read_through_a_node_that_is_not_its_home(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        nodes.space("default/demo", 1)
        nodes.address("default/demo", 1, "t", "stream", uid="t", partitions=1)
        url = nodes.nodes[0].url
        with connect(url, timeout=30) as connection:
            connection.sender("t").send_all([Message(b"%d" % n) for n in range(3)], timeout=30)
        options = SourceOptions.parse({"url": url, "address": "t"})
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
