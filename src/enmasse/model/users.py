"""MessagingUser: who may connect to a space, how that is proved, and what is allowed then."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from enmasse.model.errors import Problem
from enmasse.model.names import pattern_problem
from enmasse.model.resource import ResourceStatus, SpaceMember
from enmasse.model.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "OPERATIONS",
    "SERVICE_ACCOUNT",
    "AuthenticationType",
    "Authorization",
    "MessagingUser",
    "MessagingUserSpec",
    "MessagingUserStatus",
    "Operation",
    "UserAuthentication",
    "password_of",
]

AuthenticationType = Literal["password", "serviceaccount", "federated", "certificate"]
Operation = Literal["send", "recv", "view", "manage"]

OPERATIONS: tuple[Operation, ...] = ("send", "recv", "view", "manage")

SERVICE_ACCOUNT: Final = "@@serviceaccount@@"
"""The user name with which a program logs in whose password is a token of the platform."""

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
    """How a user proves to be who it is."""

    type: AuthenticationType = "password"
    """`password`, `serviceaccount`: a token of the platform, `federated`: another service knows it,
    `certificate`: a client certificate."""
    password: Annotated[str | None, AfterValidator(lambda text: text if text is None else _check_password(text))] = (
        Field(default=None, repr=False, json_schema_extra={"writeOnly": True})
    )
    """The password in base64. It is never shown again: what is kept cannot be turned back into it."""
    provider: str | None = None
    """Of a federated user: who knows it."""
    federated_userid: str | None = None
    """Of a federated user: its id there."""
    federated_username: str | None = None
    """Of a federated user: its name there."""
    subject: str | None = Field(default=None, min_length=1, max_length=1024)
    """Of a certificate: its subject, or one of its other names; left out: the username."""


class Authorization(Model):
    """Some operations on some addresses."""

    operations: tuple[Operation, ...] = Field(strict=False, min_length=1)
    """`send` and `recv` on the addresses; `view` the space's statistics, `manage` it."""
    addresses: tuple[str, ...] = Field(default=(), strict=False)
    """Patterns: `*` is one word, `#` any rest; `${username}` is the user's name. As in EnMasse 1.0, `*` alone
    is every address, and a last word that ends with `*`, such as `top*`, every address that begins so."""


class MessagingUserSpec(Model):
    """Who the user is and what is allowed."""

    username: str
    """What it logs in with: lower-case letters, digits, and within `_`, `@`, `.`, `:` and `-`."""
    authentication: UserAuthentication = UserAuthentication()
    authorization: tuple[Authorization, ...] = Field(default=(), strict=False)
    """What it may do; nothing else."""


class MessagingUserStatus(ResourceStatus):
    """What the controller found about a user."""

    message: str | None = None
    """What is wrong."""
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
        for index, grant in enumerate(self.spec.authorization):
            path = f"spec.authorization[{index}].addresses"
            if not grant.addresses and not {"view", "manage"}.issuperset(grant.operations):
                yield Problem(path, "required where send or recv is allowed; '*' is every address")
            for number, pattern in enumerate(grant.addresses):
                if problem := pattern_problem(pattern):
                    yield Problem(f"{path}[{number}]", problem)

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
