"""The extras of the package: which of them installs a module that is missing here, and by which command."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

_DISTRIBUTION_OF = {
    "adbc_driver_manager": "adbc-driver-postgresql",
    "joblib": "scikit-learn",
    "paho": "paho-mqtt",
    "proton": "python-qpid-proton",
    "py4j": "pyspark",
    "sklearn": "scikit-learn",
}
"""Modules that are named otherwise than the distribution of an extra that brings them."""

_REQUIREMENT = re.compile(r"(?P<distribution>[\w.-]+).*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
_INSTALLERS = {
    "uv-receipt.toml": "uv tool install --force",
    "pipx_metadata.json": "pipx install --force",
}
"""The files that these leave in an environment, in which pip would be the wrong tool, or is none."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra to the environment of this process."""
    receipts = (command for file, command in _INSTALLERS.items() if (Path(sys.prefix) / file).exists())
    return f"{next(receipts, 'pip install')} 'enmasse[{extra}]'"


def extra_with(module: str) -> str | None:
    """Return the smallest extra that brings a module, by the package's own metadata; none: no extra does."""
    from importlib import metadata  # noqa: PLC0415  every command would load it for what most never need

    try:
        requirements = metadata.requires("enmasse") or ()
    except metadata.PackageNotFoundError:
        return None
    extras: dict[str, set[str]] = defaultdict(set)
    for text in requirements:
        if found := _REQUIREMENT.match(text):
            extras[found["extra"]].add(_normal(found["distribution"]))
    wanted = _normal(_DISTRIBUTION_OF.get(module, module))
    # An extra that contains another has all of its requirements, too.
    return min((name for name in extras if wanted in extras[name]), key=lambda name: len(extras[name]), default=None)


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def remedy(error: ModuleNotFoundError) -> str | None:
    """Return what is missing and the command that installs it; none: it is part of no extra."""
    # A part of a module that is there belongs to another version, which is no matter of extras.
    if error.name is None or (extra := extra_with(error.name)) is None:
        return None
    return f"{error.name} is not installed here: {install_command(extra)}"
