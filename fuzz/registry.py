"""All targets by their names."""

from __future__ import annotations

from pathlib import Path

from fuzz.engines import CLIENT_TARGET, FRAMING_TARGET, SERVER_TARGET
from fuzz.node import NODE_TARGET
from fuzz.sasl import SASL_CLIENT_TARGET, SASL_SERVER_TARGET
from fuzz.target import Target
from fuzz.values import PERFORMATIVES_TARGET, SECTIONS_TARGET, TYPES_TARGET

__all__ = ["CORPUS", "TARGETS", "corpus_of"]

CORPUS = Path(__file__).parent / "corpus"

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        TYPES_TARGET,
        PERFORMATIVES_TARGET,
        SECTIONS_TARGET,
        FRAMING_TARGET,
        SASL_SERVER_TARGET,
        SASL_CLIENT_TARGET,
        SERVER_TARGET,
        CLIENT_TARGET,
        NODE_TARGET,
    )
}


def corpus_of(name: str) -> list[Path]:
    """The committed inputs of a target."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
