"""What happens to fields that nobody knows, and to those that are said twice: ``fieldValidation``.

Rules:
1. ``Strict`` refuses them; ``Warn`` drops them and says so in a Warning header; ``Ignore`` drops them.
   Of a field that is said twice, the last one counts.
2. Without a word from the client it is ``Warn``, as in Kubernetes: its clients count on it.
   kubectl asks for ``Strict`` by itself, or checks before it sends; so does our own command line.
3. All else that is wrong with an object is refused in any case.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from enmasse.api.bodies import read_body
from enmasse.api.status import RequestError
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.kinds import decode
from enmasse.model.schema import join_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from enmasse.model.resource import Resource

__all__ = ["Intake"]

_MAX_WARNINGS = 20  # of about 100 characters each: a client's limit of 8 KiB of headers is far

Document = dict[str, Any]


class Intake:
    """The fields of one request.

    Args:
        request: whose parameter ``fieldValidation`` counts.

    Attributes:
        warnings: sentences for the client, after the object was decoded.

    Raises:
        RequestError: when the parameter is none of the three.
    """

    def __init__(self, request: Request) -> None:
        policy = request.query_params.get("fieldValidation", "") or "Warn"
        if policy not in ("Strict", "Warn", "Ignore"):
            raise RequestError(400, f"fieldValidation: expected Ignore, Warn or Strict, got '{policy[:40]}'")
        self._request = request
        self._policy = policy
        self._found: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """What the client is to be told."""
        if self._policy != "Warn":
            return []
        more = len(self._found) - _MAX_WARNINGS
        return self._found[:_MAX_WARNINGS] + ([f"{more} more fields were dropped"] if more > 0 else [])

    async def read_body(self, accepted: tuple[str, ...]) -> Document:
        """Return the body of the request as a map.

        Raises:
            RequestError: when the body is missing, of another type, or no map.
            ManifestError: when it cannot be parsed, or says a field twice against the rules.
        """
        repeated: list[str] | None = None if self._policy == "Strict" else []
        body = await read_body(self._request, accepted, repeated=repeated)
        self._found += [f'duplicate field "{name}"' for name in repeated or ()]
        return body

    def decode(self, document: Document) -> Resource:
        """Turn a document into a valid object.

        Raises:
            InvalidResourceError: with every problem that was found.
        """
        if self._policy == "Strict":
            return decode(document)
        try:
            return decode(document)
        except InvalidResourceError as error:
            unknown = [problem for problem in error.problems if problem.unknown]
            known = _without(document, unknown)
            if not unknown or known == document:
                raise
        try:
            resource = decode(known)
        except InvalidResourceError as error:  # whoever must mend it anyhow is told all of it
            raise InvalidResourceError(error.subject, [*error.problems, *unknown]) from None
        for problem in unknown:
            told = f'unknown field "{join_path(problem.unknown)}"{_hint(problem)}'
            if told not in self._found:
                self._found.append(told)
        return resource


def _hint(problem: Problem) -> str:
    _, separator, hint = problem.message.partition("; did you mean ")
    return f", did you mean {hint.rstrip('?')}?" if separator else ""


def _without(document: Document, problems: Sequence[Problem]) -> Document:
    known = deepcopy(document)
    for problem in problems:
        *parents, last = problem.unknown
        owner: Any = known
        for part in parents:
            is_there = isinstance(owner, dict) if isinstance(part, str) else isinstance(owner, list)
            owner = owner[part] if is_there and (isinstance(part, int) or part in owner) else None
        if isinstance(owner, dict):
            owner.pop(last, None)
    return known
