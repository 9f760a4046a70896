"""Checks of a space's endpoints before it is stored: host names are validated, private keys are taken out.

Rules of host names:
1. A host below the installation's domain, or of the form ``<space>.<namespace>``, belongs to the space with these
   names alone; this machine's own names belong to no space.
2. Any other host needs a grant of its domain to the namespace. Operators grant it: only they write Namespaces.
3. No two spaces have the same host: the space that has it keeps it, else the oldest that requests it gets it.

A private key is neither stored with the space nor shown: it is put aside, and left out of the object and of the copy
of the manifest that kubectl keeps. A declaration without a key keeps the one that was given for an endpoint of that
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.control.store.managed_fields import redacted
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.names import ROUTE_DOMAINS, host_problem, is_granted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from enmasse.control.store.writes import Write
    from enmasse.model.schema.resource import Resource


class HostRefusal(NamedTuple):
    """The reason why a space does not get a host: one CamelCase word for programs, and a sentence for people."""

    reason: str
    message: str


def space_host(space: AddressSpace, domain: str) -> str:
    """Return the host that names a space."""
    return f"{space.metadata.name}.{space.metadata.namespace}.{domain}"


def route_hosts(space: AddressSpace) -> tuple[str, ...]:
    """Return the hosts that a space asks for, beside its own."""
    hosts = [
        endpoint.expose.route_host.lower()
        for endpoint in space.spec.served_endpoints
        if endpoint.expose is not None and endpoint.expose.route_host
    ]
    return tuple(dict.fromkeys(hosts))


def refused_hosts(
    spaces: Iterable[AddressSpace],
    domain: str,
    granted: Mapping[str, tuple[str, ...]],
    *,
    machine: Collection[str] = (),
    owners: Mapping[str, str] | None = None,
) -> dict[str, dict[str, HostRefusal]]:
    """Return by key the hosts that spaces ask for and do not get, each with the reason.

    Args:
        spaces: all that there are.
        domain: the domain of the installation.
        granted: the domains that every namespace was granted.
        machine: this machine's own names, in lower case.
        owners: the keys of the spaces that have hosts already.
    """
    had = owners or {}
    known = sorted(spaces, key=lambda item: (item.metadata.creation_timestamp, item.key))
    # The owner of a host comes before an older space that requests it now.
    asked = sorted(
        ((space, host) for space in known for host in route_hosts(space)),
        key=lambda item: had.get(item[1]) != item[0].key,
    )
    taken: dict[str, str] = {}
    refused: dict[str, dict[str, HostRefusal]] = {}
    for space, host in asked:
        namespace = space.metadata.namespace
        domains = granted.get(namespace, ())
        if host in (space_host(space, domain), f"{space.metadata.name}.{namespace}"):
            continue
        if problem := host_problem(host, machine):
            refusal = HostRefusal("HostRefused", problem)
        elif host == domain or host.endswith(f".{domain}"):
            refusal = HostRefusal(
                "HostRefused", f"host {host} is below {domain}, where hosts are given by name and namespace"
            )
        elif not is_granted(host, domains):
            refusal = HostRefusal("HostNotGranted", _how_to_grant(host, namespace, domains))
        elif host.partition(".")[2] in granted or taken.setdefault(host, space.key) != space.key:
            # Whose it is, or may be one day, is not for others to know.
            refusal = HostRefusal("HostRefused", f"host {host} belongs to another space")
        else:
            continue
        refused.setdefault(space.key, {})[host] = refusal
    return refused


def _how_to_grant(host: str, namespace: str, domains: tuple[str, ...]) -> str:
    listed = ",".join((*domains, host))
    return (
        f"host {host} is in no domain that namespace {namespace} was granted; an operator grants it by "
        f"`kubectl annotate --overwrite namespace {namespace} {ROUTE_DOMAINS}={listed}`"
    )


class HostAdmission:
    """Admission that refuses spaces with a host that is a name of this machine.

    Args:
        machine: its names, in lower case.
    """

    kinds = frozenset({ADDRESS_SPACE.name})

    def __init__(self, machine: Collection[str]) -> None:
        self._machine = machine

    def admit(self, write: Write) -> Resource:
        """Return the object as it is.

        Raises:
            InvalidResourceError: when it asks for such a host, and did not have it before.
        """
        new, old = write.new, write.old
        if not isinstance(new, AddressSpace):
            return write.resource
        former = route_hosts(old) if isinstance(old, AddressSpace) else ()
        for index, endpoint in enumerate(new.spec.endpoints):
            host = endpoint.expose.route_host if endpoint.expose is not None else None
            if host and host.lower() not in former and (problem := host_problem(host, self._machine)):
                path = f"spec.endpoints[{index}].expose.routeHost"
                raise InvalidResourceError(f"AddressSpace {new.metadata.name}", [Problem(path, problem)])
        return new


def key_aside(endpoint: str) -> str:
    """Return the name under which the key of an endpoint is put aside."""
    return f"endpoint-key.{endpoint}"


class EndpointKeys:
    """Admission of spaces that takes out private keys."""

    kinds = frozenset({ADDRESS_SPACE.name})

    def admit(self, write: Write) -> Resource:
        """Return the space without private keys."""
        space = write.new
        if not isinstance(space, AddressSpace):
            return write.resource
        self._forget(write, space)
        if not space.spec.endpoints:
            return space
        endpoints = []
        for endpoint in space.spec.endpoints:
            cert = endpoint.cert
            if cert is None or cert.tls_key is None:
                endpoints.append(endpoint)
                continue
            write.store.put_aside(space.metadata.uid, key_aside(endpoint.name), cert.tls_key.encode())
            endpoints.append(endpoint.model_copy(update={"cert": cert.model_copy(update={"tls_key": None})}))
        metadata = space.metadata.model_copy(update={"annotations": redacted(space.metadata.annotations, _take_out)})
        spec = space.spec.model_copy(update={"endpoints": tuple(endpoints)})
        return space.model_copy(update={"spec": spec, "metadata": metadata})

    def _forget(self, write: Write, space: AddressSpace) -> None:
        """Forget keys of endpoints that were removed, or have their key elsewhere now."""
        if isinstance(write.old, AddressSpace):
            left = {
                endpoint.name
                for endpoint in space.spec.endpoints
                if endpoint.cert is not None and endpoint.cert.tls_cert is not None
            }
            for endpoint in write.old.spec.endpoints:
                if endpoint.name not in left:
                    write.store.take_aside(space.metadata.uid, key_aside(endpoint.name))


def _take_out(spec: Any) -> bool:
    endpoints = spec.get("endpoints")
    found = False
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        cert = endpoint.get("cert") if isinstance(endpoint, dict) else None
        if isinstance(cert, dict) and cert.pop("tlsKey", None) is not None:
            found = True
    return found
