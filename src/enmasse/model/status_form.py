"""Statuses that are written through the API, checked like all else that comes from outside."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.kinds import kind_named
from enmasse.model.resource import ResourceStatus
from enmasse.model.schema import explain, without_nulls

__all__ = ["decode_status"]


def decode_status(document: dict[str, Any]) -> ResourceStatus:
    """Return the status that a document of a known kind has.

    Raises:
        InvalidResourceError: with every problem that was found.
    """
    kind = kind_named(document["kind"])
    assert kind is not None
    model = kind.model.model_fields["status"].annotation
    assert isinstance(model, type)
    assert issubclass(model, ResourceStatus)
    try:
        return model.model_validate(without_nulls(document.get("status") or {}), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [
            Problem(f"status.{item.path}" if item.path else "status", item.message) for item in explain(error, model)
        ]
        raise InvalidResourceError(f"{kind.name} {document['metadata']['name']}", problems) from None
