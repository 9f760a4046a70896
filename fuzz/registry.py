"""All targets by their names."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from fuzz.target import Target

__all__ = ["CORPUS", "TARGETS", "corpus_of", "keep_corpus", "target_of"]

CORPUS = Path(__file__).parent / "corpus"
"""Of each target the committed inputs, as one archive."""

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
    "peer-header": "proxy",
    "proxy-header": "proxy",
}
"""The module of each: it is loaded alone, as all that is loaded for fuzzing is instrumented first."""


def target_of(name: str) -> Target:
    """A target, whose module is loaded if it is not."""
    module = importlib.import_module(f"fuzz.{TARGETS[name]}")
    target: Target = getattr(module, f"{name.upper().replace('-', '_')}_TARGET")
    return target


def corpus_of(name: str) -> list[bytes]:
    """The committed inputs of a target; empty without any."""
    path = CORPUS / f"{name}.zip"
    if not path.exists():
        return []
    with ZipFile(path) as archive:
        return [archive.read(each) for each in sorted(archive.namelist())]


def keep_corpus(name: str, inputs: Iterable[bytes]) -> None:
    """Make these the inputs of a target that are committed: the same ones always give the same file."""
    with ZipFile(CORPUS / f"{name}.zip", "w", ZIP_DEFLATED) as archive:
        for member, data in sorted((sha256(data).hexdigest()[:16], data) for data in inputs):
            archive.writestr(ZipInfo(member), data, ZIP_DEFLATED)
