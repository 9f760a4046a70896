"""The port to whoever else knows users: tokens, and passwords that are not kept here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from enmasse.identity.users import User
from enmasse.wire.amqp.pending import Pending

__all__ = ["Judged", "Judgement", "TokenAuthority"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a bearer.

    Attributes:
        user: who it is, with its permissions; nothing if it is not good for the space.
        reason: why not, for the log.
        is_temporary: whether nothing could be found out, so that another attempt may end otherwise.
    """

    user: User | None = None
    reason: str = ""
    is_temporary: bool = False


Judged = Judgement | Pending[Judgement]
"""Said at once if it can be; else later, within seconds."""


class TokenAuthority(Protocol):
    """Knows the users of some spaces."""

    def knows(self, space: str) -> bool:
        """Whether it is the one that knows the users of a space."""

    def takes_passwords(self, space: str) -> bool:
        """Whether it can check passwords of a space's users."""

    def judge_token(self, token: str, space: str) -> Judged:
        """Who the bearer of a token is in a space."""

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        """Whether a password is the one of a user of a space."""

    def judge_again(self, user: User) -> User | None:
        """A user that was let in, as it is now; nothing if it may not stay."""
