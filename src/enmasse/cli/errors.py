"""Errors of the command line, and the exit codes that scripts can rely on.

EnmasseError
├── CliError               carries its exit code
│   ├── UsageError         2: the arguments do not fit together
│   ├── NotFoundError      3: what was named does not exist
│   └── UnreachableError   4: nothing answers, or not in time
└── ApiError               what the API answered; 404 counts as not found, 503 as not reachable
"""

from __future__ import annotations

from enmasse.errors import EnmasseError, RemoteError, UnavailableError

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
INTERRUPTED = 130

_AMQP_NOT_FOUND = "amqp:not-found"


class CliError(EnmasseError):
    """Raised when a command cannot do what was asked.

    Args:
        text: the problem, and what to do.
        code: the exit code, if another than the class's.
    """

    code: int = FAILED

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class UsageError(CliError):
    """Raised when arguments do not fit together."""

    code = USAGE


class NotFoundError(CliError):
    """Raised when a named object or file does not exist."""

    code = NOT_FOUND


class UnreachableError(CliError):
    """Raised when nothing answers, or not in time."""

    code = UNREACHABLE


class ApiError(EnmasseError):
    """Raised when the API answers with an error.

    Attributes:
        status: the HTTP status code.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def exit_code(error: EnmasseError) -> int:
    """Return the exit code that an error ends the program with."""
    match error:
        case CliError():
            return error.code
        case ApiError(status=404):
            return NOT_FOUND
        case ApiError(status=503):
            return UNREACHABLE
        case RemoteError(condition=condition) if condition == _AMQP_NOT_FOUND:
            return NOT_FOUND
        case UnavailableError():
            return UNREACHABLE
        case _:
            return FAILED
