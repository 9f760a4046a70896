"""Conditions that every row of a table meets: Delta's own, so that other writers keep to them, too.

Rules:
1. A row for which a condition is not true, NULL included, fails its batch, which changes nothing then.
2. A table is given a constraint that its present rows meet, or the query does not start.
3. Those that are not declared any more go; those that others have added stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from deltalake.exceptions import DeltaError
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import TableSchemaError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_DECLARED: Final = "enmasse.constraints"
_PREFIX: Final = "delta.constraints."
_SHOWN: Final = 200
"""Characters of a row that does not meet one."""


def declare_constraints(table: DeltaTable, name: str, wanted: Mapping[str, str]) -> None:
    """Have a table's constraints be those that are declared.

    Raises:
        TableSchemaError: rows that are there do not meet one, or Delta does not understand it.
    """
    properties = table.metadata().configuration
    declared = [one for one in properties.get(_DECLARED, "").split(",") if one]
    if declared == sorted(wanted) and all(properties.get(_PREFIX + one) == wanted[one] for one in declared):
        return
    for one in declared:
        if wanted.get(one) != properties.get(_PREFIX + one):
            table.alter.drop_constraint(one, raise_if_not_exists=False)
    for one, condition in wanted.items():
        if properties.get(_PREFIX + one) != condition:
            try:
                table.alter.add_constraint({one: condition})
            except DeltaError as error:
                said = str(error).splitlines()[0]
                raise TableSchemaError(
                    f"the table {name} cannot have the constraint {one} ({condition}): {said}"
                ) from None
    table.alter.set_table_properties({_DECLARED: ",".join(sorted(wanted))}, raise_if_not_exists=False)
    table.update_incremental()


def meeting(frame: DataFrame, table: str, constraints: Mapping[str, str]) -> DataFrame:
    """Return rows whose evaluation fails where one does not meet a table's constraints."""
    columns = [name for name in frame.columns if name != DELETED]
    row = F.substring(F.to_json(F.struct(*[F.col(quote_identifier(name)) for name in columns])), 1, _SHOWN)
    for name, condition in constraints.items():
        is_met = F.coalesce(F.expr(condition), F.lit(False))
        if DELETED in frame.columns:
            is_met = F.col(DELETED) | is_met
        said = F.concat(F.lit(f"the table {table} has the constraint {name} ({condition}), which a row fails: "), row)
        frame = frame.where(F.when(is_met, F.lit(True)).otherwise(F.raise_error(said).cast("boolean")))
    return frame
