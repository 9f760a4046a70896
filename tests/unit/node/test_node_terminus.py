"""What a sender is told of its address."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.streams.stream import Stream
from enmasse.node.amqp.terminus import attach_properties
from enmasse.testing.ports import CoreHarness

CORE = CoreHarness().core


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (Anycast(CORE, "a"), {"enmasse:address-type": "anycast"}),
        (Queue(CORE, "q", 1), {"enmasse:address-type": "queue"}),
        (Topic(CORE, "t", 2), {"enmasse:address-type": "topic"}),
        (Stream(CORE, "s", 3, uid="u", partitions=4), {"enmasse:address-type": "stream", "enmasse:partitions": 4}),
    ],
    ids=lambda value: value.kind if isinstance(value, Address) else "",
)
def test_a_sender_that_asks_hears_what_its_address_is(address: Address, told: dict[str, Any]) -> None:
    assert attach_properties(address, AttachOptions(capabilities=("enmasse:address-type",))) == told
    assert attach_properties(address, AttachOptions()) is None
