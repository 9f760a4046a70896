"""Whether a pipeline may run on the cluster that it names. Pure.

Executors run as the user of their workers, whichever space they work for; and what answers as a master may hand
objects to the driver. So a cluster is as trusted as the installation, and there must be nobody to keep apart.
"""

from __future__ import annotations

from enmasse.model.pipelines import Pipeline
from enmasse.pipeline.host.verdict import Rule

__all__ = ["cluster_rule"]


def cluster_rule(pipeline: Pipeline, spaces: int) -> Rule | None:
    """Return what counts for a pipeline; None: it runs on this machine.

    Args:
        pipeline: that may name a cluster.
        spaces: how many there are.
    """
    resources = pipeline.spec.resources
    master = resources.master if resources is not None else None
    if not master or master.startswith("local"):
        return None
    if not master.startswith("spark://"):
        return Rule(
            False,
            "NotSupported",
            f"pipelines run on standalone clusters, spark://HOST:PORT, and not on {master}: its executors would "
            "reach neither Spark's driver nor the node, which listen on the loopback interface",
        )
    if spaces > 1:
        return Rule(
            False,
            "NotSeparated",
            "pipelines run on a cluster only where there is one space: executors run as the user of their workers, "
            "so spaces cannot be kept from each other there; leave out spec.resources.master",
        )
    return Rule(True, "OneSpace")
