"""Sessions of browsers: who has logged in, and has not been away for long."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.control.accounts import hash_token

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COOKIE", "IDLE_S", "SESSION_S", "Sessions"]

COOKIE = "enmasse_session"

SESSION_S = 1800
"""After so long somebody logs in again, whatever they did."""

IDLE_S = 300
"""After so long without a request a browser is taken for abandoned."""

_MOST = 10_000
_SECRET_BYTES = 32


@dataclass(slots=True)
class _Session:
    account: str
    password: str
    began: float
    used: float


class Sessions:
    """Sessions live in memory: who was logged in when the process ended logs in again.

    Args:
        now: gives seconds; any clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, account: str, password: str) -> str:
        """Begin a session, and return the secret that stands for it.

        Args:
            account: who has logged in.
            password: the hash that the password was found to fit; the session ends when it is another.
        """
        now = self._now()
        if len(self._sessions) >= _MOST:
            self._sessions = {key: item for key, item in self._sessions.items() if _lives(item, now)}
        if len(self._sessions) >= _MOST:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used)]
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._sessions[hash_token(secret)] = _Session(account, password, now, now)
        return secret

    def find(self, secret: str) -> tuple[str, str] | None:
        """Return account and password hash of a session that is used now; None if it has ended."""
        key = hash_token(secret)
        session = self._sessions.get(key)
        now = self._now()
        if session is None or not _lives(session, now):
            self._sessions.pop(key, None)
            return None
        session.used = now
        return session.account, session.password

    def end(self, secret: str) -> None:
        """End a session; one that does not exist has ended."""
        self._sessions.pop(hash_token(secret), None)


def _lives(session: _Session, now: float) -> bool:
    return now - session.began < SESSION_S and now - session.used < IDLE_S
