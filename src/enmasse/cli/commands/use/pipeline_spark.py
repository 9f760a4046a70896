"""``enmasse pipeline ui``: where a browser finds Spark's pages of a pipeline's session."""

from __future__ import annotations

from enmasse.cli.api_client import ApiClient
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import PipelineName, find_pipeline
from enmasse.model.schema.kinds import PIPELINE


def spark_ui(name: PipelineName, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Print the address at which a browser finds Spark's pages of the session that a pipeline runs in.

    Whoever has the address sees the pages, for half an hour after the last look and as long as your login lasts. The
    space has to show them: spec.spark.ui.
    """
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        metadata = find_pipeline(api, name, space, namespace)["metadata"]
        writer.say(
            api.place(f"{PIPELINE.base_path()}/namespaces/{metadata['namespace']}/pipelines/{metadata['name']}/ui")
        )
