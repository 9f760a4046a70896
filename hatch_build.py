"""The README as the package's page on an index, where nothing lies beside it that a relative link could lead to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE_OR_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)]*)\)")


class ReadmeHook(MetadataHookInterface):
    """Declares the README with links that lead into the source of this version, below the project's URL ``Source``.

    As long as no such URL is declared, a link is left as its text, and a picture as its description.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field ``readme``."""
        text = (Path(self.root) / "README.md").read_text()
        page = page_of(text, metadata.get("urls", {}).get("Source"), f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def page_of(readme: str, source: str | None, tag: str) -> str:
    """Return a README whose relative links and pictures lead to files of a tag; without a URL they are words."""

    def replaced(found: re.Match[str]) -> str:
        picture, text = found["picture"], found["text"]
        if source is None:
            return f"*{text}*" if picture else text
        return f"{picture}[{text}]({source.rstrip('/')}/{'raw' if picture else 'blob'}/{tag}/{found['target']})"

    return _PICTURE_OR_LINK.sub(replaced, readme)
