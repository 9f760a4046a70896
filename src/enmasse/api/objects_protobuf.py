"""Objects of Kubernetes' own kinds as protocol buffers: newer kubectl creates them in no other form.

The messages are those of ``k8s.io/api`` and ``k8s.io/apimachinery``, whose field numbers are the wire format.
What our kinds have no field for is not described, and passed over.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from enmasse.api.protobuf_messages import Messages
from enmasse.api.status import RequestError

__all__ = ["read_object"]

_MAGIC: Final = b"k8s\0"
_BINDING: Final = "metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef"
_KINDS: Final = {
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": "metadata=1:ObjectMeta data=2:{string} binaryData=3:{bytes} immutable=4:bool",
    "DeleteOptions": "gracePeriodSeconds=1:int32 preconditions=2:Preconditions orphanDependents=3:bool"
    " propagationPolicy=4:string dryRun=5:string*",
    "Namespace": "metadata=1:ObjectMeta",
    "RoleBinding": _BINDING,
    "Secret": "metadata=1:ObjectMeta data=2:{bytes} type=3:string stringData=4:{string} immutable=5:bool",
    "Service": "metadata=1:ObjectMeta spec=2:ServiceSpec",
}
_MESSAGES: Final = Messages(
    "enmasse.objects",
    _KINDS
    | {
        "IntOrString": "type=1:int64 intVal=2:int32 strVal=3:string",
        "ObjectMeta": "name=1:string generateName=2:string namespace=3:string uid=5:string resourceVersion=6:string"
        " labels=11:{string} annotations=12:{string} ownerReferences=13:OwnerReference* finalizers=14:string*",
        "OwnerReference": "kind=1:string name=3:string uid=4:string apiVersion=5:string controller=6:bool"
        " blockOwnerDeletion=7:bool",
        "Preconditions": "uid=1:string resourceVersion=2:string",
        "RoleRef": "apiGroup=1:string kind=2:string name=3:string",
        "ServicePort": "name=1:string protocol=2:string port=3:int32 targetPort=4:IntOrString nodePort=5:int32"
        " appProtocol=6:string",
        "ServiceSpec": "ports=1:ServicePort* selector=2:{string} type=4:string externalName=10:string",
        "Subject": "kind=1:string apiGroup=2:string name=3:string namespace=4:string",
        "TypeMeta": "apiVersion=1:string kind=2:string",
        "Unknown": "typeMeta=1:TypeMeta raw=2:bytes",
    },
)

Document = dict[str, Any]


def read_object(body: bytes) -> Document:
    """Return an object, as its JSON would give it.

    Raises:
        RequestError: when it is no object of a kind that is read in this form.
    """
    if not body.startswith(_MAGIC):
        raise RequestError(400, "the body does not begin as protocol buffers of Kubernetes do")
    try:
        envelope: Any = _MESSAGES.type("Unknown").FromString(body[len(_MAGIC) :])
        kind = str(envelope.typeMeta.kind)
        if kind not in _KINDS:
            raise RequestError(415, f"'{kind[:80]}' is not read from protocol buffers; send JSON")
        found: Document = MessageToDict(
            _MESSAGES.type(kind).FromString(envelope.raw), preserving_proto_field_name=True
        )
    except DecodeError:
        raise RequestError(400, "the body cannot be read as protocol buffers of Kubernetes") from None
    for port in found.get("spec", {}).get("ports", ()):
        if isinstance(target := port.get("targetPort"), dict):
            port["targetPort"] = target.get("strVal") or target.get("intVal", 0)
    return {"apiVersion": envelope.typeMeta.apiVersion, "kind": kind} | found
