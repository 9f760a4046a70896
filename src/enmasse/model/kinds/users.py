"""MessagingUser: a user of a space, with its authentication and its rights."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_own, pattern_problem
from enmasse.model.schema.resource import ResourceStatus, SpaceMember
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator


AuthenticationType = Literal["password", "serviceaccount", "federated", "certificate"]
Operation = Literal["send", "recv", "view", "manage"]

OPERATIONS: tuple[Operation, ...] = ("send", "recv", "view", "manage")

SERVICE_ACCOUNT: Final = "@@serviceaccount@@"
"""The user name of a program that logs in with a token of the platform as its password."""

_USERNAME = re.compile(r"[a-z0-9]([a-z0-9_@.:-]*[a-z0-9])?")
_MAX_USERNAME = 255
_MAX_PASSWORD_BYTES = 1024


def _check_password(text: str) -> str:
    try:
        raw = b64decode(text, validate=True)
        raw.decode()
    except (binascii.Error, ValueError):
        raise PydanticCustomError("password", "expected base64 of UTF-8 text") from None
    if not 1 <= len(raw) <= _MAX_PASSWORD_BYTES:
        raise PydanticCustomError("password", f"expected 1 to {_MAX_PASSWORD_BYTES} bytes before base64")
    return text


class UserAuthentication(Model):
    """The way in which a user is authenticated."""

    type: AuthenticationType = "password"
    """`password`, `serviceaccount`: a token of the platform, `federated`: another service knows it,
    `certificate`: a client certificate."""
    password: Annotated[str | None, AfterValidator(lambda text: text if text is None else _check_password(text))] = (
        Field(default=None, repr=False, json_schema_extra={"writeOnly": True})
    )
    """The password in base64. It is never shown again: what is kept cannot be turned back into it."""
    provider: str | None = None
    """The provider that knows a federated user."""
    federated_userid: str | None = None
    """The id of a federated user there."""
    federated_username: str | None = None
    """The name of a federated user there."""
    subject: str | None = Field(default=None, min_length=1, max_length=1024)
    """The subject of a certificate, or one of its other names; left out: the username."""


class ClientId(Model):
    """The names that clients of a user have for themselves."""

    pattern: str = Field(min_length=1, max_length=253)
    """The client id of MQTT, container id of AMQP or `client-id` of STOMP: text in which one `*` stands for any
    letters, and `${username}` or `%u` for the user's name, such as `${username}-*`. Others are refused."""


class Authorization(Model):
    """Some operations on some addresses."""

    operations: tuple[Operation, ...] = Field(strict=False)
    """`send` and `recv` on the addresses; `view` the space's statistics, `manage` it. None allows nothing."""
    addresses: tuple[str, ...] = Field(default=(), strict=False)
    """Patterns: `*` and `+` are one word, `#` any rest; `${username}` or `%u` is the user's name, `%c` what
    its client calls itself, the client id of MQTT or the container id of AMQP. As in EnMasse 1.0, `*`
    alone is every address, and a last word that ends with `*`, such as `top*`, every address that begins so. Names
    that begin with `$` are covered only by patterns that do."""


class MessagingUserSpec(Model):
    """The name, authentication and rights of a user."""

    username: str
    """The name with which it logs in: lower-case letters, digits, and within `_`, `@`, `.`, `:` and `-`."""
    authentication: UserAuthentication = UserAuthentication()
    authorization: tuple[Authorization, ...] = Field(default=(), strict=False)
    """The rights of the user; it has no others."""
    client_id: ClientId | None = None
    """The names that its clients may have for themselves; left out: any."""


class MessagingUserStatus(ResourceStatus):
    """The state of a user, as its controller found it."""

    message: str | None = None
    """The problem, if there is one."""
    generation: int | None = None
    """The generation of the spec that this was found for."""


class MessagingUser(SpaceMember):
    """A user of a space."""

    api_version: Literal["user.enmasse.io/v1beta1"] = "user.enmasse.io/v1beta1"
    kind: Literal["MessagingUser"] = "MessagingUser"
    spec: MessagingUserSpec
    status: MessagingUserStatus = MessagingUserStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        yield from self._username_problems()
        yield from self._authentication_problems()
        client_id = self.spec.client_id
        if client_id is not None and client_id.pattern.count("*") > 1:
            yield Problem(
                "spec.clientId.pattern", f"expected at most one '*', got {describe_value(client_id.pattern)}"
            )
        for index, grant in enumerate(self.spec.authorization):
            path = f"spec.authorization[{index}].addresses"
            if not grant.addresses and not {"view", "manage"}.issuperset(grant.operations):
                yield Problem(path, "required where send or recv is allowed; '*' is every address")
            for number, pattern in enumerate(grant.addresses):
                # Names with a dollar sign are those of a space that takes them.
                is_dollar = pattern.startswith("$") and not (pattern.startswith("${") or is_own(pattern))
                if problem := pattern_problem(pattern[1:] if is_dollar else pattern):
                    yield Problem(f"{path}[{number}]", problem)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        found = self.spec.authentication
        for field in ("provider", "federated_userid", "federated_username"):
            if getattr(found, field) is not None:
                name = UserAuthentication.model_fields[field].alias
                why = "the space's authentication service knows the user by spec.username"
                yield Unapplied(f"spec.authentication.{name}", why)
        for index, grant in enumerate(self.spec.authorization):
            if not grant.operations:
                yield Unapplied(f"spec.authorization[{index}]", "it names no operation, and so allows nothing")
            elif grant.addresses and {"view", "manage"}.issuperset(grant.operations):
                why = "view and manage are of the whole space; send and recv are of addresses"
                yield Unapplied(f"spec.authorization[{index}].addresses", why)

    def _username_problems(self) -> Iterator[Problem]:
        username = self.spec.username
        if self.spec.authentication.type == "serviceaccount" and username == SERVICE_ACCOUNT:
            return
        if _USERNAME.fullmatch(username) is None or len(username) > _MAX_USERNAME:
            yield Problem(
                "spec.username",
                "expected lower-case letters, digits and within '_', '@', '.', ':' and '-', "
                f"at most {_MAX_USERNAME} characters, got {describe_value(username)}",
            )

    def _authentication_problems(self) -> Iterator[Problem]:
        found = self.spec.authentication
        owners = {
            "password": ("password",),
            "provider": ("federated",),
            "federated_userid": ("federated",),
            "federated_username": ("federated",),
            "subject": ("certificate",),
        }
        for field, types in owners.items():
            if getattr(found, field) is not None and found.type not in types:
                name = UserAuthentication.model_fields[field].alias
                yield Problem(f"spec.authentication.{name}", f"only type {types[0]} has it, this is {found.type}")


def password_of(user: MessagingUser) -> str | None:
    """Return the password that a declaration gives, None where it gives none."""
    encoded = user.spec.authentication.password
    return None if encoded is None else b64decode(encoded).decode()
