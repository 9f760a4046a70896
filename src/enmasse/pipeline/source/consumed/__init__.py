"""``format("enmasse")`` for reading addresses that keep no offsets: queues, subscriptions, topics, direct addresses.

What such an address gives is given once, so it is written down before Spark sees it:

1. A batch of deliveries is one file of the spool (``spool``); it is on disk before Spark plans it.
2. The deliveries are accepted once Spark's commit log shows their batch (``ledger``). What comes again until
   then is tied to the row that it has already.
3. Only what could not be distinguished if redelivered (``identity``) is accepted as soon as it is written.
"""

from enmasse.pipeline.source.consumed.options import shared
from enmasse.pipeline.source.consumed.reader import batch_reader, stream_reader

__all__ = ["batch_reader", "shared", "stream_reader"]
