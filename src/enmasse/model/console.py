"""ConsoleService: the web console of EnMasse 1.0, so that YAML with it applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from enmasse.model.authentication import ServiceSecret
from enmasse.model.resource import Resource, ResourceStatus
from enmasse.model.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ConsoleService", "ConsoleServiceSpec"]


class ConsoleServiceSpec(Model):
    """Where the console is, and how people log in to it."""

    discovery_metadata_url: str | None = Field(default=None, alias="discoveryMetadataURL")
    """The document of discovery of the provider of OpenID Connect."""
    scope: str | None = None
    oauth_client_secret: ServiceSecret | None = None
    sso_cookie_secret: ServiceSecret | None = None
    sso_cookie_domain: str | None = None
    certificate_secret: ServiceSecret | None = None
    host: str | None = None
    resources: dict[str, Any] | None = None
    impersonation: dict[str, Any] | None = None
    """Which headers name the user to the API."""


class ConsoleService(Resource):
    """A web console."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["ConsoleService"] = "ConsoleService"
    spec: ConsoleServiceSpec = ConsoleServiceSpec()
    status: ResourceStatus = ResourceStatus()

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for all of it: it is kept and shown, but changes nothing yet."""
        yield f"{self.metadata.name}: a ConsoleService is kept, but has no effect in this version"
