"""A device of the registry: whether it may come in, for whom, and through which gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from enmasse.iot.documents import Free, Ids, Part, RegistryError, validated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.iot.documents import Document

LINKS: Final = ("via", "viaGroups", "memberOf")
"""The fields that name gateways, or groups of them."""

PROVISIONED: Final = "auto-provisioned"
NOTIFIED: Final = "auto-provisioning-notification-sent"
"""Parts of the status of a device that was registered as it came."""

Mapper = Annotated[str, Field(min_length=1, max_length=255)]


class CommandEndpoint(Part):
    """The place to which commands are sent for a device that does not connect by itself."""

    uri: Annotated[str, Field(min_length=1, max_length=2048)]
    headers: Free | None = None
    payload_properties: Free | None = None


class Device(Part):
    """A device as clients write it."""

    enabled: bool | None = None
    defaults: Free | None = None
    via: Ids | None = None
    via_groups: Ids | None = Field(default=None, alias="viaGroups")
    member_of: Ids | None = Field(default=None, alias="memberOf")
    authorities: Annotated[tuple[Mapper, ...], Field(strict=False, max_length=20)] | None = None
    downstream_message_mapper: Mapper | None = None
    upstream_message_mapper: Mapper | None = None
    mapper: Mapper | None = None
    command_endpoint: CommandEndpoint | None = None
    ext: Free | None = None
    status: Free | None = None
    """Written by the registry alone: what a client sends back is left out."""


def read_device(document: Any) -> Document:
    """Return a device's document as it is kept.

    Raises:
        RegistryError: 400.
    """
    device = validated(Device, document)
    if device.member_of and (device.via or device.via_groups):
        raise RegistryError(400, "memberOf: a member of a group of gateways has neither via nor viaGroups")
    kept: Document = {key: value for key, value in document.items() if value is not None and key != "status"}
    for name in LINKS:
        if name in kept:
            given = kept.pop(name)
            if found := list(dict.fromkeys([given] if isinstance(given, str) else given)):
                kept[name] = found
    return kept


def links_of(document: Document) -> Iterator[tuple[int, str]]:
    """Yield each gateway and group that a device names, with the number of the field."""
    for number, name in enumerate(LINKS):
        for target in document.get(name, ()):
            yield number, target
