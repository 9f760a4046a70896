"""The examples of vendors' payloads: each is taken as it is declared, has rows, and is on the page."""

from __future__ import annotations

import re
from pathlib import Path

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.schema.manifest import load_manifest

ROOT = Path(__file__).parents[3]
PAYLOADS = ROOT / "examples" / "payloads"
PAGE = ROOT / "docs" / "howto" / "read-what-devices-send.md"


def test_each_example_of_a_payload_is_one_pipeline_with_rows_and_is_on_the_page() -> None:
    page = PAGE.read_text()
    pipelines = [path for path in sorted(PAYLOADS.iterdir()) if not path.stem.endswith("-rows")]
    assert len(pipelines) > 10
    listed = [
        re.findall(r"examples/payloads/([\w.-]+)\)", line) for line in page.splitlines() if line.startswith("| [")
    ]
    assert sorted(listed) == [[path.name, f"{path.stem}-rows.yaml"] for path in pipelines]
    assert {path.name for path in PAYLOADS.iterdir()} == {name for names in listed for name in names}
    for path in pipelines:
        (pipeline,) = load_manifest(path.read_text(), path.name)
        assert isinstance(pipeline, Pipeline)
