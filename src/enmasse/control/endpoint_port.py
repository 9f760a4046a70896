"""What control asks of whoever keeps the certificates of endpoints where nodes find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["Certificates", "UnusableCertificateError", "Vouched"]


class UnusableCertificateError(ConfigError):
    """A certificate cannot be shown.

    Attributes:
        reason: one CamelCase word, for programs.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Vouched:
    """A certificate that is shown.

    Attributes:
        certificate: PEM, with its chain.
        authority: who vouches for it, PEM; empty if that is known by no more than its chain.
        days_left: until it ends.
    """

    certificate: str
    authority: str
    days_left: int


class Certificates(Protocol):
    """Keeps certificates. All methods raise ``UnusableCertificateError``; messages hold no key."""

    def keep_issued(self, file: str, hosts: Sequence[str]) -> Vouched:
        """Have one by the platform's authority be shown for hosts, made anew when a third of its life is left."""

    def keep_given(self, file: str, hosts: Sequence[str], certificate: str, key: str) -> Vouched:
        """Have somebody's own be shown for hosts; both may be PEM, or that in base64."""

    def keep_wildcard(self, file: str, hosts: Sequence[str]) -> Vouched:
        """Have the installation's own be shown for hosts."""

    def given_days_left(self) -> dict[str, int]:
        """Return how long those hold that the operator has put there: files, and days."""

    def withdraw(self, prefix: str, besides: Collection[str]) -> None:
        """Show no more those that begin so, besides some."""
