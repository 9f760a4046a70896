"""What can go wrong in built-in pipelines beyond what can go wrong in every one.

UnavailableError
└── ModelMissingError    there is no model yet, or none that can be read
"""

from __future__ import annotations

from enmasse.errors import UnavailableError

__all__ = ["ModelMissingError"]


class ModelMissingError(UnavailableError):
    """There is no version of a model to score with; the message says what makes one."""
