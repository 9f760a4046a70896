"""What can go wrong between addresses and Spark.

ConfigError
├── OptionError            an option of the source or job cannot be right
├── SparkMissingError      no Java or no PySpark; the message holds the install command
└── TableMismatchError     a table belongs to another checkpoint
UnavailableError
└── StreamUnavailableError the node stayed away for longer than we wait
ResourceError
└── DataLossError          offsets that were asked for are no longer stored
"""

from __future__ import annotations

from enmasse.errors import ConfigError, ResourceError, UnavailableError

__all__ = [
    "DataLossError",
    "OptionError",
    "SparkMissingError",
    "StreamUnavailableError",
    "TableMismatchError",
]


class OptionError(ConfigError):
    """An option is missing, unknown or malformed."""


class SparkMissingError(ConfigError):
    """Spark cannot start here; the message holds the command that installs what is missing."""


class TableMismatchError(ConfigError):
    """A table was written under another checkpoint, so its batch numbers mean other rows."""


class StreamUnavailableError(UnavailableError):
    """The stream's node did not answer for longer than the source waits."""


class DataLossError(ResourceError):
    """Rows that the query still has to read are not stored any more."""
