"""The errors between addresses and Spark.

ConfigError
├── OptionError            an option or a column of the source, the sink or a job cannot be right
├── HeaderError            no message can have a header as it is given
├── AccessError            there are no such credentials, or the node does not let us in
├── SparkMissingError      no Java or no PySpark; the message holds the install command
├── SpaceTakenError        another runner works with the same checkpoints
├── PlanError              a pipeline cannot be run as it is declared
│   ├── CheckpointMisfitError  it can, but not from where its checkpoint is
│   └── TableEmptyError    it can once a table that it reads has rows
├── CheckpointDamagedError a checkpoint's file is missing or unreadable
├── FunctionError          a pipeline's Python function raised, took too long or gave something else
├── TableSchemaError       rows do not fit the table they go to
├── DatabaseError          a database lacks a table or a right that is needed, or does not let its user in
├── TableDamagedError      a file of a table is missing, unreadable, or not as it was written
├── TableMismatchError     a table belongs to another query or checkpoint
├── SpoolInUseError        another query holds the folder
└── SpoolMismatchError     the folder, the checkpoint and the address do not belong together
UnavailableError
├── StreamUnavailableError the node stayed away for longer than we wait
├── DatabaseAwayError      a database cannot be reached, or ended what was done
├── AddressFullError       a stored address had no room for too long
├── NoConsumerError        nobody receives from a direct address
├── RegistryAwayError      the registry of schemas or devices cannot be read now
├── LakeAwayError          the storage of the lake does not answer, or not to us
├── UnansweredError        a receiver has a message, and does not answer
├── BackupBusyError        another backup is under way
├── TableBusyError         files of a table were rewritten while it was to be changed
└── ModelMissingError      there is no model yet, or none that can be read
ResourceError
├── DataLossError          offsets that were asked for are no longer stored
├── RowRefusedError        an address or a database does not take a row, and never will as it is
├── SpoolDamagedError      a file of the spool is not as it was written, or is missing
└── SpoolFullError         the disk takes no more
"""

from __future__ import annotations

from typing import Final

from enmasse.errors import ConfigError, ResourceError, UnavailableError


class OptionError(ConfigError):
    """An option is missing, unknown or malformed."""


class AccessError(ConfigError):
    """There are no such credentials here, or the node does not let their user in."""


class HeaderError(ConfigError):
    """A header that no message can have; the message names it."""


class SparkMissingError(ConfigError):
    """Spark cannot start here; the message holds the command that installs what is missing."""


class TableMismatchError(ConfigError):
    """A table belongs to another query, or was written under another checkpoint."""


class TableDamagedError(ConfigError):
    """A file of a table is missing, unreadable, or not as it was written; the message names it and what to do."""

    REMEDY: Final = (
        "bring the file back from a backup, or move the table away and restart the pipeline from a point you name"
    )


class TableSchemaError(ConfigError):
    """Rows do not fit the table they go to, or there can be no such table."""


class DatabaseError(ConfigError):
    """A database lacks a table, a column or a right that is needed, or does not let the user in."""


class DatabaseAwayError(UnavailableError):
    """A database cannot be reached, or ended a transaction that will be tried again."""


class RegistryAwayError(UnavailableError):
    """The copy of a registry is missing, or too old to know what a message names."""


class LakeAwayError(UnavailableError):
    """The storage of a space's tables does not answer, or does not let us in."""


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


class TableEmptyError(PlanError):
    """A table that a pipeline joins has no rows yet; the message names it and what to do."""


class CheckpointDamagedError(ConfigError):
    """A file of a checkpoint is missing or unreadable; the message names it and what to do."""

    REMEDY: Final = (
        "bring the file back, or have the pipeline begin anew with restart: {at: ..., from: earliest|latest|MOMENT}"
    )


class FunctionError(ConfigError):
    """A pipeline's Python function raised, took too long, or gave what was not declared."""


class ModelMissingError(UnavailableError):
    """There is no version of a model to score with; the message says what makes one."""


class RowRefusedError(ResourceError):
    """An address or a database does not take a row; the message names it, the row and the reason."""


class AddressFullError(UnavailableError):
    """A stored address took nothing for as long as the sink waits."""


class NoConsumerError(UnavailableError):
    """A direct address had no receiver for as long as the sink waits."""


class UnansweredError(UnavailableError):
    """A receiver of a direct address had a message for as long as the sink waits, and did not answer."""


class SpoolInUseError(ConfigError):
    """Another query holds the spool's folder."""


class SpoolMismatchError(ConfigError):
    """The spool's folder belongs to another checkpoint or address."""


class SpoolDamagedError(ResourceError):
    """A file of the spool is missing, or is not as it was written."""


class SpoolFullError(ResourceError):
    """The spool cannot be written, as on a full disk; nothing was accepted that is not in it."""


class BackupBusyError(UnavailableError):
    """Another backup is under way."""


class TableBusyError(UnavailableError):
    """Files of a table were rewritten while some of them were to be replaced; nothing was changed."""
