"""Manifests: resources read from YAML and JSON that is not trusted, within bounds, all of a file or none.

Rules:
1. Only plain data: strings, numbers, booleans, nulls, lists and maps.
2. Size, depth and number of values are bounded, aliases counted as often as
   they would be written out, so a small file cannot become a large one.
3. A key that occurs twice in a map is an error, because one of the two would be lost, unless the caller
   collects such keys.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from enmasse.model.schema.errors import InvalidResourceError, ManifestError, Problem
from enmasse.model.schema.kinds import KINDS, kind_of
from enmasse.model.schema.objects import decode
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from enmasse.model.schema.resource import Resource

MAX_BYTES = 8 * 1024 * 1024
"""The largest file: 10,000 addresses take about 2 MB."""

MAX_DEPTH = 32
"""The deepest nesting of maps and lists; the deepest of our kinds has 8."""

# The parser reads a line ahead of the events that are counted, and has a bound of its own since libyaml 0.2.6.
_PARSERS_BOUND = "exceeded maximum nesting depth"

MAX_VALUES = 500_000
"""The most values in one document, keys included; a list of 10,000 addresses has 250,000."""


_JSON_BEGINS = re.compile(r'\s*[{\[]\s*"')


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses repeated keys and leaves dates as strings, as JSON does."""

    repeated: ClassVar[list[str] | None] = None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "expected a string as key", key_node.start_mark)
            if key_node.value in seen and self.repeated is not None:
                self.repeated.append(key_node.value)
            elif key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key_node.value}' occurs twice in one map", key_node.start_mark
                )
            seen.add(key_node.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, source: str, repeated: list[str] | None = None) -> list[Any]:
    """Return the documents of a YAML stream or of a JSON text.

    Args:
        text: the whole file.
        source: its name, for messages.
        repeated: collects the keys that occur twice in a map, of which the last counts then; None: that is an error.

    Raises:
        ManifestError: when it is neither, or beyond the bounds.
    """
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise _refusal(source, None, f"expected at most {MAX_BYTES >> 20} MiB; split the file")
    if text.lstrip().startswith(("{", "[")):
        try:
            return [_read_json(text, source, repeated)]
        except json.JSONDecodeError:
            pass  # YAML's flow style looks alike
    return _read_yaml(text, source, repeated)


def _read_json(text: str, source: str, repeated: list[str] | None) -> Any:
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source, repeated))
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise _too_deep(source, 1) from None
    except ValueError as error:
        raise _refusal(source, 1, f"not valid JSON: {error}") from None
    _check_bounds(document, source)
    return document


def _unique(pairs: list[tuple[str, Any]], source: str, repeated: list[str] | None) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        counted = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counted.items() if count > 1)
        if repeated is not None:
            repeated += [key for key, count in counted.items() if count > 1]
            return mapping
        raise _refusal(source, 1, f"the key '{twice}' occurs twice in one map")
    return mapping


def _check_bounds(document: Any, source: str) -> None:
    values = 0
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        values += len(level)
        if values > MAX_VALUES:
            raise _too_many(source, 1)
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        level = [value for item in containers for value in (item.values() if isinstance(item, dict) else item)]
    raise _too_deep(source, 1)


def _json_problem(text: str, source: str) -> str | None:
    """Return what is wrong with a text that is meant to be JSON; None: it is not, or nothing is."""
    if source.endswith(".json") or _JSON_BEGINS.match(text):
        try:
            json.loads(text)
        except ValueError as error:
            place = f"line {error.lineno}, column {error.colno}: " if isinstance(error, json.JSONDecodeError) else ""
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            return f"not valid JSON: {place}{reason[0].lower()}{reason[1:]}"
    return None


