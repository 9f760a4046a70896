"""What a sender is told of its address."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.anycast import Anycast
from enmasse.messaging.queue import Queue
from enmasse.messaging.stream import Stream
from enmasse.messaging.topic import Topic
from enmasse.node.terminus import what_is_told
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
    assert what_is_told(address, AttachOptions(capabilities=("enmasse:address-type",))) == told
    assert what_is_told(address, AttachOptions()) is None
