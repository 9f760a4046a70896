"""The copy of the manifest that ``kubectl apply`` keeps in an annotation: secrets are taken out of it too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LAST_APPLIED", "redacted"]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def redacted(annotations: Mapping[str, str], take_out: Callable[[Any], bool]) -> dict[str, str]:
    """Return annotations with the copy redacted; a copy that cannot be read is left out.

    Args:
        annotations: of an object.
        take_out: takes what is secret out of ``spec`` in place, and tells whether there was something.
    """
    found = dict(annotations)
    text = found.pop(LAST_APPLIED, None)
    if text is None:
        return found
    try:
        manifest: Any = json.loads(text)
    except ValueError:
        return found
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    if isinstance(spec, dict) and take_out(spec):
        text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False) + "\n"
    found[LAST_APPLIED] = text
    return found
