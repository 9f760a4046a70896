"""The Python that belongs to a pipeline, as the host wrote it to the space's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from enmasse.pipeline.errors import PlanError

__all__ = ["read_code"]


def read_code(folder: Path) -> Mapping[str, str]:
    """Read the modules of a pipeline.

    Args:
        folder: with files ``*.py``; nothing if there is none.

    Returns:
        Source by module name.

    Raises:
        PlanError: a file is no text in UTF-8.
    """
    found = {}
    for path in sorted(folder.glob("*.py")):
        try:
            found[path.stem] = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise PlanError(f"code of the pipeline: {path.name} is no UTF-8 at byte {error.start}") from None
    return found
