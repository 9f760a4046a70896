"""Patches: JSON patches [RFC 6902], merge patches [RFC 7386], and Kubernetes' strategic merges.

Rules:
1. A patch does not change the document that it is applied to; it makes a new one.
2. The result grows only by the contents of the patch: copies of copies are bounded.
3. Strategic merges are for the kinds of Kubernetes' core alone; for others they are refused, and kubectl then sends a
   merge patch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsonpatch import InvalidJsonPatch, JsonPatch, JsonPatchConflict, JsonPatchException, JsonPatchTestFailed
from jsonpointer import JsonPointer, JsonPointerException

from enmasse.api.kube.status import RequestError
from enmasse.control.store.managed_fields import SET
from enmasse.model.schema.manifest import MAX_DEPTH

if TYPE_CHECKING:
    from enmasse.control.store.managed_fields import ListType

Document = dict[str, Any]

_MAX_OPERATIONS = 10_000  # as in Kubernetes
_MAX_COPIED = 3 * 1024 * 1024  # characters of JSON, as in Kubernetes


def json_patch(document: Document, patch: Any) -> Document:
    """Return a document with all operations of a JSON patch applied.

    Raises:
        RequestError: when it is not a patch (400), too long (413), or does not apply (422).
    """
    if not isinstance(patch, list):
        raise RequestError(400, "a JSON patch is a list of operations")
    if len(patch) > _MAX_OPERATIONS:
        raise RequestError(413, f"a JSON patch has at most {_MAX_OPERATIONS} operations, this one {len(patch)}")
    result: Any = json.loads(json.dumps(document))
    copied = 0
    for number, operation in enumerate(patch):
        try:
            if isinstance(operation, dict) and operation.get("op") == "copy":
                copied += len(json.dumps(JsonPointer(operation.get("from", "")).resolve(result)))
                if copied > _MAX_COPIED:
                    raise RequestError(413, f"a JSON patch copies at most {_MAX_COPIED} characters")
            result = JsonPatch([operation]).apply(result, in_place=True)
        except JsonPatchTestFailed:
            raise RequestError(422, f"operation {number}: test failed at {operation.get('path')}") from None
        except (JsonPatchConflict, JsonPointerException) as error:
            raise RequestError(422, f"operation {number}: {error}") from None
        except (InvalidJsonPatch, JsonPatchException, TypeError, ValueError, AttributeError, KeyError) as error:
            raise RequestError(400, f"operation {number}: not an operation of RFC 6902: {error}") from None
    if not isinstance(result, dict):
        raise RequestError(422, "the patch leaves no object")
    _expect_shallow(result)
    return result


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` changed by a merge patch [RFC 7386 2]; neither is changed in place."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any, list_type: ListType, names: tuple[str, ...] = ()) -> Any:
    """Return ``target`` changed by a strategic merge patch: lists with keys are merged entry by entry."""
    if isinstance(patch, list):
        return _merge_lists(target if isinstance(target, list) else [], patch, list_type, names)
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) and directive != "replace" else {}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or () if item not in (value or ())]
        elif key.startswith("$"):
            continue  # directives above, and the order of lists, which no kind here depends on
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key), value, list_type, (*names, key))
    return merged


def _merge_lists(target: list[Any], patch: list[Any], list_type: ListType, names: tuple[str, ...]) -> list[Any]:
    keys = list_type(names)
    if keys is None or any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    if keys == SET:
        return target + [item for item in patch if item not in target]
    merged = list(target)
    for item in patch:
        if not isinstance(item, dict):
            raise RequestError(400, f"{'.'.join(names)}: expected a list of maps")
        found = next((index for index, old in enumerate(merged) if _is_same(old, item, keys)), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if not _is_same(old, item, keys)]
        elif found is None:
            merged.append(strategic_merge({}, item, list_type, names))
        else:
            merged[found] = strategic_merge(merged[found], item, list_type, names)
    return merged


def _is_same(old: Any, item: Document, keys: tuple[str, ...]) -> bool:
    return isinstance(old, dict) and all(old.get(key) == item.get(key) for key in keys)


def _expect_shallow(document: Document) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH + 1):
        inner = [item for item in level if isinstance(item, dict | list)]
        if not inner:
            return
        level = [value for item in inner for value in (item.values() if isinstance(item, dict) else item)]
    raise RequestError(422, f"the patch nests maps and lists more than {MAX_DEPTH} deep")
