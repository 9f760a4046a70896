"""Load for any AMQP 1.0 peer, and what it did to it: the machinery of ``enmasse bench``.

A conductor starts one process for each group of senders and of receivers, says to them when to begin and
when to end, and adds up what they counted. They speak through ``enmasse.client`` only.
"""

from enmasse.bench.conductor import measure
from enmasse.bench.plan import BenchError, Plan
from enmasse.bench.report import Report

__all__ = ["BenchError", "Plan", "Report", "measure"]
