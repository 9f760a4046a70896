"""The parameters of a request's query, each checked when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from enmasse.api.status import RequestError
from enmasse.control.managing import Manager
from enmasse.control.writes import LOCAL_OPERATOR, Requester

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Options"]

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off", ""})
_POLICIES = ("Background", "Foreground", "Orphan")
_MANAGER_LIMIT = 128
_DIGITS_LIMIT = 18  # of a number: fits in 64 bits


class Options:
    """What a request says beside its path and body.

    Args:
        request: the request.
        api_version: the group and version that its path names.
    """

    def __init__(self, request: Request, api_version: str) -> None:
        self._query = request.query_params
        self._agent = request.headers.get("user-agent", "")
        self._api_version = api_version
        self.requester: Requester = getattr(request.state, "requester", LOCAL_OPERATOR)
        """Who asks."""

    def text(self, name: str) -> str:
        """Return a parameter as it is; empty when it is missing."""
        return self._query.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false; false when it is missing."""
        values = [value.lower() for value in self._query.getlist(name)]
        for value in values:
            if value not in _TRUE | _FALSE:
                raise RequestError(400, f"{name}: expected true or false, got '{value[:40]}'")
        return any(value in _TRUE for value in values)  # as those understand it who look at requests before us

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number, not negative; 0 when it is missing."""
        value = self.text(name)
        if not value:
            return 0
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_LIMIT):
            raise RequestError(400, f"{name}: expected a whole number, 0 or more, got '{value[:40]}'")
        return int(value)

    def seconds(self, name: str) -> float:
        """Return a parameter that is a number of seconds; 0 when it is missing."""
        value = self.text(name)
        try:
            found = float(value or 0)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise RequestError(400, f"{name}: expected seconds, 0 or more, got '{value[:40]}'")
        return found

    @property
    def is_dry(self) -> bool:
        """Whether nothing is to be written."""
        values = [value for value in self._query.getlist("dryRun") if value]
        if values and values != ["All"]:
            raise RequestError(400, f"dryRun: expected All, got '{', '.join(values)[:40]}'")
        return bool(values)

    def manager(self, operation: Literal["Apply", "Update"] = "Update", subresource: str = "") -> Manager:
        """Return the program that writes."""
        name = self.text("fieldManager")
        if len(name) > _MANAGER_LIMIT or not name.isprintable():
            raise RequestError(422, f"fieldManager: expected at most {_MANAGER_LIMIT} printable characters")
        if operation == "Apply" and not name:
            raise RequestError(422, "fieldManager: required for an apply patch: the name of whoever applies")
        if operation == "Update" and self.text("force"):
            raise RequestError(422, "force: only an apply patch can be forced")
        agent = self._agent.partition("/")[0][:_MANAGER_LIMIT]
        name = name or (agent if agent.isprintable() else "") or "unknown"
        return Manager(name, self._api_version, operation, subresource)

    def deletes_dependents(self, body_policy: object = None) -> bool:
        """Return whether what an object owns goes with it."""
        policy = body_policy or self.text("propagationPolicy")
        if policy and policy not in _POLICIES:
            raise RequestError(422, f"propagationPolicy: expected {', '.join(_POLICIES)}, got '{str(policy)[:40]}'")
        self.number("gracePeriodSeconds")  # deletion waits for finalizers alone, but nonsense is refused
        return policy != "Orphan" and not self.flag("orphanDependents")
