"""All targets by their names."""

from __future__ import annotations

import importlib
from pathlib import Path

from fuzz.target import Target

__all__ = ["CORPUS", "TARGETS", "corpus_of", "target_of"]

CORPUS = Path(__file__).parent / "corpus"

TARGETS = {
    "types": "values",
    "performatives": "values",
    "sections": "values",
    "framing": "engines",
    "sasl-server": "sasl",
    "sasl-client": "sasl",
    "server": "engines",
    "client": "engines",
    "node": "node",
    "stomp": "stomp",
    "stomp-node": "stomp",
    "http": "http",
    "http-node": "http",
    "http2": "http2",
    "mqtt": "mqtt",
    "mqtt-client": "mqtt",
    "mqtt-trace": "mqtt",
}
"""The module of each: it is loaded alone, as all that is loaded for fuzzing is instrumented first."""


def target_of(name: str) -> Target:
    """A target, whose module is loaded if it is not."""
    module = importlib.import_module(f"fuzz.{TARGETS[name]}")
    target: Target = getattr(module, f"{name.upper().replace('-', '_')}_TARGET")
    return target


def corpus_of(name: str) -> list[Path]:
    """The committed inputs of a target."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
