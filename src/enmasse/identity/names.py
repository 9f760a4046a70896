"""What spaces and users may be called where people write their names."""

from __future__ import annotations

from enmasse.errors import RemoteError
from enmasse.identity.errors import UsersFileError
from enmasse.wire.amqp.saslprep import saslprep

__all__ = ["MAX_NAME_LENGTH", "space_name", "user_name"]

MAX_NAME_LENGTH = 255


def space_name(text: str) -> str:
    """``<namespace>/<space>``; a space alone lies in the namespace ``default``.

    Raises:
        UsersFileError: it is no such name.
    """
    words = text.split("/")
    if len(words) > 2 or not all(words) or any(letter.isspace() for letter in text):
        raise UsersFileError(f"{text!r:.100} names no space; NAMESPACE/SPACE is expected, such as default/shop")
    return text if len(words) == 2 else f"default/{text}"


def user_name(text: str) -> str:
    """A user's name as it is compared.

    Raises:
        UsersFileError: it cannot be a name.
    """
    try:
        name = saslprep(text)
    except RemoteError as error:
        raise UsersFileError(f"{text!r:.100} cannot be a user's name: {error.description}") from None
    if not 1 <= len(name) <= MAX_NAME_LENGTH or any(letter.isspace() for letter in name):
        raise UsersFileError(
            f"{text!r:.100} cannot be a user's name: it has 1 to {MAX_NAME_LENGTH} characters and no white space"
        )
    return name
