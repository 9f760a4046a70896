"""Reads what Secrets hold for a pipeline: who comes to the node, and to databases. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from enmasse.model.kinds.pipelines.pipeline import Pipeline

SecretEntries = tuple[str, dict[str, str]]
"""The name of a Secret, and those of its entries that say who comes in, and which authority vouches for a server."""

_WAYS = (("username", "password"), ("token",), ("tls.crt", "tls.key"))
"""Entries of a Secret that belong together; a Secret has those of one way to come in."""
_IN_WORDS = "username and password, token, or tls.crt and tls.key"
_AUTHORITY: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The contents of a pipeline's Secrets.

    Attributes:
        entries: the entries of each that was read.
        reason: the reason of a condition.
        problem: the problem with one; empty: there is none.
    """

    entries: tuple[SecretEntries, ...] = ()
    reason: str = "Found"
    problem: str = ""


def judge_secrets(
    pipeline: Pipeline, secrets: Mapping[str, Mapping[str, Any] | None], *, needs_user: bool
) -> Secrets:
    """Read the Secrets that a pipeline names.

    Args:
        pipeline: the pipeline that names them.
        secrets: by name; None: there is none such.
        needs_user: whether the space lets in its users alone.
    """
    spec = pipeline.spec
    if spec.credentials_secret is None and needs_user:
        return Secrets(
            reason="CredentialsNeeded",
            problem=(
                f"space {pipeline.space} lets in its users alone: make a Secret with the entries {_IN_WORDS} of one "
                "of them, and name it in spec.credentialsSecret"
            ),
        )
    found: list[SecretEntries] = []
    for name in named_secrets(pipeline):
        secret = secrets.get(name)
        if secret is None:
            where = pipeline.metadata.namespace
            return Secrets(tuple(found), "SecretMissing", f"there is no Secret {name} in namespace {where}")
        read = read_credentials(name, secret)
        problem = read if isinstance(read, str) else _problem_of_databases(pipeline, name, read[1])
        if isinstance(read, str) or problem:
            return Secrets(tuple(found), "SecretIncomplete", problem)
        found.append(read)
    return Secrets(tuple(found), "Found" if found else "NotNeeded")


def named_secrets(pipeline: Pipeline) -> list[str]:
    """Return the Secrets that a pipeline names, each once."""
    spec = pipeline.spec
    names = (spec.credentials_secret, *(one.credentials_secret for one in spec.databases))
    return list(dict.fromkeys(name for name in names if name is not None))


def _problem_of_databases(pipeline: Pipeline, name: str, entries: Mapping[str, str]) -> str:
    """Return what a Secret lacks for the databases that name it; empty: nothing."""
    for database in pipeline.spec.databases:
        if database.credentials_secret != name:
            continue
        if "username" not in entries:
            return f"Secret {name}: a database is opened by the entries username and password"
        if database.tls != "off" and _AUTHORITY not in entries:
            return (
                f"Secret {name} has no entry {_AUTHORITY}, by which the certificate of its database is verified: add "
                "it, or, where the network is trusted, say tls: off"
            )
    return ""


def read_credentials(name: str, secret: Mapping[str, Any]) -> SecretEntries | str:
    """Return the name of a Secret and its entries; or what is wrong with it, without what it holds."""
    data = secret.get("data") or {}
    ways = [way for way in _WAYS if way[0] in data]
    if len(ways) != 1:
        has = f"has both {ways[0][0]} and {ways[1][0]}" if ways else "does not say who comes in"
        return f"Secret {name} {has}; expected the entries {_IN_WORDS}"
    entries = {}
    for entry in (*ways[0], *([_AUTHORITY] if _AUTHORITY in data else [])):
        try:
            entries[entry] = base64.b64decode(data[entry], validate=True).decode()
        except (KeyError, ValueError, binascii.Error):
            return f"Secret {name} has no entry {entry} of text; {' and '.join(ways[0])} are needed"
        if entry.startswith("tls.") and "-----BEGIN " not in entries[entry]:
            return f"Secret {name}: the entry {entry} is not PEM, which begins with -----BEGIN"
    return name, entries
