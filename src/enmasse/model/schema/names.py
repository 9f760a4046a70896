"""The names that objects, addresses and hosts may have.

Object names follow Kubernetes, so that the same YAML works there. Names of
addresses do not: any text without white space is an address, and the object
that declares it gets a name derived from it.

Rules for the host names that a space may have beside its own:
1. A host is a name with a domain. ``localhost``, IP addresses in every spelling, single words, wildcards, names with
   a dot at their end and this machine's own mean machines, or everything: never one space.
2. A space may have a host if its domain is granted to the namespace: by operators, in an annotation of the Namespace.
   A domain covers itself and all names below it; ``*`` covers everything.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PLAN_NAMESPACE = "enmasse-infra"
"""The namespace of the operator's objects; tenants' namespaces hold spaces and addresses."""

MAX_ADDRESS_CHARACTERS = 1024
"""Far above any sensible name, and small enough for logs and tables."""

_MAX_OBJECT_NAME = 253  # [RFC 1123], as Kubernetes applies it
_MAX_LABEL = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")
_HASH_CHARACTERS = 10  # 40 bits: names in one space collide by chance with p = 1e-6 at 1,500 odd names


def is_label(name: str) -> bool:
    """Return True if ``name`` is a DNS label: the form of namespaces and space names."""
    return len(name) <= _MAX_LABEL and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return True if ``name`` is DNS labels joined by dots: the form of all object names."""
    return len(name) <= _MAX_OBJECT_NAME and all(_LABEL.fullmatch(part) for part in name.split("."))


def space_of(name: str) -> str:
    """Return the space that an address object belongs to: its name up to the first dot."""
    return name.partition(".")[0]


def in_space_problem(name: str) -> str | None:
    """Return what is wrong with the name of an object that belongs to a space, or None."""
    if name.partition(".")[2]:
        return None
    return f"expected <space>.<anything>, where the part before the first dot names the space, got '{name}'"


ROOT_TOPIC = "#"
"""The name of a topic that owns all names which no other address has."""


OWN_WORDS: Final = frozenset(("$SYS", "$share", "$dynamic", "$management", "$addresses", "$lwt", "$trace"))
"""The first words of names that are the service's own in every space."""


def is_own(name: str) -> bool:
    """Return True if a name is one of the service itself, which no space has as its own."""
    return name.startswith("$") and name.partition("/")[0] in OWN_WORDS


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


GLOBAL_DLQ = "!!GLOBAL_DLQ"
"""The queue for everything that fails in a space of EnMasse 1.0, where its infrastructure has one."""


def new_address_problem(address: str, kind: str) -> str | None:
    """Return why no new address of a type may have a name, which means something else to clients, or None.

    Addresses of former versions keep theirs.
    """
    if address == ROOT_TOPIC and kind == "topic":
        return None
    if found := next((character for character in "#+*" if character in address), None):
        return (
            f"'{found}' stands for other names in what receivers and grants ask for, so not every client could reach "
            f"'{address}' by its name: use another character; a topic has all names below it anyway"
        )
    if address == GLOBAL_DLQ:
        return (
            f"'{GLOBAL_DLQ}' is where a broker of EnMasse 1.0 puts what fails in any address: here each says where "
            "its dead letters go, by spec.deadletter: an address of type deadletter, which has another name"
        )
    if "::" in address:
        return f"'::' stands between a topic and a subscription, got '{address}': use another name"
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


def by_claim(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return declarations of one address, first the one in effect: that with a plan status, or else the oldest."""
    return sorted(
        documents,
        key=lambda item: (
            "planStatus" not in (item.get("status") or {}),
            item["metadata"].get("creationTimestamp", ""),
            item["metadata"]["name"],
        ),
    )


def object_name(space: str, address: str) -> str:
    """Return the name of the object that declares ``address``: readable where DNS allows it.

    The same address always gives the same name, so that declaring it twice is harmless.
    """
    if is_subdomain(f"{space}.{address}"):
        return f"{space}.{address}"
    cleaned = _NOT_IN_LABEL.sub("-", address.lower()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(address.encode()).hexdigest()[:_HASH_CHARACTERS]
    return ".".join(part for part in (space, cleaned, digest) if part)


ROUTE_DOMAINS: Final = "enmasse.io/route-domains"
"""The annotation of a Namespace that lists domains, with commas between them."""

EVERY_DOMAIN: Final = "*"

_LOCAL = frozenset({"localhost", "localdomain", "localhost4", "localhost6", "localdomain4", "localdomain6"})
# Parsers of IP addresses accept any name whose last word is a number, such as 127.1 and 0x7f.0.0.0x1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def host_problem(host: str, machine: Collection[str] = ()) -> str | None:
    """Return what is wrong with a host name for a space, or None.

    Args:
        host: the host as it is asked for.
        machine: this machine's own names, in lower case.
    """
    name = host.lower()
    words = name.split(".")
    if name.endswith("."):
        wrong = "it ends with a dot"
    elif "*" in name:
        wrong = "it is a wildcard"
    elif ":" in name or _NUMBER.fullmatch(words[-1]):
        wrong = "it is an IP address, or has a port"
    elif words[-1] in _LOCAL:
        wrong = "it is every machine's name for itself"
    elif len(words) == 1:
        wrong = "it has no domain"
    elif not is_subdomain(name) or max(map(len, words)) > 63:
        wrong = "it is no name of DNS"
    elif name in machine:
        wrong = "it is the name of the machine"
    else:
        return None
    return f"expected a host name of the space alone, such as mq.example.org, got {host!r:.100}: {wrong}"


def granted_domains(annotations: Mapping[str, str], *, is_everything: bool = False) -> tuple[str, ...]:
    """Return the domains that a namespace's annotations grant to its spaces.

    Args:
        annotations: the annotations of the Namespace.
        is_everything: a namespace without the annotation has every domain.
    """
    text = annotations.get(ROUTE_DOMAINS)
    if text is None:
        return (EVERY_DOMAIN,) if is_everything else ()
    return tuple(filter(None, (word.strip().lower() for word in text.split(","))))


def domain_problem(text: str) -> str | None:
    """Return what is wrong with a list of domains as operators write it, or None."""
    for domain in granted_domains({ROUTE_DOMAINS: text}):
        if domain != EVERY_DOMAIN and not is_subdomain(domain):
            expected = "domains with commas between them, such as 'example.org, shop.example', or '*'"
            return f"expected {expected}, got {domain!r:.100}"
    return None


def is_granted(host: str, domains: Iterable[str]) -> bool:
    """Return True if a host, in lower case, is one of these domains or below one."""
    return any(domain in (EVERY_DOMAIN, host) or host.endswith(f".{domain}") for domain in domains)
