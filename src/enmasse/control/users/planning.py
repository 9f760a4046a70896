"""Plan one messaging user: the entity that nodes should have, and its conditions. Pure.

A user can have a place in its space (``Scheduled``), be able to authenticate (``AuthenticationReady``), and be able
to log in (``Ready``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.control.ports import UserEntity
from enmasse.control.users.passwords import node_pattern
from enmasse.model.kinds.spaces import NO_AUTHENTICATION
from enmasse.model.schema.conditions import READY, Condition, with_effect

if TYPE_CHECKING:
    from enmasse.control.users.passwords import Credentials
    from enmasse.model.kinds.users import MessagingUser


_FORMAT = "1"
"""The version of what nodes get; another one makes all users be sent again."""


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """The facts of a space that concern its users.

    Attributes:
        key: ``<namespace>/<space>``.
        uid: the uid of the AddressSpace.
        authentication: the kind of its authentication service; None for one that does not exist.
        most_users: the most users that it may have; 0 is without limit.
        is_leaving: whether it is being deleted.
    """

    key: str
    uid: str
    authentication: str | None
    most_users: int = 0
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class UserVerdict:
    """The decision about one condition of a user.

    Attributes:
        reason: one CamelCase word.
        message: a sentence for people; empty when there is none.
        is_yes: whether it holds.
    """

    reason: str
    message: str = ""
    is_yes: bool = False


def revision_of(space_uid: str, uid: str, generation: int, credentials_id: str) -> str:
    """Return the revision of a user for nodes: its entity is determined by these."""
    return "/".join((_FORMAT, space_uid, uid, str(generation), credentials_id))


def judge_user(key: str, space: SpaceFacts | None) -> UserVerdict:
    """Return whether a user can have a place in its space."""
    if space is None:
        return UserVerdict(
            "SpaceMissing", f"the address space {key.partition('/')[2].partition('.')[0]} does not exist"
        )
    if space.is_leaving:
        return UserVerdict("SpaceTerminating", "the address space is being deleted")
    if space.authentication == NO_AUTHENTICATION:
        return UserVerdict(
            "NoAuthentication",
            "the address space lets everybody in and has no users: give it the authentication service 'standard'",
        )
    return UserVerdict("Placed", is_yes=True)


def user_entity(user: MessagingUser, space: SpaceFacts, credentials: Credentials | None) -> UserEntity:
    """Return the entity of a user for nodes."""
    spec, metadata = user.spec, user.metadata
    found = spec.authentication
    return UserEntity(
        name=f"{space.key}.{spec.username}",
        space=space.key,
        space_uid=space.uid,
        username=spec.username,
        uid=metadata.uid,
        generation=metadata.generation,
        revision=revision_of(
            space.uid, metadata.uid, metadata.generation, credentials.id if credentials is not None else ""
        ),
        certificates=(found.subject or spec.username,) if found.type == "certificate" else (),
        authorization=tuple(
            (tuple(grant.operations), tuple(node_pattern(pattern) for pattern in grant.addresses))
            for grant in spec.authorization
        ),
        scram=credentials.entity_keys() if credentials is not None and found.type == "password" else {},
        client_ids=spec.client_id.pattern if spec.client_id is not None else "",
    )


def _judge_proof(user: MessagingUser, space: SpaceFacts | None, has_keys: bool) -> UserVerdict:
    """Return whether a user can authenticate."""
    kind = user.spec.authentication.type
    is_external = space is not None and space.authentication not in ("standard", NO_AUTHENTICATION)
    if kind == "serviceaccount":
        return UserVerdict(
            "NoServiceAccounts",
            "service accounts prove themselves by tokens of Kubernetes, and this installation is not on Kubernetes: "
            "use the types password, certificate or federated",
        )
    if kind == "federated" and not is_external:
        return UserVerdict(
            "NoProvider",
            "a federated user is proved by a provider of identities, and the address space has none: "
            "give it an authentication service of type external",
        )
    if kind == "password" and not is_external and not has_keys:
        name = user.metadata.name
        return UserVerdict("NoPassword", f"it has no password yet: set one with `enmasse passwd {name}`")
    return UserVerdict("Available", is_yes=True)


def user_conditions(
    user: MessagingUser, space: SpaceFacts | None, place: UserVerdict, served: UserVerdict, *, has_keys: bool
) -> tuple[Condition, ...]:
    """Return the conditions of a user, transition times not yet filled in.

    Args:
        user: the user as declared.
        space: the space that it belongs to.
        place: whether it has a place there.
        served: whether nodes have it.
        has_keys: whether a password was set.
    """
    proof = _judge_proof(user, space, has_keys)
    ready = next((verdict for verdict in (place, proof) if not verdict.is_yes), served)
    generation = user.metadata.generation
    found = [
        Condition(
            type=kind,
            status="True" if verdict.is_yes else "False",
            reason=verdict.reason,
            message=verdict.message,
            observed_generation=generation,
        )
        for kind, verdict in (("Scheduled", place), ("AuthenticationReady", proof), (READY, ready))
    ]
    return with_effect(found, list(user.unapplied()), generation)
