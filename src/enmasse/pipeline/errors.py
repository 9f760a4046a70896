"""What can go wrong between addresses and Spark.

ConfigError
├── OptionError            an option of the source or job cannot be right
├── AccessError            there are no such credentials, or the node does not let us in
├── SparkMissingError      no Java or no PySpark; the message holds the install command
├── SpaceTakenError        another runner works with the same checkpoints
├── PlanError              a pipeline cannot be run as it is declared
│   └── CheckpointMisfitError  it can, but not from where its checkpoint is
├── CheckpointDamagedError a checkpoint's file is missing or unreadable
├── FunctionError          a pipeline's Python function raised, took too long or gave something else
├── TableSchemaError       rows do not fit the table they go to
├── TableDamagedError      a file of a table's log is missing or unreadable
└── TableMismatchError     a table belongs to another query or checkpoint
UnavailableError
└── StreamUnavailableError the node stayed away for longer than we wait
ResourceError
└── DataLossError          offsets that were asked for are no longer stored
"""

from __future__ import annotations

from enmasse.errors import ConfigError, ResourceError, UnavailableError

__all__ = [
    "AccessError",
    "CheckpointDamagedError",
    "CheckpointMisfitError",
    "DataLossError",
    "FunctionError",
    "OptionError",
    "PlanError",
    "SpaceTakenError",
    "SparkMissingError",
    "StreamUnavailableError",
    "TableDamagedError",
    "TableMismatchError",
    "TableSchemaError",
]


class OptionError(ConfigError):
    """An option is missing, unknown or malformed."""


class AccessError(ConfigError):
    """There are no such credentials here, or the node does not let their user in."""


class SparkMissingError(ConfigError):
    """Spark cannot start here; the message holds the command that installs what is missing."""


class TableMismatchError(ConfigError):
    """A table belongs to another query, or was written under another checkpoint."""


class TableDamagedError(ConfigError):
    """A file of a table's log is missing or unreadable; the message names it and what to do."""


class TableSchemaError(ConfigError):
    """Rows do not fit the table they go to, or there can be no such table."""


class StreamUnavailableError(UnavailableError):
    """The stream's node did not answer for longer than the source waits."""


class DataLossError(ResourceError):
    """Rows that the query still has to read are not stored any more."""


class SpaceTakenError(ConfigError):
    """Another process runs the pipelines of the space; two would write rows twice."""


class PlanError(ConfigError):
    """A pipeline cannot be run as it is declared; the message names the place and what was expected."""


class CheckpointMisfitError(PlanError):
    """A pipeline was changed so that it cannot go on from its checkpoint; the message says what to do."""


class CheckpointDamagedError(ConfigError):
    """A file of a checkpoint is missing or unreadable; the message names it and what to do."""


class FunctionError(ConfigError):
    """A pipeline's Python function raised, took too long, or gave what was not declared."""
