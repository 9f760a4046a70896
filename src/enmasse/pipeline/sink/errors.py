"""What can go wrong when rows become messages.

ConfigError
└── OptionError (of the pipeline)  an option or a column cannot be right
ResourceError
└── RowRefusedError                an address does not take a row, and never will as it is
UnavailableError
├── AddressFullError               a stored address had no room for too long
├── NoConsumerError                nobody receives from a direct address
└── UnansweredError                a receiver has a message, and says nothing
"""

from __future__ import annotations

from enmasse.errors import ResourceError, UnavailableError

__all__ = ["AddressFullError", "NoConsumerError", "RowRefusedError", "UnansweredError"]


class RowRefusedError(ResourceError):
    """An address does not take a row; the message names the address, the row and the reason."""


class AddressFullError(UnavailableError):
    """A stored address took nothing for as long as the sink waits."""


class NoConsumerError(UnavailableError):
    """A direct address had no receiver for as long as the sink waits."""


class UnansweredError(UnavailableError):
    """A receiver of a direct address had a message for as long as the sink waits, and did not answer."""
