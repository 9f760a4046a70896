"""What RabbitMQ 3 does otherwise than the standard has it, behind a connector.

Rules:
1. It hands out more than was granted: it sets a receiver's credit without counting what is on its way within the
   broker. What comes so waits for credit: given back, it would come again out of order.
2. It repeats a receiver's source in its answer, though it neither browses nor selects. The answer that is passed on
   says what it does [AMQP 3.5.3]: it takes any message.
3. A receiver that is detached leaves it with messages that are nobody's until the session ends, and much that it does
   not like about one link ends the session. So each link has a session of its own, which ends with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.wire.amqp.performatives import Attach

STREAM_OFFSET: Final = "rabbitmq:stream-offset-spec"
"""The one filter that it knows."""

SLACK: Final = 10_000
"""Messages beyond its credit that may come on one link: as many as were granted may be on their way."""


def is_rabbitmq_3(properties: Mapping[Any, Any] | None) -> bool:
    """Return true if the properties of a container's open are those of RabbitMQ 3, which speaks by a plugin."""
    told = properties or {}
    return told.get("product") == "RabbitMQ" and str(told.get("version")).startswith("3.")


def as_done(answer: Attach) -> Attach:
    """Return its answer to a receiver without what it repeats and does not do."""
    source = answer.source
    if source is None:
        return answer
    known = {name: value for name, value in (source.filter or {}).items() if name == STREAM_OFFSET}
    mode = "move" if source.distribution_mode == "copy" else source.distribution_mode
    return replace(answer, source=replace(source, filter=known or None, distribution_mode=mode))