def _read_yaml(text: str, source: str, repeated: list[str] | None) -> list[Any]:
    loader = type("_NotingLoader", (_Loader,), {"repeated": repeated})
    try:
        _scan(text, source)
        return [document for document in yaml.load_all(text, Loader=loader)]  # noqa: C416
    except yaml.MarkedYAMLError as error:
        if error.problem == _PARSERS_BOUND:
            raise _too_deep(source, None) from None
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = error.problem or error.context
        line = "".join(text.split("\n")[mark.line : mark.line + 1]) if mark else ""
        if mark and line[mark.column :].startswith("\t"):
            reason = "a tab where YAML wants spaces; indent with spaces"
        raise _refusal(source, None, _json_problem(text, source) or f"not valid YAML: {where}{reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _refusal(source, None, f"not valid YAML: {error}") from None


def _scan(text: str, source: str) -> None:
    """Walk through the events of all documents and count, before anything is built."""
    document, values = 0, 0
    anchored: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # anchor and the count at which it began

    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.DocumentStartEvent():
                document, values = document + 1, 0
                anchored.clear()
            case yaml.AliasEvent(anchor=anchor):
                if any(anchor == name for name, _ in open_nodes):
                    raise _refusal(source, document, f"the alias *{anchor} contains itself")
                values += anchored.get(anchor or "", 1)
            case yaml.ScalarEvent(anchor=anchor):
                values += 1
                if anchor:
                    anchored[anchor] = 1
            case yaml.CollectionStartEvent(anchor=anchor):
                open_nodes.append((anchor, values))
                values += 1
            case yaml.CollectionEndEvent():
                anchor, began = open_nodes.pop()
                if anchor:
                    anchored[anchor] = values - began
        if values > MAX_VALUES:
            raise _too_many(source, document)
        if len(open_nodes) > MAX_DEPTH:
            raise _too_deep(source, document)


def _too_many(source: str, document: int) -> ManifestError:
    return _refusal(source, document, f"more than {MAX_VALUES:,} values (aliases written out); split the file")


def _too_deep(source: str, document: int | None) -> ManifestError:
    return _refusal(source, document, f"maps and lists are nested more than {MAX_DEPTH} deep")


def _refusal(source: str, document: int | None, message: str) -> ManifestError:
    return ManifestError(source, document, [Problem("", message)])


def load_manifest(text: str, source: str) -> list[Resource]:
    """Return the resources of a YAML or JSON text; a ``List`` stands for its items.

    Items of a list of one kind, such as an ``AddressList``, need not say their kind and version.

    Args:
        text: the whole file; several YAML documents are divided by ``---``.
        source: the file's name, for messages.

    Raises:
        ManifestError: naming file, document and path of everything that is wrong.
    """
    resources: list[Resource] = []
    wrong: list[ManifestError] = []
    for number, document in enumerate(read_documents(text, source), start=1):
        if document is None:
            continue  # nothing but comments between two `---`
        try:
            items = _items(document, source, number)
        except ManifestError as error:
            wrong.append(error)
            continue
        for path, item in items:
            try:
                resources.append(decode(item))
            except InvalidResourceError as error:
                wrong.append(ManifestError(source, number, _below(path, error.problems)))
    if wrong:
        raise ManifestError.joined(wrong)
    return resources


def in_order(resources: Iterable[Resource]) -> list[Resource]:
    """Return resources in the order to apply them: spaces before addresses."""
    rank = {kind.name: index for index, kind in enumerate(KINDS)}
    return sorted(resources, key=lambda resource: rank[kind_of(resource).name])


def _items(document: Any, source: str, number: int) -> list[tuple[str, Any]]:
    """Return the objects of a document with their paths in it."""
    if not isinstance(document, dict) or not _is_list(document.get("kind")):
        return [("", document)]
    items = document.get("items")
    if not isinstance(items, list):
        problem = Problem("items", f"expected a list, got {describe_value(items)}")
        raise ManifestError(source, number, [problem])
    kind = document["kind"].removesuffix("List")
    base = {"kind": kind, "apiVersion": document.get("apiVersion")} if kind else {}
    return [(f"items[{index}]", base | item if isinstance(item, dict) else item) for index, item in enumerate(items)]


def _is_list(kind: Any) -> bool:
    return kind == "List" or kind in {f"{known.name}List" for known in KINDS}


def _below(path: str, problems: Iterable[Problem]) -> list[Problem]:
    if not path:
        return list(problems)
    return [Problem(f"{path}.{item.path}" if item.path else path, item.message) for item in problems]
