"""Probes of an installation's endpoints: a request to each, as a client would send it.

Every port of a node answers ``/readyz`` beside its own protocol, in the clear and inside TLS. So one request shows
that the port is open, that TLS is spoken there, that it is a node of ours which has it, and that the node serves as
usual.
"""

from __future__ import annotations

import http.client
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from enmasse.node.protocols import PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Collection

    from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints

TIMEOUT_S = 5.0
"""Seconds for each step of a probe: a port of this machine that is busy has answered by then."""

_MAX_ANSWER_BYTES = 4096  # a check of readiness has some ten lines


def failed_probes(endpoints: Endpoints) -> list[str]:
    """Probe every endpoint, all at the same time, and return a sentence for each way in which some do not serve.

    It is known within ``TIMEOUT_S`` for each step of a connection.
    """
    found: dict[str, list[str]] = {}
    nodes = {each.name for each in endpoints.processes if each.kind == "node"}
    with ThreadPoolExecutor(max(1, len(endpoints.endpoints))) as threads:
        problems = threads.map(lambda each: _problem(each, nodes), endpoints.endpoints)
        for each, problem in zip(endpoints.endpoints, problems, strict=True):
            if problem:
                found.setdefault(problem, []).append(each.url)
    return [f"{', '.join(urls)}: {problem}" for problem, urls in found.items()]


def _problem(endpoint: Endpoint, nodes: Collection[str]) -> str:
    """Return why an endpoint does not serve; empty if it does."""
    place = urlsplit(endpoint.url)
    of_node = any(endpoint.protocol in row.schemes for row in PROTOCOLS.values())
    is_secure = place.scheme == "https" or any(place.scheme == row.schemes[1] for row in PROTOCOLS.values())
    host, port = place.hostname or "", place.port or 0
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=_any_certificate())
        if is_secure
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    )
    try:
        connection.request("GET", "/readyz?verbose" if of_node else place.path or "/readyz")
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()
    except TimeoutError:
        return f"no answer in {TIMEOUT_S:g} s"
    except http.client.RemoteDisconnected:
        return "the connection was closed without an answer"
    except http.client.HTTPException:
        return "what answers there is another program"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        connection.close()
    if of_node and not text.partition("\n")[0].startswith("["):
        return f"what answers there is another program (status {answer.status})"
    if of_node and not any(f"\n{name}: " in text for name in nodes):
        return "another node answers there"
    # Whatever asks for a login or redirects serves.
    if answer.status >= (http.HTTPStatus.MULTIPLE_CHOICES if of_node else http.HTTPStatus.INTERNAL_SERVER_ERROR):
        failed = "; ".join(line for line in text.splitlines() if line.startswith("[-]"))
        return f"status {answer.status}" + (f": {failed}" if failed else "")
    return ""


def _any_certificate() -> ssl.SSLContext:
    """Return a context for a handshake alone: nothing secret is sent, and names of tenants are not at stake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
