"""Reviews of one's own rights as protocol buffers: newer kubectl asks in no other form.

The messages are those of ``k8s.io/api/authorization/v1`` and ``k8s.io/apimachinery/pkg/runtime``, whose field
numbers are the wire format; what we do not look at is not described, and passed over.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from enmasse.api.protobuf_messages import Messages
from enmasse.api.status import RequestError

__all__ = ["PROTOBUF", "read_review"]

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"
_MESSAGES: Final = Messages(
    "enmasse.reviews",
    {
        "Unknown": "typeMeta=1:TypeMeta raw=2:bytes",
        "TypeMeta": "apiVersion=1:string kind=2:string",
        "SelfSubjectAccessReview": "spec=2:AccessSpec",
        "AccessSpec": "resourceAttributes=1:ResourceAttributes nonResourceAttributes=2:PathAttributes",
        "ResourceAttributes": "namespace=1:string verb=2:string group=3:string version=4:string resource=5:string"
        " subresource=6:string name=7:string",
        "PathAttributes": "path=1:string verb=2:string",
        "SelfSubjectRulesReview": "spec=1:RulesSpec",
        "RulesSpec": "namespace=1:string",
        "SelfSubjectReview": "ignored=15:string",
    },
)


def read_review(body: bytes, kind: str) -> dict[str, Any]:
    """Return a review as a document.

    Args:
        body: of the request.
        kind: what it must be.

    Raises:
        RequestError: when it is something else.
    """
    if not body.startswith(_MAGIC):
        raise RequestError(400, f"the body is no {PROTOBUF}")
    try:
        envelope: Any = _MESSAGES.type("Unknown").FromString(body[len(_MAGIC) :])
        if envelope.typeMeta.kind not in ("", kind):
            raise RequestError(400, f"expected a {kind}, got a {envelope.typeMeta.kind}")
        found: dict[str, Any] = MessageToDict(_MESSAGES.type(kind).FromString(envelope.raw))
    except DecodeError:
        raise RequestError(400, f"the body cannot be read as a {kind}") from None
    return found
