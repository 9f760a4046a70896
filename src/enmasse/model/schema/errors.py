"""Errors of the resource model; all of them are for the author of the resource.

ConfigError
├── InvalidResourceError   an object breaks its kind's rules; lists every problem with its path
└── ManifestError          a file cannot be read as resources; names file and document
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an object.

    Attributes:
        path: the place of it, as in ``spec.forwarders[0].name``; empty for the whole object.
        message: the problem: what was expected and what was found.
        unknown: keys and indices that lead to a field that the kind does not have; empty for any other problem.
    """

    path: str
    message: str
    unknown: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidResourceError(ConfigError):
    """An object breaks the rules of its kind.

    Attributes:
        subject: the kind and name of the object, as far as they are known.
        problems: everything that is wrong, never empty.
    """

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{subject} is not valid: " + "; ".join(str(problem) for problem in problems))
        self.subject = subject
        self.problems = tuple(problems)


MAX_TOLD = 50
"""Problems of many documents that an error tells, each in a line."""


class ManifestError(ConfigError):
    """A file of resources cannot be used.

    Attributes:
        source: the file's name, or ``standard input``.
        document: the number of the document in the file, from 1; None for the file as a whole.
        problems: the problems in it, never empty.
    """

    def __init__(self, source: str, document: int | None, problems: Sequence[Problem]) -> None:
        where = source if document is None else f"{source}: document {document}"
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))
        self.source = source
        self.document = document
        self.problems = tuple(problems)

    @classmethod
    def joined(cls, errors: Sequence[ManifestError]) -> ManifestError:
        """Return one error that says all that some say, at least one."""
        first = errors[0]
        if len(errors) == 1:
            return first
        error = cls(first.source, None, [problem for each in errors for problem in each.problems])
        lines = "\n".join(map(str, errors)).split("\n")
        more = [f"and {len(lines) - MAX_TOLD:,} more"] if len(lines) > MAX_TOLD else []
        error.args = ("\n".join(lines[:MAX_TOLD] + more),)
        return error
