"""Decides whether the storage of a space's tables may be used, and what its processes must know of it. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from enmasse.model.kinds.lakes import S3Lake, endpoint_of
from enmasse.pipeline.host.reach import ANNOTATION, Reach, is_never, parse_hosts, place_of

_ENTRIES: Final = ("accessKeyId", "secretAccessKey")
_MORE: Final = "sessionToken"


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """The storage of a space's tables.

    Attributes:
        settings: the settings that a process of the space must find; empty: it cannot be used.
        reason: the reason of a condition.
        problem: why it cannot be used.
    """

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    reason: str = "Found"
    problem: str = ""


def lake_facts(lake: S3Lake, hosts: str, namespace: str, secret: Mapping[str, Any] | None) -> LakeFacts:
    """Return what counts for all pipelines and queries of a space.

    Args:
        lake: the lake as the space declares it.
        hosts: the hosts that the operator lets runners of the namespace reach.
        namespace: the namespace of the space.
        secret: the secret that the lake names; None: there is none.
    """
    endpoint = endpoint_of(lake.endpoint)
    assert endpoint is not None  # the API took no other
    _, host, port = endpoint
    try:
        place = place_of(host, port)
    except ValueError:
        problem = f"the host {host} of spec.lake is neither a name nor an address"
        return LakeFacts(reason="HostNotGranted", problem=problem)
    if place.network is not None and is_never(str(place.network.network_address)):
        problem = f"the host {host} of spec.lake is refused: nothing but what clouds tell machines is found there"
        return LakeFacts(reason="HostNotGranted", problem=problem)
    if not Reach(parse_hosts(hosts)[0]).covers(place):
        return LakeFacts(
            reason="HostNotGranted",
            problem=(
                f"processes of namespace {namespace} do not reach {host}:{port}, where spec.lake has the space's "
                f"tables: the operator of EnMasse lists it in the annotation {ANNOTATION} of the namespace"
            ),
        )
    name = lake.credentials_secret
    if secret is None:
        return LakeFacts(reason="SecretMissing", problem=f"there is no Secret {name} in namespace {namespace}")
    given = {"endpoint": lake.endpoint, "bucket": lake.bucket, "prefix": lake.prefix, "region": lake.region or ""}
    entries = secret.get("data") or {}
    for entry in (*_ENTRIES, _MORE):
        if entry == _MORE and entry not in entries:
            continue
        try:
            given[entry] = base64.b64decode(entries[entry], validate=True).decode()
        except (KeyError, ValueError, binascii.Error):
            problem = f"Secret {name} has no entry {entry} of text; {' and '.join(_ENTRIES)} are needed"
            return LakeFacts(reason="SecretIncomplete", problem=problem)
    return LakeFacts(given)
