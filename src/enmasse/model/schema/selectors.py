"""Label and field selectors, as the Kubernetes API has them.

Labels: ``a=b``, ``a==b``, ``a!=b``, ``a``, ``!a``, ``a in (b, c)``,
``a notin (b, c)``, joined by commas. Fields: only ``=``, ``==`` and ``!=``, on
the name, the namespace and the selectable fields of some kinds: an address and its
type, the user name, the phase of a namespace, the object of an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SELECTABLE = (
    "metadata.name",
    "metadata.namespace",
    "spec.address",
    "spec.type",
    "spec.username",
    "status.phase",
    "type",
    "reason",
    "involvedObject.apiVersion",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
)
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)")
_EXISTENCE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s=!,()]+)")
_SPLITTING = re.compile("[,()]")


class SelectorError(ConfigError):
    """A selector cannot be understood."""


@dataclass(frozen=True, slots=True)
class _Term:
    key: str
    values: frozenset[str] | None
    """None: any value, so the term asks for existence."""
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """A choice among objects of one kind."""

    labels: tuple[_Term, ...] = ()
    fields: tuple[_Term, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if every object is chosen."""
        return not self.labels and not self.fields

    def value_of(self, field: str) -> str | None:
        """Return the only value that a field of chosen objects has, None where there may be several."""
        for term in self.fields:
            if term.key == field and not term.negated and term.values is not None:
                return next(iter(term.values))
        return None

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Return True if an object, in its JSON form, is chosen."""
        if self.is_everything:
            return True
        labels = document["metadata"].get("labels") or {}
        if not all(term.matches(labels) for term in self.labels):
            return False
        return all(term.matches({term.key: _field(document, term.key)}) for term in self.fields)


EVERYTHING = Selector()


def parse_selector(labels: str = "", fields: str = "") -> Selector:
    """Return the selector for ``labelSelector`` and ``fieldSelector`` of a request.

    Raises:
        SelectorError: naming the part that cannot be understood.
    """
    return Selector(
        tuple(_label_term(part.strip()) for part in _parts(labels)),
        tuple(_field_term(part.strip()) for part in _parts(fields)),
    )


def _parts(text: str) -> list[str]:
    """Divide at commas that are in no parentheses."""
    parts, start, is_inside = [], 0, False
    for sign in _SPLITTING.finditer(text):
        if sign[0] != ",":
            is_inside = sign[0] == "("
        elif not is_inside:
            parts.append(text[start : sign.start()])
            start = sign.end()
    return [part for part in (*parts, text[start:]) if part.strip()]


def _label_term(part: str) -> _Term:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _Term(found["key"], values, negated=found["operator"] == "notin")
    if found := _EQUALITY.fullmatch(part):
        return _Term(found["key"], frozenset({found["value"]}), negated=found["operator"] == "!=")
    if found := _EXISTENCE.fullmatch(part):
        return _Term(found["key"], None, negated=bool(found["absent"]))
    raise SelectorError(f"label selector: expected key=value, key!=value, key, !key or key in (a, b), got '{part}'")


def _field_term(part: str) -> _Term:
    found = _EQUALITY.fullmatch(part)
    if found is None or found["key"] not in _SELECTABLE:
        raise SelectorError(f"field selector: expected {', '.join(_SELECTABLE)} with = or !=, got '{part}'")
    return _Term(found["key"], frozenset({found["value"]}), negated=found["operator"] == "!=")


def _field(document: Mapping[str, Any], path: str) -> str:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
