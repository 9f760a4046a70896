"""EnMasse: messaging as a service.

Rooms and the direction in which they may lean on each other are described in
ARCHITECTURE.md and enforced by the import contracts in pyproject.toml.
"""

from enmasse.version import __version__

__all__ = ["__version__"]
