"""Errors of a journal, by who must act.

EnmasseError
├── LocalError
│   ├── BatchError             a batch that cannot be written, or bytes that are no batch
│   └── JournalStateError      the link was used before its start or after its stop
├── UnavailableError
│   ├── JournalLockedError     another journal process still holds the directory
│   └── JournalUnavailableError  the journal process could not be started, or did not finish
└── ConfigError
    ├── JournalFormatError     the directory holds something that this version cannot read
    │   ├── JournalDamagedError  a journal with damage that a start notices
    │   └── JournalMissingError  there was a journal, and it is not there any more
    ├── PageError              a page of the data file is not what it should be
    └── ToolError              a tool cannot do what was asked, as things are
"""

from __future__ import annotations

from enmasse.errors import ConfigError, LocalError, UnavailableError


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


class JournalDamagedError(JournalFormatError):
    """The journal is damaged in a way that a start notices; nothing was changed."""


class JournalMissingError(JournalFormatError):
    """There was a journal, and it is not there any more; none was begun in its place."""


class PageError(ConfigError):
    """A page of a journal's data file is damaged.

    Attributes:
        page: its number.
        reason: the fault, without the page's name.
    """

    def __init__(self, page: int, reason: str) -> None:
        super().__init__(f"page {page} {reason}")
        self.page = page
        self.reason = reason


class ToolError(ConfigError):
    """A tool for journals cannot do what was asked, as things are."""
