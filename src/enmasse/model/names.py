"""Which names objects and addresses may have.

Object names follow Kubernetes, so that the same YAML works there. Names of
addresses do not: any text without white space is an address, and the object
that declares it gets a name derived from it.
"""

from __future__ import annotations

import hashlib
import re

__all__ = [
    "MAX_ADDRESS_CHARACTERS",
    "address_problem",
    "in_space_problem",
    "is_label",
    "is_subdomain",
    "object_name",
    "pattern_problem",
    "space_of",
]

MAX_ADDRESS_CHARACTERS = 1024
"""Far above any sensible name, and small enough for logs and tables."""

_MAX_OBJECT_NAME = 253  # [RFC 1123], as Kubernetes applies it
_MAX_LABEL = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")
_HASH_CHARACTERS = 10  # 40 bits: names in one space collide by chance with p = 1e-6 at 1,500 odd names


def is_label(name: str) -> bool:
    """Tell whether ``name`` is a DNS label: the form of namespaces and space names."""
    return len(name) <= _MAX_LABEL and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Tell whether ``name`` is DNS labels joined by dots: the form of all object names."""
    return len(name) <= _MAX_OBJECT_NAME and all(_LABEL.fullmatch(part) for part in name.split("."))


def space_of(name: str) -> str:
    """Return the space that an address object belongs to: its name up to the first dot."""
    return name.partition(".")[0]


def in_space_problem(name: str) -> str | None:
    """Return what is wrong with the name of an object that belongs to a space, or None."""
    if name.partition(".")[2]:
        return None
    return f"expected <space>.<anything>, where the part before the first dot names the space, got '{name}'"


def address_problem(address: str) -> str | None:
    """Return what is wrong with an address, or None."""
    if not address:
        return "expected a name, got an empty string"
    if len(address) > MAX_ADDRESS_CHARACTERS:
        return f"expected at most {MAX_ADDRESS_CHARACTERS} characters, got {len(address)}"
    if any(character.isspace() or not character.isprintable() for character in address):
        return f"expected a name without white space and control characters, got {address!r}"
    if address.startswith("$"):
        return f"names that start with '$' belong to the service itself, got {address!r}"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a pattern of addresses, or None.

    Words are divided by ``/``; ``*`` is one word and ``#`` any number of them, wherever they stand. ``*`` at the
    very end may also follow the beginning of a word. ``${username}`` is the only variable.
    """
    if problem := address_problem(pattern.replace("${username}", "x")):
        return problem.replace("expected a name", "expected a pattern")
    if "${" in pattern.replace("${username}", ""):
        return f"the only variable is ${{username}}, got '{pattern}'"
    *words, last = pattern.split("/")
    if any(word != "*" and "*" in word for word in words) or "*" in last[:-1]:
        return f"'*' stands for a whole word between '/', or for any rest at the very end, got '{pattern}'"
    return None


def object_name(space: str, address: str) -> str:
    """Return the name of the object that declares ``address``: readable where DNS allows it.

    The same address always gives the same name, so that declaring it twice is harmless.
    """
    if is_subdomain(f"{space}.{address}"):
        return f"{space}.{address}"
    cleaned = _NOT_IN_LABEL.sub("-", address.lower()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(address.encode()).hexdigest()[:_HASH_CHARACTERS]
    return ".".join(part for part in (space, cleaned, digest) if part)
