"""Documents as they are stored: which parts are whose, and what a change leaves of the former one."""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import Any

from enmasse.model.former import in_present_form
from enmasse.model.schema import without_nulls

__all__ = ["changed_form", "configured_form", "generated_name", "key_of", "with_managed_fields", "without_empty"]

Document = dict[str, Any]

_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")

_OF_PROGRAMS = ("finalizers", "ownerReferences")
_OURS = "enmasse.io/"

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes has them: no vowels, so no words
_SUFFIX_LENGTH = 5
_NAME_LIMIT = 253


def changed_form(former: Document, new: Document, *, is_blind: bool = False) -> Document:
    """Return an object with what its owner may change as it is in ``new``, and all else as it was.

    Args:
        former: as it is stored.
        new: as its owner wants it.
        is_blind: whether the owner has not said which version is to be changed; then finalizers and owners
            that are not mentioned stay, because it is not known that somebody wants them to go.
    """
    kept = {key: value for key, value in former["metadata"].items() if key not in _OF_USERS}
    given = {key: value for key, value in new["metadata"].items() if key in _OF_USERS}
    if is_blind:
        given = {key: former["metadata"][key] for key in _OF_PROGRAMS if key in former["metadata"]} | given
    if not kept.get("deletionTimestamp"):
        # Ours go when what they wait for is done; who must, can take them off a deletion that is stuck.
        wanted = given.get("finalizers") or []
        ours = [item for item in former["metadata"].get("finalizers") or () if item.startswith(_OURS)]
        given["finalizers"] = [*(item for item in ours if item not in wanted), *wanted]
    changed = new | {"metadata": without_empty(kept | given)}
    if "status" in former:
        changed["status"] = former["status"]
    if _declared(changed) != _declared(former):
        changed["metadata"]["generation"] = kept.get("generation", 0) + 1
    return changed


def with_managed_fields(document: Document, managed: list[Document] | None) -> Document:
    """Return an object with other managed fields; None: as they are."""
    if managed is None:
        return document
    return document | {"metadata": without_empty(document["metadata"] | {"managedFields": managed})}


def configured_form(config: Document) -> Document:
    """Return what is applied in the form in which it is stored, so that the stored fields get an owner."""
    config = in_present_form(without_nulls(config))
    text = config.get("stringData")
    if config.get("kind") != "Secret" or not isinstance(text, dict) or not isinstance(config.get("data", {}), dict):
        return config
    if not all(isinstance(value, str) for value in text.values()):
        return config
    encoded = {name: b64encode(value.encode()).decode() for name, value in text.items()}
    rest = {key: value for key, value in config.items() if key != "stringData"}
    return rest | {"data": config.get("data", {}) | encoded}


def without_empty(metadata: Document) -> Document:
    """Return metadata without lists and maps that hold nothing."""
    return {key: value for key, value in metadata.items() if value not in ([], {})}


def key_of(document: Document) -> tuple[str, str, str]:
    """Return kind, namespace and name."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def generated_name(prefix: str) -> str:
    """Return a name that begins with ``prefix`` and ends with letters by chance."""
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _NAME_LIMIT - _SUFFIX_LENGTH] + suffix


def _declared(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}
