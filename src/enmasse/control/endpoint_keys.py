"""Takes the private keys of endpoints out of a space before anything is stored.

A key is neither stored with the space nor shown: it is put aside, and left out of the object and of the copy of the
manifest that kubectl keeps. A declaration without a key keeps the one that was given for an endpoint of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.control.last_applied import redacted
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from enmasse.control.writes import Write
    from enmasse.model.resource import Resource

__all__ = ["EndpointKeys", "key_aside"]


def key_aside(endpoint: str) -> str:
    """Return the name under which the key of an endpoint is put aside."""
    return f"endpoint-key.{endpoint}"


class EndpointKeys:
    """Has a say in what is written of spaces."""

    kinds = frozenset({"AddressSpace"})

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
        """Forget keys of endpoints that are no more, or have their key elsewhere now."""
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
