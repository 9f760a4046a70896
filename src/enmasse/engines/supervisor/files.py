"""Small JSON files that other programs read: always whole, never half written."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["replace_json"]


def replace_json(path: Path, document: Any) -> None:
    """Put a JSON document in the place of a file; readers see the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
