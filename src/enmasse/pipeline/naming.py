"""Names of columns of any characters, where PySpark takes names for paths.

``frame["a.b"]`` is the field ``b`` of a column ``a`` to it, and its own code asks so for the columns that it hands to
Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame as _ClassicFrame

from enmasse.model.sql.ddl import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _NamedFrame(_ClassicFrame):
    """A frame that takes names as they are."""

    def __getitem__(self, item: Any) -> Any:
        return super().__getitem__(quote_identifier(item) if isinstance(item, str) else item)


def by_any_name(frame: DataFrame) -> DataFrame:
    """Return a frame whose rows go to functions of Python whatever their columns are called."""
    return _NamedFrame(frame._jdf, frame.sparkSession)
