"""What can go wrong with a journal, by who must act.

EnmasseError
├── LocalError
│   ├── BatchError             a batch that cannot be written, or bytes that are no batch
│   └── JournalStateError      the link was used before its start or after its stop
├── UnavailableError
│   ├── JournalLockedError     another journal process still holds the directory
│   └── JournalUnavailableError  the journal process could not be started, or did not finish
└── ConfigError
    └── JournalFormatError     the directory holds something that this version cannot read
"""

from __future__ import annotations

from enmasse.errors import ConfigError, LocalError, UnavailableError

__all__ = [
    "BatchError",
    "JournalFormatError",
    "JournalLockedError",
    "JournalStateError",
    "JournalUnavailableError",
]


class BatchError(LocalError):
    """A batch breaks a limit, or bytes on the socket pair are no batch."""


class JournalStateError(LocalError):
    """The link to the journal was used before its start or after its stop."""


class JournalLockedError(UnavailableError):
    """Another journal process still holds the lock of the directory."""


class JournalUnavailableError(UnavailableError):
    """The journal process could not be started, or did not finish in time."""


class JournalFormatError(ConfigError):
    """The directory holds a journal of another format, or something damaged."""
