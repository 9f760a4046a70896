"""Judges rows where they are computed: those for which an expression fails are taken out, or have NULL there.

Rules:
1. An expression that may fail is computed once for each row, in a form that gives a value or none. The rows without
   are counted, with an example, and are left out, sent to dead letters, or have NULL in its place.
2. It is done to what Spark has understood of a query: projections, filters, and below groups, joins and generators to
   what those compute of a single row. A value that is computed of a group, or of a pair of rows, is left as it is.
3. Columns keep their names and ids, so that a checkpoint fits what it did before.
4. What is behind the name of a relation was judged where that was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.util import PythonEvalType

from enmasse.pipeline.running.logical_plans import analyzed, each
from enmasse.pipeline.running.steps.expressions import Expressions, kind_of, module, nodes_of

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

FAILED: Final = "failures of "
"""Prefix of the observations that count rows; the relation's name follows, and after ``#`` a number."""
EVERY, COUNT, EXAMPLE = "all", "failed", "example"

LETTER: Final = "value STRING, properties MAP<STRING, STRING>, key STRING"
"""The columns of a dead letter."""

_EXAMPLE: Final = 300
_HIDDEN: Final = "__enmasse_"
_IDS: Final = r"#\d+L?"
_QUERIES: Final = frozenset({"Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"})


@dataclass(frozen=True)
class Judging:
    """The judging of a relation's rows."""

    relation: str
    times: int
    """The number of times that relations were made for queries: what is made again is observed under another name."""
    is_null: bool
    """True if what fails is NULL; else the row is left out."""
    sent: Callable[[str, Column], Column] | None = None
    """Returns of a place in the relation and its column with letters, which is NULL where a row is good, whether that
    is so, and sends the letters; None: the rows are only left out."""
    address: str | None = None
    """The address that the rows came from as they are; None: from none, or from several."""
    is_counted: bool = True
    place: str = ""
    """The place that is judged, if it is not what makes the relation."""


def name_of(observation: str) -> str | None:
    """Return the relation whose judged rows an observation counts; None: it is about something else."""
    return observation.removeprefix(FAILED).partition("#")[0] if observation.startswith(FAILED) else None


def only_good(
    frame: DataFrame, judging: Judging, number: int, failed: Column, reason: Column, letter: Column | None
) -> DataFrame:
    """Return rows that were judged, those counted that fail, and without them where they are to be left out.

    Args:
        frame: the rows.
        judging: their relation.
        number: the number of this place among those of the relation where rows are judged.
        failed: true where a row fails.
        reason: why it does.
        letter: the dead letter of one that fails, else NULL; None: none is sent.
    """
    place = f"{judging.place}{number}"
    counted = frame.observe(f"{FAILED}{judging.relation}#{place}.{judging.times}", *_counts(failed, reason))
    if judging.is_null:
        return counted
    if judging.sent is None or letter is None:
        return counted.where(~failed)
    return counted.where(judging.sent(place, letter))


def _counts(failed: Column, reason: Column) -> list[Column]:
    example = F.max(F.when(failed, F.substring(reason, 1, _EXAMPLE)))
    return [F.count(F.lit(1)).alias(EVERY), F.count_if(failed).alias(COUNT), example.alias(EXAMPLE)]


def letter_of(judging: Judging, reason: Column, rows: Mapping[str, Column]) -> Column:
    """Return a row as a dead letter.

    Args:
        judging: its relation.
        reason: why it is one.
        rows: the columns of a row, by name.
    """
    entries = [F.lit("reason"), reason, F.lit("relation"), F.lit(judging.relation)]
    if judging.address is not None:
        entries += [F.lit("address"), F.lit(judging.address)]
    for place in ("partition", "offset"):
        if f"_{place}" in rows:
            entries += [F.lit(place), F.coalesce(rows[f"_{place}"].cast("string"), F.lit(""))]
    content = [column.alias(name) for name, column in rows.items() if not name.startswith("_")]
    key = rows["_key"].cast("string") if "_key" in rows else F.lit(None).cast("string")
    value = F.to_json(F.struct(*content)) if content else F.lit("{}")
    return F.struct(value.alias("value"), F.create_map(*entries).alias("properties"), key.alias("key"))


