"""Spark's expressions: which of them can fail for a row, how that becomes a value, and what it is called.

``TryEval`` of Spark gives NULL for whatever an expression raises. A structure is never NULL, so that
``TryEval(struct(e))`` is NULL if ``e`` raised, and has its value, NULL or not, if it did not.

Spark computes once, and first, what is in several expressions of a row, and so outside of ``TryEval``; but leaves
what is within a condition there. Therefore each stands in one that is always true, which Spark does not see through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from enmasse.pipeline.far_moments import PANDAS_BOUNDS
from enmasse.pipeline.running.logical_plans import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAFE: Final = frozenset(
    {
        "Alias", "And", "AtLeastNNonNulls", "AttributeReference", "CaseWhen", "Coalesce", "Contains", "CreateArray",
        "CreateNamedStruct", "DayOfMonth", "DayOfWeek", "EndsWith", "EqualNullSafe", "EqualTo", "GetStructField",
        "GreaterThan", "GreaterThanOrEqual", "Greatest", "Hour", "If", "In", "InSet", "IsNaN", "IsNotNull", "IsNull",
        "KnownNotNull", "KnownNullable", "Least", "Length", "LessThan", "LessThanOrEqual", "Literal", "Lower",
        "Minute", "Month", "NaNvl", "Not", "Or", "Second", "StartsWith", "StringTrim", "Substring", "TryEval",
        "Upper", "Year",
    }
)  # fmt: skip
"""The expressions that raise nothing themselves. Of all others it is assumed that they may."""

_OF_NUMBERS: Final = frozenset({"Abs", "Add", "Multiply", "Subtract", "UnaryMinus"})
_DIVISIONS: Final = frozenset({"Divide", "IntegralDivide", "Pmod", "Remainder"})
_INDICES: Final = frozenset({"ElementAt", "GetArrayItem"})
_CONDITIONS: Final = frozenset({"And", "CaseWhen", "Coalesce", "If", "In", "Or"})
"""The expressions of which not all parts are computed for each row."""
_FLOATING: Final = frozenset({"DoubleType", "FloatType"})
_MARKS: Final = ("spark.timeWindow", "spark.sessionWindow")
"""Metadata of what Spark itself computes of windows: whole numbers, and no others than moments have."""

MAX_NODES: Final = 12
"""Expressions of a row that are looked at one by one for what failed: the code for it grows with them."""
_UNKNOWN: Final = "it cannot be computed"
_LONGEST: Final = 80
"""Characters of an expression, and of a value, in a reason."""


class Expressions:
    """Makes expressions of Spark's, and judges those that there are.

    Args:
        spark: any session.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst.expressions
        self._cast = module(self._catalyst, "Cast")
        self._literal = module(self._catalyst, "Literal")
        self._none = module(self._jvm.scala, "None")

    def seq(self, items: Sequence[Any]) -> Any:
        """Return a sequence of Scala's."""
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)

    def alias(self, expression: Any, name: str, like: Any = None) -> Any:
        """Return an expression with a name, and with the id and the metadata of another one if that is given."""
        new = module(self._catalyst, "NamedExpression").newExprId() if like is None else like.exprId()
        qualifier = self.seq([]) if like is None else like.qualifier()
        metadata = self._none if like is None else like.explicitMetadata()
        return self._catalyst.Alias(expression, name, new, qualifier, metadata, self.seq([]))

    def literal(self, value: str | int) -> Any:
        """Return a value as an expression."""
        return self._literal.apply(value)

    def struct(self, values: Sequence[Any]) -> Any:
        """Return a structure of values."""
        parts = [part for index, value in enumerate(values) for part in (self.literal(f"c{index}"), value)]
        return self._catalyst.CreateNamedStruct(self.seq(parts))

    def field(self, structure: Any, index: int) -> Any:
        """Return a field of a structure."""
        return self._catalyst.GetStructField(structure, index, self._none)

    def tried(self, values: Sequence[Any]) -> Any:
        """Return a structure of values that is NULL where one of them cannot be computed."""
        structure = self.struct(values)
        column = next((one for value in values for one in _attributes(value)), None)
        tried = self._catalyst.TryEval(structure)
        if column is None:
            return tried
        always = self._catalyst.AtLeastNNonNulls(0, self.seq([column]))
        return self._catalyst.If(always, tried, self._catalyst.Literal(None, structure.dataType()))

    def failed(self, value: Any) -> Any:
        """Return whether a value cannot be computed."""
        return self.is_null(self._catalyst.TryEval(self.struct([value])))

    def is_null(self, value: Any) -> Any:
        """Return whether a value is NULL."""
        return self._catalyst.IsNull(value)

    def negated(self, condition: Any) -> Any:
        """Return whether a condition is not true."""
        return self._catalyst.Not(condition)

    def all_of(self, conditions: Sequence[Any]) -> Any:
        """Return whether all of some conditions are true."""
        return reduce(self._catalyst.And, conditions)

    def any_of(self, conditions: Sequence[Any]) -> Any:
        """Return whether one of some conditions is true."""
        return reduce(self._catalyst.Or, conditions)

    def unless(self, problem: Any, reason: Any, value: Any) -> Any:
        """Return a value that raises a reason where there is a problem."""
        raised = self._catalyst.RaiseError(
            self.literal("USER_RAISED_EXCEPTION"),
            self._catalyst.CreateMap(self.seq([self.literal("errorMessage"), reason])),
            value.dataType(),
        )
        return self._catalyst.If(problem, raised, value)

    def for_pandas(self, value: Any) -> Any:
        """Return a value that raises an error where it is a moment that pandas does not hold."""
        kind = value.dataType()
        if kind_of(kind) not in PANDAS_BOUNDS:
            return value
        least, most = (self._catalyst.Literal(bound, kind) for bound in PANDAS_BOUNDS[kind_of(kind)])
        is_beyond = self.any_of([self._catalyst.LessThan(value, least), self._catalyst.GreaterThan(value, most)])
        reason = self.literal(f"{fragment_of(value)}: a moment that pandas does not hold")
        return self.unless(is_beyond, reason, value)

    def written_out(self, expression: Any, named: Mapping[str, Any] | None = None) -> Any:
        """Return an expression that can be taken apart: Spark names what BETWEEN and NULLIF compare, and has it once.

        Args:
            expression: the expression, which may have such names.
            named: the expressions that stand for the names that are known around it.
        """
        known, kind = named or {}, kind_of(expression)
        if kind == "CommonExpressionRef":
            return known.get(str(expression.id()), expression)
        if kind == "Between":
            return self.written_out(expression.child(), known)  # its two comparisons are conditions of their own
        if kind == "With":
            made = {str(one.id()): self.written_out(one.child(), known) for one in each(expression.defs())}
            return self.written_out(expression.child(), {**known, **made})
        former = each(expression.children())
        new = [self.written_out(one, known) for one in former]
        if all(one is other for one, other in zip(new, former, strict=True)):
            return expression
        return expression.withNewChildren(self.seq(new))

    def is_safe(self, expression: Any) -> bool:
        """Return whether an expression raises for no row."""
        if kind_of(expression) == "Alias" and _is_window(expression):
            # Its own arithmetic cannot; what it is made of may.
            return not any(
                kind_of(node) == "Cast" and not self._is_safe_itself(node) for node in nodes_of(expression)
            )
        return self._is_safe_itself(expression) and all(map(self.is_safe, each(expression.children())))

    def _is_safe_itself(self, expression: Any) -> bool:
        kind = kind_of(expression)
        if kind in _SAFE:
            return True
        if kind in _OF_NUMBERS:
            return kind_of(expression.dataType()) in _FLOATING
        if kind == "Cast":
            given, wanted = expression.child().dataType(), expression.dataType()
            # Moments reach less far than dates and numbers.
            is_of_moment = kind_of(wanted).startswith("Timestamp") and not kind_of(given).startswith("Timestamp")
            return not is_of_moment and bool(self._cast.canUpCast(given, wanted))
        return False

    def reason(self, values: Sequence[tuple[str, Any]]) -> Any:
        """Return why one of several values cannot be computed, as a text; computed where that is so.

        Args:
            values: each with what it is called; empty: nothing else than it is.
        """
        branches: list[Any] = []
        for name, value in values:
            found = list(self._reasons(self.written_out(value)))
            if len(branches) + len(found) <= MAX_NODES:
                branches += [self._branch(failed, name, words) for failed, words in found]
            said = self.literal(f"{fragment_of(value)}: {_UNKNOWN}")
            branches.append(self._branch(self.failed(value), name, said))
        otherwise = self._jvm.scala.Some(self.literal(_UNKNOWN))  # as it may not fail a second time
        return self._catalyst.CaseWhen(self.seq(branches), otherwise)

    def _branch(self, failed: Any, name: str, words: Any) -> Any:
        said = self._catalyst.Concat(self.seq([self.literal(f"{name}: "), words])) if name else words
        return self._jvm.scala.Tuple2(failed, said)

    def _reasons(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield for parts of a value, each after its own parts, whether they fail, and the words for it."""
        kind = kind_of(value)
        if kind == "If":
            # Spark casts to the type of the other value.
            raised = value.trueValue().child() if kind_of(value.trueValue()) == "Cast" else value.trueValue()
            if kind_of(raised) == "RaiseError":
                yield value.predicate(), each(raised.errorParms().children())[1]
                return
        if kind in _CONDITIONS or kind == "LambdaFunction":
            return
        for child in each(value.children()):
            yield from self._reasons(child)
        if not self._is_safe_itself(value):
            yield self.failed(value), self._words(value)

    def _words(self, value: Any) -> Any:
        kind, fragment = kind_of(value), fragment_of(value)
        overflow = self.literal(f"{fragment}: overflow of {value.dataType().sql()}")
        if kind in _DIVISIONS:
            divisor = value.right()
            is_zero = self._catalyst.EqualTo(divisor, module(self._catalyst, "Literal").default(divisor.dataType()))
            return self._catalyst.If(is_zero, self.literal(f"{fragment}: division by zero"), overflow)
        if kind == "Cast" and kind_of(value.child().dataType()) == "StringType":
            text = self._catalyst.Substring(value.child(), self.literal(1), self.literal(_LONGEST))
            parts = [self.literal(f"{fragment}: '"), text, self.literal(f"' is no {value.dataType().sql()}")]
            return self._catalyst.Concat(self.seq(parts))
        if kind in _OF_NUMBERS:
            return overflow
        if kind in _INDICES:
            return self.literal(f"{fragment}: index out of bounds")
        return self.literal(f"{fragment}: {_UNKNOWN}")


def fragment_of(expression: Any) -> str:
    """Return an expression as it stands in the SQL, or as Spark writes it."""
    origin = expression.origin()
    places = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if all(place.isDefined() for place in places):
        text, start, stop = (place.get() for place in places)
        found = str(text)[start : stop + 1]
    else:
        found = str(expression.sql())
    # What is run is written anew from what was checked, with all names in backticks.
    found = " ".join(found.replace("`", "").split())
    return found if len(found) <= _LONGEST else found[: _LONGEST - 1] + "…"


def module(package: Any, name: str) -> Any:
    """Return an object of Scala's."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def kind_of(thing: Any) -> str:
    """Return what Spark calls a plan, an expression or a type."""
    return str(thing.getClass().getSimpleName()).rstrip("$")


def nodes_of(expression: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of."""
    yield expression
    for child in each(expression.children()):
        yield from nodes_of(child)


def _attributes(expression: Any) -> Iterator[Any]:
    return (node for node in nodes_of(expression) if kind_of(node) == "AttributeReference")


def _is_window(alias: Any) -> bool:
    metadata = alias.explicitMetadata()
    return bool(metadata.isDefined()) and any(metadata.get().contains(mark) for mark in _MARKS)
