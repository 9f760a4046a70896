"""The form in which a node keeps what is declared: users as well as spaces and addresses."""

from __future__ import annotations

from typing import Any, Final

Record = dict[str, Any]
"""An entity's attributes, with its name."""

MAX_NAME_BYTES: Final = 320
"""The longest name: a key of the journal holds it."""