class Verdicts:
    """Judges the rows of one relation.

    Args:
        judging: the judging of its rows.
        functions: the pipeline's own of SQL by name, in the form that gives a structure of ``value`` and ``error``.
    """

    def __init__(self, judging: Judging, functions: Mapping[str, UserDefinedFunctionLike]) -> None:
        self._judging = judging
        self._functions = functions
        self._number = 0

    def over(self, frame: DataFrame) -> DataFrame:
        """Return a frame made of relations, with its rows judged."""
        former = analyzed(frame)
        self._spark = frame.sparkSession
        jvm: Any = self._spark._jvm
        self._jvm = jvm
        self._make = Expressions(self._spark)
        self._logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        plan = self._judged(former)
        return frame if plan is former else self._frame(plan)

    def _frame(self, plan: Any) -> DataFrame:
        dataset = module(self._jvm.org.apache.spark.sql.classic, "Dataset")
        return DataFrame(dataset.ofRows(self._spark._jsparkSession, plan), self._spark)

    def _column(self, expression: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def _with(self, child: Any, added: Sequence[Any]) -> Any:
        """Return a plan with more columns."""
        return self._logical.Project(self._make.seq([*each(child.output()), *added]), child)

    def _judged(self, plan: Any) -> Any:
        kind = kind_of(plan)
        if kind == "View":
            return plan
        children = each(plan.children())
        judged = [self._judged(child) for child in children]
        if any(new is not old for new, old in zip(judged, children, strict=True)):
            plan = plan.withNewChildren(self._make.seq(judged))
        known: Mapping[str, Callable[[Any], Any]] = {
            "Project": self._project,
            "Filter": self._filter,
            "Aggregate": self._aggregate,
            "Join": self._join,
            "Generate": self._generate,
        }
        return known[kind](plan) if kind in known else plan

    def _may_fail(self, expression: Any) -> bool:
        """Return whether an expression is to be judged; what has a query of its own within is not."""
        has_query = any(kind_of(node) in _QUERIES for node in nodes_of(expression))
        return not has_query and not self._make.is_safe(expression)

    def _project(self, plan: Any) -> Any:
        columns = each(plan.projectList())
        failing = [column for column in columns if self._may_fail(column)]
        if not failing:
            return plan
        child, values = self._computed(plan.child(), [(str(one.name()), one.child()) for one in failing])
        made = {
            id(one): self._make.alias(value, str(one.name()), one) for one, value in zip(failing, values, strict=True)
        }
        return self._logical.Project(self._make.seq([made.get(id(one), one) for one in columns]), child)

    def _filter(self, plan: Any) -> Any:
        conditions = list(_conjuncts(plan.condition()))
        failing = [one for one in conditions if self._may_fail(one)]
        if not failing:
            return plan
        child = plan.child()
        # What cannot fail comes first: it may be looked at by the source, and leaves fewer rows to fail.
        if safe := [one for one in conditions if all(one is not other for other in failing)]:
            child = self._logical.Filter(self._make.all_of(safe), child)
        child, values = self._computed(child, [("WHERE", one) for one in failing])
        return self._only(plan, self._logical.Filter(self._make.all_of(values), child))

    def _aggregate(self, plan: Any) -> Any:
        keys, results = each(plan.groupingExpressions()), each(plan.aggregateExpressions())
        functions = (node for one in results for node in nodes_of(one) if kind_of(node) == "AggregateExpression")
        inputs = [value for one in functions for value in self._inputs_of(one)]
        failing = self._failing([*keys, *inputs])
        if not failing:
            return plan
        child, replace = self._replacing(plan.child(), failing)
        return self._logical.Aggregate(
            self._make.seq(list(map(replace, keys))), self._make.seq(list(map(replace, results))), child, plan.hint()
        )

    @staticmethod
    def _inputs_of(function: Any) -> list[Any]:
        condition = function.filter()
        given = each(function.aggregateFunction().children())
        return [*given, condition.get()] if condition.isDefined() else given

    def _join(self, plan: Any) -> Any:
        if not plan.condition().isDefined():
            return plan
        conditions = list(_conjuncts(self._make.written_out(plan.condition().get())))
        failing = [one for one in conditions if self._may_fail(one)]
        if not failing:
            return plan
        sides = []
        for side in (plan.left(), plan.right()):
            own = self._failing([part for one in failing for part in _of_side(one, side)])
            side, replace = self._replacing(side, own)  # noqa: PLW2901  # the same with more columns
            sides.append(side)
            conditions = list(map(replace, conditions))
        # A pair of rows for which it cannot be computed is none that it joins.
        conditions = [
            self._make.field(self._make.tried([one]), 0) if self._may_fail(one) else one for one in conditions
        ]
        condition = self._jvm.scala.Some(self._make.all_of(conditions))
        return self._only(plan, self._logical.Join(*sides, plan.joinType(), condition, plan.hint()))

    def _generate(self, plan: Any) -> Any:
        generator = plan.generator()
        failing = self._failing(each(generator.children()))
        if not failing:
            return plan
        child, replace = self._replacing(plan.child(), failing)
        made = self._logical.Generate(
            replace(generator),
            plan.unrequiredChildIndex(),
            plan.outer(),
            plan.qualifier(),
            plan.generatorOutput(),
            child,
        )
        return self._only(plan, made)

    def _only(self, former: Any, plan: Any) -> Any:
        """Return a plan with the columns that another one had in its place."""
        return self._logical.Project(former.output(), plan)

    def _failing(self, expressions: Sequence[Any]) -> list[Any]:
        """Return those of some expressions that may fail for a row, each once; constants are the same for all rows.

        Spark asks for constants in some places, such as the share of ``percentile_approx``.
        """
        found: list[Any] = []
        for one in expressions:
            if not one.foldable() and self._may_fail(one) and not any(one.semanticEquals(other) for other in found):
                found.append(one)
        return found

    def _replacing(self, child: Any, failing: Sequence[Any]) -> tuple[Any, Callable[[Any], Any]]:
        """Return a plan that has computed what may fail, and what has its columns stand for that."""
        if not failing:
            return child, lambda expression: expression
        child, values = self._computed(child, [("", one) for one in failing])
        # They are called what they are: the plan reads, and fits its checkpoint, as it did.
        names = [re.sub(_IDS, "", str(one.toString())) for one in failing]
        made = [self._make.alias(value, name) for value, name in zip(values, names, strict=True)]
        pairs = list(zip(failing, (one.toAttribute() for one in made), strict=True))

        def replace(expression: Any) -> Any:
            column = next((column for one, column in pairs if one.semanticEquals(expression)), None)
            if column is not None:
                return column
            former = each(expression.children())
            new = list(map(replace, former))
            if all(one is other for one, other in zip(new, former, strict=True)):
                return expression
            return expression.withNewChildren(self._make.seq(new))

        return self._with(child, made), replace

    def _computed(self, child: Any, named: Sequence[tuple[str, Any]]) -> tuple[Any, list[Any]]:
        """Return a plan whose rows are judged, and what stands for the values that may fail.

        Args:
            child: the plan of whose rows they are computed.
            named: the values, and what they are called.
        """
        make, rows = self._make, {str(one.name()): one for one in each(child.output())}
        child, lifted = self._lifted(child, [value for _, value in named])
        named = [(name, value) for (name, _), value in zip(named, lifted, strict=True)]
        tried = [make.tried([value]) for value in lifted] if self._judging.is_null else [make.tried(lifted)]
        made = [make.alias(one, f"{_HIDDEN}tried") for one in tried]
        columns = [one.toAttribute() for one in made]
        values = [
            make.field(columns[index], 0) if self._judging.is_null else make.field(columns[0], index)
            for index in range(len(lifted))
        ]
        child = self._with(child, made)
        failed = make.any_of([make.is_null(one) for one in columns])
        if not child.isStreaming() or not self._judging.is_counted:
            # The rows of a table come with each batch: they are counted and sent by none.
            return (child if self._judging.is_null else self._logical.Filter(make.negated(failed), child)), values
        frame, is_failed = self._frame(child), self._column(failed)
        reason = self._column(make.reason(named))
        letter = None
        if self._judging.sent is not None:
            of_row = {name: self._column(one) for name, one in rows.items()}
            made_letter = F.when(is_failed, letter_of(self._judging, reason, of_row)).alias(f"{_HIDDEN}letter")
            frame = frame.select("*", made_letter)
            letter = F.col(f"{_HIDDEN}letter")
            reason = letter["properties"]["reason"]
        frame = only_good(frame, self._judging, self._number, is_failed, reason, letter)
        self._number += 1
        return analyzed(frame.drop(f"{_HIDDEN}letter")), values

    def _lifted(self, child: Any, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return values in which functions of Python are columns of a plan, and that plan.

        Spark calls such a function for all rows, before and outside of what it is within. So what it is called with
        must not fail, and what it raised is raised where its value is needed.
        """
        make = self._make

        def lift(value: Any) -> Any:
            nonlocal child
            former = each(value.children())
            parts = list(map(lift, former))
            if kind_of(value) != "PythonUDF":
                is_same = all(one is other for one, other in zip(parts, former, strict=True))
                return value if is_same else value.withNewChildren(make.seq(parts))
            problem, reason = None, None
            twin = self._functions.get(str(value.name()))
            if twin is not None and value.evalType() == PythonEvalType.SQL_SCALAR_PANDAS_UDF:
                parts = list(map(make.for_pandas, parts))
            if not all(map(make.is_safe, parts)):
                given = make.alias(make.tried(parts), f"{_HIDDEN}given")
                child = self._with(child, [given])
                problem = make.is_null(given.toAttribute())
                reason = make.reason([(str(value.name()), part) for part in parts])
                parts = [make.field(given.toAttribute(), index) for index in range(len(parts))]
            if twin is None:
                called = make.alias(value.withNewChildren(make.seq(parts)), f"{_HIDDEN}called")
                found = called.toAttribute()
            else:
                function: Any = twin
                # The expression that it is in Spark is made there alone.
                call = function._unwrapped._judf.builder(make.seq(parts))  # noqa: SLF001
                called = make.alias(call, f"{_HIDDEN}called")
                found = make.field(called.toAttribute(), 0)
            child = self._with(child, [called])
            if twin is not None:
                error = make.field(called.toAttribute(), 1)
                found = make.unless(make.negated(make.is_null(error)), error, found)
            return found if problem is None else make.unless(problem, reason, found)

        lifted = [lift(value) for value in values]
        return child, lifted


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind_of(condition) != "And":
        yield condition
        return
    yield from _conjuncts(condition.left())
    yield from _conjuncts(condition.right())


def _of_side(expression: Any, side: Any) -> Iterator[Any]:
    """Yield the largest parts of a condition that are computed of the rows of one side."""
    if expression.references().subsetOf(side.outputSet()):
        yield expression
        return
    for child in each(expression.children()):
        yield from _of_side(child, side)
