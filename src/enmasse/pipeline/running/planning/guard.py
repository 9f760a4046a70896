"""SQL that users write, held to what it may do: once by its text, and again by Spark's own reading of it.

Rules:
1. One query, parsed by Spark as one that only reads; commands run at once when Spark is given them.
2. It is analysed in a session whose registry holds the listed functions alone, over empty tables with the
   columns of the declared relations. What resolves there is what it says.
3. What it reads in the end are the declared relations and nothing else.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException

from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, TABLE_FUNCTIONS
from enmasse.model.sql.sql import SqlError, checked_sql
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.logical_plans import analyzed, each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql._typing import UserDefinedFunctionLike
    from pyspark.sql.types import StructType

_OF_QUERIES: Final = re.compile(r"org\.apache\.spark\.sql\.catalyst\.(?:plans\.logical|analysis)\.")
"""The packages of the plans that a query is parsed to; HAVING and names of relations are in the second."""
_FORBIDDEN_PLANS: Final = frozenset({"ScriptTransformation", "InsertIntoStatement"})

_LEAVES: Final = frozenset({"LogicalRDD", "LocalRelation", "OneRowRelation", "Range", "CTERelationRef"})
"""The tables that stand for relations, rows that are written out, and names that WITH gives within the query."""

_WORDS: Final = frozenset({"and", "between", "case", "div", "in", "not", "or", "when"})
"""Operators that are words."""


SPARKS_WORDS: Final = "Spark says: "
"""Stands before an error in words that are not ours."""


class Guard:
    """Judges queries in a session of its own.

    Args:
        spark: a session; another one is made of it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark.newSession()
        self._lock = threading.Lock()
        state = _state(self._session)
        registries = {state.functionRegistry(): ALLOWED_FUNCTIONS, state.tableFunctionRegistry(): TABLE_FUNCTIONS}
        for registry, allowed in registries.items():
            for identifier in each(registry.listFunction()):
                name = str(identifier.funcName()).lower()
                # Operators are listed too; they compute and have no other name.
                if name not in allowed and name[0].isalpha() and name not in _WORDS:
                    registry.dropFunction(identifier)

    def check(
        self,
        place: str,
        text: str,
        relations: Mapping[str, StructType],
        functions: Mapping[str, UserDefinedFunctionLike] = MappingProxyType({}),
    ) -> str:
        """Make sure that a query only reads, and only these relations.

        Args:
            place: the field it stands in, for the error.
            text: the query.
            relations: columns by name.
            functions: those of the pipeline's own that it may call, by name.

        Returns:
            The query to run.

        Raises:
            PlanError: it does something else, or Spark does not understand it.
        """
        try:
            columns = {name: tuple(schema.names) for name, schema in relations.items()}
            text = checked_sql(text, columns, functions).canonical
        except SqlError as error:
            raise PlanError(f"{place}: {error}") from None
        try:
            plan = _state(self._session).sqlParser().parsePlan(text)
        except ParseException as error:
            raise PlanError(f"{place}: {SPARKS_WORDS}{sentence_of(error)}") from None
        for name in _nodes(plan):
            if name in _FORBIDDEN_PLANS or name.endswith(("Command", "Statement")):
                raise PlanError(f"{place}: expected one query that reads relations, got {name}")
        if not _OF_QUERIES.match(plan.getClass().getName()):
            raise PlanError(f"{place}: expected one query that reads relations, got {plan.nodeName()}")
        with self._lock:
            for name, function in functions.items():
                self._session.udf.register(name, function)
            for name, schema in relations.items():
                self._session.createDataFrame([], schema).createOrReplaceTempView(quote_identifier(name))
            try:
                # Lazy: what was parsed as a query is analysed here and never run.
                leaves = leaves_of(self._session.sql(text))
            except AnalysisException as error:
                raise PlanError(f"{place}: {SPARKS_WORDS}{sentence_of(error)}") from None
            finally:
                for name in relations:
                    self._session.catalog.dropTempView(name)
                for name in functions:
                    self._session.sql(f"DROP TEMPORARY FUNCTION {quote_identifier(name)}")
        if strange := leaves - _LEAVES:
            raise PlanError(f"{place}: it reads {', '.join(sorted(strange))}, which is none of the relations")
        return text


def leaves_of(frame: DataFrame) -> set[str]:
    """Return what an analysed query reads, by Spark's names of plans."""
    found: set[str] = set()
    _collect(analyzed(frame), found)
    return found


def _collect(plan: Any, found: set[str]) -> None:
    children = [*each(plan.children()), *each(plan.subqueriesAll())]
    if not children:
        found.add(str(plan.nodeName()))
    for child in children:
        _collect(child, found)


def _nodes(plan: Any) -> set[str]:
    names = {str(plan.nodeName())}
    for child in [*each(plan.children()), *each(plan.subqueries()), *each(plan.innerChildren())]:
        if hasattr(child, "nodeName"):
            names |= _nodes(child)
    return names


def _state(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState()  # its functions are known there alone
