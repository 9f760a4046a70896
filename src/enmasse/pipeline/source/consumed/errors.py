"""What can go wrong with a spool.

ConfigError
├── SpoolInUseError        another query holds the folder
└── SpoolMismatchError     the folder, the checkpoint and the address do not belong together
ResourceError
├── SpoolDamagedError      a file of the spool is not as it was written, or is missing
└── SpoolFullError         the disk takes no more
"""

from __future__ import annotations

from enmasse.errors import ConfigError, ResourceError

__all__ = ["SpoolDamagedError", "SpoolFullError", "SpoolInUseError", "SpoolMismatchError"]


class SpoolInUseError(ConfigError):
    """Another query holds the spool's folder."""


class SpoolMismatchError(ConfigError):
    """The spool's folder belongs to another checkpoint or address."""


class SpoolDamagedError(ResourceError):
    """A file of the spool is missing, or is not as it was written."""


class SpoolFullError(ResourceError):
    """The spool cannot be written, as on a full disk; nothing was accepted that is not in it."""
