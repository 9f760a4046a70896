"""Refusals of the schema registry, with the error codes of Confluent's."""

from __future__ import annotations

from enmasse.errors import EnmasseError


class SchemaRegistryError(EnmasseError):
    """Raised when the registry refuses something.

    Attributes:
        code: the code of the registry; its first three digits are those of HTTP.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The code of HTTP."""
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchemaError(SchemaRegistryError):
    """Raised when a text is no schema of its type."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, f"Invalid schema: {message}")


SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
SUBJECT_DELETED = 40404
SUBJECT_NOT_DELETED = 40405
VERSION_DELETED = 40406
VERSION_NOT_DELETED = 40407
NO_LEVEL_OF_SUBJECT = 40408
INCOMPATIBLE = 409
INVALID_VERSION = 42202
INVALID_LEVEL = 42203
UNPROCESSABLE = 422
