"""Protocol buffers of Kubernetes: the only form in which newer kubectl sends its own kinds and access reviews.

The messages are those of ``k8s.io/api``, with ``authorization/v1``, and ``k8s.io/apimachinery``. Their field numbers
are the wire format. They are described in a line each instead of by generated code; fields that are not used here are
not described, and skipped.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from enmasse.api.kube.status import RequestError
from enmasse.model.schema.kinds import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NAMESPACE,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    SECRET,
    SERVICE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


class Messages:
    """Message classes of one package, made from descriptions.

    Args:
        package: its name.
        described: the fields of each message, as in ``name=1:string parts=2:Part* labels=3:{string}``; the star
            is for repeated ones, braces are for maps from strings to scalars or messages.
    """

    def __init__(self, package: str, described: Mapping[str, str]) -> None:
        self._package = package
        self._described = described
        self._types: dict[str, type[Message]] = {}

    def type(self, name: str) -> type[Message]:
        """Return the class of a message."""
        if name not in self._types:
            found = self._pool.FindMessageTypeByName(f"{self._package}.{name}")
            self._types[name] = message_factory.GetMessageClass(found)
        return self._types[name]

    @cached_property
    def _pool(self) -> descriptor_pool.DescriptorPool:
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{self._package}.proto", package=self._package, syntax="proto3"
        )
        for name, fields in self._described.items():
            message = file.message_type.add(name=name)
            for described in fields.split():
                field, _, rest = described.partition("=")
                number, _, kind = rest.partition(":")
                item = message.field.add(name=field, number=int(number))
                item.label = item.LABEL_REPEATED if kind.endswith("*") else item.LABEL_OPTIONAL
                kind = kind.removesuffix("*")
                if kind in _SCALARS:
                    item.type = _SCALARS[kind]
                elif kind.startswith("{"):
                    entry = _add_entry(
                        message, f"{field[0].upper()}{field[1:]}Entry", kind.strip("{}"), self._package
                    )
                    item.label = item.LABEL_REPEATED
                    item.type, item.type_name = item.TYPE_MESSAGE, f".{self._package}.{name}.{entry}"
                else:
                    item.type, item.type_name = item.TYPE_MESSAGE, f".{self._package}.{kind}"
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        return pool


def _add_entry(message: descriptor_pb2.DescriptorProto, name: str, kind: str, package: str) -> str:
    """Add the nested message for the entries of a map, and return its name."""
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (field, scalar) in enumerate((("key", "string"), ("value", kind)), 1):
        item = entry.field.add(name=field, number=number)
        item.label = item.LABEL_OPTIONAL
        if scalar in _SCALARS:
            item.type = _SCALARS[scalar]
        else:
            item.type, item.type_name = item.TYPE_MESSAGE, f".{package}.{scalar}"
    return name


_MAGIC: Final = b"k8s\0"
_BINDING: Final = "metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef"
_KINDS: Final = {
    CLUSTER_ROLE_BINDING.name: _BINDING,
    CONFIG_MAP.name: "metadata=1:ObjectMeta data=2:{string} binaryData=3:{bytes} immutable=4:bool",
    "DeleteOptions": "gracePeriodSeconds=1:int32 preconditions=2:Preconditions orphanDependents=3:bool"
    " propagationPolicy=4:string dryRun=5:string*",
    NAMESPACE.name: "metadata=1:ObjectMeta",
    RESOURCE_QUOTA.name: "metadata=1:ObjectMeta spec=2:ResourceQuotaSpec",
    ROLE_BINDING.name: _BINDING,
    SECRET.name: "metadata=1:ObjectMeta data=2:{bytes} type=3:string stringData=4:{string} immutable=5:bool",
    SERVICE.name: "metadata=1:ObjectMeta spec=2:ServiceSpec",
}
_OBJECTS: Final = Messages(
    "enmasse.objects",
    _KINDS
    | {
        "IntOrString": "type=1:int64 intVal=2:int32 strVal=3:string",
        "ObjectMeta": "name=1:string generateName=2:string namespace=3:string uid=5:string resourceVersion=6:string"
        " labels=11:{string} annotations=12:{string} ownerReferences=13:OwnerReference* finalizers=14:string*",
        "OwnerReference": "kind=1:string name=3:string uid=4:string apiVersion=5:string controller=6:bool"
        " blockOwnerDeletion=7:bool",
        "Preconditions": "uid=1:string resourceVersion=2:string",
        "Quantity": "string=1:string",
        "ResourceQuotaSpec": "hard=1:{Quantity}",
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
    """Decode an object to its JSON form.

    Raises:
        RequestError: when it is not an object of a kind that is read in this form.
    """
    if not body.startswith(_MAGIC):
        raise RequestError(400, "the body does not begin as protocol buffers of Kubernetes do")
    try:
        envelope: Any = _OBJECTS.type("Unknown").FromString(body[len(_MAGIC) :])
        kind = str(envelope.typeMeta.kind)
        if kind not in _KINDS:
            raise RequestError(415, f"'{kind[:80]}' is not read from protocol buffers; send JSON")
        found: Document = MessageToDict(
            _OBJECTS.type(kind).FromString(envelope.raw), preserving_proto_field_name=True
        )
    except DecodeError:
        raise RequestError(400, "the body cannot be read as protocol buffers of Kubernetes") from None
    if kind == RESOURCE_QUOTA.name:
        hard = found.get("spec", {}).get("hard", {})
        hard.update({name: quantity.get("string", "0") for name, quantity in hard.items()})
    for port in found.get("spec", {}).get("ports", ()):
        if isinstance(target := port.get("targetPort"), dict):
            port["targetPort"] = target.get("strVal") or target.get("intVal", 0)
    return {"apiVersion": envelope.typeMeta.apiVersion, "kind": kind} | found


PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_REVIEWS: Final = Messages(
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
    """Decode an access review to its JSON form.

    Args:
        body: the body of the request.
        kind: the expected one.

    Raises:
        RequestError: when it is anything else.
    """
    if not body.startswith(_MAGIC):
        raise RequestError(400, f"the body is not {PROTOBUF}")
    try:
        envelope: Any = _REVIEWS.type("Unknown").FromString(body[len(_MAGIC) :])
        if envelope.typeMeta.kind not in ("", kind):
            raise RequestError(400, f"expected a {kind}, got a {envelope.typeMeta.kind}")
        found: dict[str, Any] = MessageToDict(_REVIEWS.type(kind).FromString(envelope.raw))
    except DecodeError:
        raise RequestError(400, f"the body cannot be read as a {kind}") from None
    return found
