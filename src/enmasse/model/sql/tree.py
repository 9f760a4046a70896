"""The check of a parsed query against the lists of allowed syntax, relations and functions.

``sql`` imports this when there is SQL to check: the parser is slow to load.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from enmasse.model.sql.columns import columns_of
from enmasse.model.sql.ddl import name_problem
from enmasse.model.sql.dialect import place_of, read, tokens_of, write
from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, REASONS, TABLE_FUNCTIONS
from enmasse.model.sql.sql import CheckedSql, Columns, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping


# The parts that each kind of syntax may have.
_QUERY = frozenset({"with_", "this", "alias", "order", "limit", "offset"})
_ALLOWED_PARTS: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Select: frozenset(
        {
            *_QUERY,
            *("expressions", "distinct", "from_", "laterals", "joins", "where", "group", "having"),
        }
    ),
    exp.Union: _QUERY | {"expression", "distinct"},
    exp.Except: _QUERY | {"expression", "distinct"},
    exp.Intersect: _QUERY | {"expression", "distinct"},
    exp.Subquery: _QUERY | {"joins"},
    exp.Table: frozenset({"this", "alias", "joins"}),
    exp.Join: frozenset({"this", "on", "side", "kind", "using", "method"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Lateral: frozenset({"this", "view", "outer", "alias"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Star: frozenset({"except_"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over"}),
    exp.Limit: frozenset({"expression"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Cast: frozenset({"this", "to", "safe"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
}
_ALLOWED: Final = frozenset(
    {
        *_ALLOWED_PARTS,
        *(exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Offset, exp.Cube, exp.Rollup, exp.GroupingSets),
        *(exp.Alias, exp.Aliases, exp.TableAlias, exp.Identifier, exp.Dot, exp.Bracket, exp.Lambda, exp.Tuple),
        *(exp.Literal, exp.RawString, exp.HexString, exp.Boolean, exp.Null, exp.Var, exp.Paren, exp.Values),
        *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT),
        *(exp.LTE, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Exists),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Concat),
        *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.BitwiseLeftShift),
        *(exp.BitwiseRightShift, exp.Case, exp.If, exp.DataType, exp.DataTypeParam, exp.ColumnDef),
        *(exp.Interval, exp.IntervalSpan, exp.Extract, exp.Trim, exp.StrPosition, exp.Substring, exp.Overlay),
        *(exp.CurrentDate, exp.CurrentTimestamp, exp.Filter, exp.WindowSpec, exp.WithinGroup, exp.IgnoreNulls),
        *(exp.RespectNulls,),
    }
)
_IN_WORDS: Final[dict[type[exp.Expr], str]] = {
    exp.Pivot: "PIVOT and UNPIVOT are not taken: write max(v) FILTER (WHERE n = 'a') AS a for each column, or for "
    "rows LATERAL VIEW stack(2, 'a', a, 'b', b) t AS n, v",
    exp.TableSample: "TABLESAMPLE is not taken: it gives other rows each time",
    exp.Into: "INTO is not taken: a sink says where the rows go",
    exp.QueryTransform: "TRANSFORM with a script is not taken",
    exp.Command: "only a query is taken",
    exp.JSONExtract: "'->' is not taken here: use get_json_object or from_json",
    exp.Kwarg: "arguments by name are not taken",
    exp.Placeholder: "parameters are not taken",
    exp.Parameter: "variables are not taken",
    exp.SessionParameter: "variables are not taken",
    exp.Sort: "SORT BY is not taken: ORDER BY orders all rows",
    exp.Distribute: "DISTRIBUTE BY is not taken: Spark lays rows out by itself, so leave it out",
    exp.Cluster: "CLUSTER BY is not taken: ORDER BY orders all rows",
    exp.Fetch: "FETCH is not taken: LIMIT says the same",
    exp.Qualify: "QUALIFY is not taken: compute it in a subquery of FROM, and ask for it in WHERE",
}

# Names that Spark fills in by itself where there is no such column, or that show files.
_REFUSED_NAMES = frozenset(
    {"_metadata", "current_catalog", "current_database", "current_schema", "current_user", "session_user"}
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTED = 20
_UNITS = frozenset(
    "YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND".split()  # noqa: SIM905
)
_WITH_UNITS = frozenset({"date_add", "dateadd", "date_diff", "datediff", "timestampadd", "timestampdiff"})
_BY_SYNTAX = frozenset({"timestampadd", "timestampdiff"})  # functions that the grammar knows, not the registry

# Words that stand before a bracket and call nothing.
_SYNTAX_WORDS = frozenset(
    """
    all and any as between by case cast cube decimal distinct div else end escape except exists extract filter from
    group having ilike in intersect interval is join lateral like not on or outer over overlay rlike rollup select
    semi sets string struct substring then trim try_cast union using values varchar char when where with
    """.split()  # noqa: SIM905
)


def check(text: str, relations: Mapping[str, Columns], own: frozenset[str] = frozenset()) -> CheckedSql:
    """Return what a text means as a query.

    Args:
        text: the text as it was written.
        relations: those that it may read, by name.
        own: functions of the user's own that it may call.

    Raises:
        SqlError: it is none that may be run.
    """
    declared = {name.lower(): name for name in relations}
    tree = read(text)
    names, functions = _examine(tree, text, declared, own)
    columns = columns_of(tree, relations, text)
    canonical = write(tree)
    again = read(canonical)
    if _examine(again, canonical, declared, own)[0] != names or write(again) != canonical:
        raise SqlError("this query cannot be written in one way only; write it more simply")
    return CheckedSql(canonical, frozenset(names), frozenset(functions | _calls_of(canonical, own)), columns)


def check_alone(text: str) -> None:
    """Check a text as far as that can be done without the relations that there are.

    Raises:
        SqlError: it is none that may be run, whatever it reads.
    """
    _examine(read(text), text, None, frozenset())


def _examine(
    tree: exp.Expression, text: str, declared: Mapping[str, str] | None, own: frozenset[str]
) -> tuple[set[str], set[str]]:
    """Check every part of a tree; return its relations and functions.

    Args:
        tree: the tree of the text.
        text: the text, as it was written.
        declared: the relations, by their names in lower case; None: any there may be.
        own: functions of the user's own.
    """
    functions: set[str] = set()
    read_names: set[str] = set()
    for node in list(tree.walk()):
        _check_syntax(node, text)
        match node:
            case exp.Table():
                _check_table(node, text, declared, read_names)
            case exp.Anonymous():
                functions.add(_check_function(node, text, own))
            case exp.Lateral():
                _check_lateral(node, text)
            case exp.Dot():
                _check_dot(node, text)
            case exp.Lambda():
                _check_lambda(node, text)
            case exp.Identifier():
                _check_name(node, text)
            case exp.Select() if not node.expressions:
                _refuse("something is missing after SELECT", node, text)
    return read_names, functions


def _refuse(message: str, node: exp.Expr, text: str) -> NoReturn:
    raise SqlError(message, *place_of(node, text))


def _check_syntax(node: exp.Expr, text: str) -> None:
    kind = type(node)
    if kind not in _ALLOWED:
        _refuse(_IN_WORDS.get(kind, f"{_syntax_name(kind)} is not taken"), node, text)
    allowed = _ALLOWED_PARTS.get(kind)
    if allowed is None:
        return
    for part, value in node.args.items():
        if value and part not in allowed:
            child = value[0] if isinstance(value, list) else value
            if part in ("db", "catalog"):
                _refuse("expected the name of a relation, without a dot", node, text)
            if part == "recursive":
                _refuse("WITH RECURSIVE is not taken", node, text)
            message = _IN_WORDS.get(type(child), f"{part.strip('_').upper()} is not taken")
            _refuse(message, child if isinstance(child, exp.Expr) else node, text)


def _syntax_name(kind: type[exp.Expr]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).upper()


def _check_table(table: exp.Table, text: str, declared: Mapping[str, str] | None, read_names: set[str]) -> None:
    this = table.this
    if isinstance(this, exp.Anonymous):
        name = _check_function(this, text)
        if name not in TABLE_FUNCTIONS:
            expected = ", ".join(sorted(TABLE_FUNCTIONS))
            _refuse(f"{name}() gives no relation; expected one of {expected}", table, text)
        return
    if not isinstance(this, exp.Identifier):
        _refuse("expected the name of a relation", table, text)
    name = this.name.lower()
    if declared is None or _is_of_with(table, name):
        return
    if name not in declared:
        near = get_close_matches(name, declared, n=1)
        # What is about another relation has a colon in its name.
        listed = [one for one in declared.values() if ":" not in one]
        there = ", ".join(listed[:_LISTED]) + (f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else "")
        hint = f"there are {there or 'none'}"
        if near:
            others = f" There are {there}" if len(listed) > 1 else ""
            hint = f"did you mean '{declared[near[0]]}'?{others}"
        _refuse(f"there is no relation '{this.name[:80]}'; {hint}", table, text)
    this.set("this", declared[name])
    read_names.add(declared[name])


def _is_of_with(table: exp.Table, name: str) -> bool:
    """Return True if a name refers to a WITH of the same or an outer query, seen from where it stands."""
    inner: exp.Expr = table
    while (outer := inner.parent) is not None:
        if isinstance(outer, exp.With):
            # Within a WITH, only what stands before is known.
            before = outer.expressions[: outer.expressions.index(inner)] if isinstance(inner, exp.CTE) else []
            if any(cte.alias.lower() == name for cte in before):
                return True
            inner = outer.parent or outer  # the query it belongs to does not count once more
            continue
        given = outer.args.get("with_")
        if isinstance(given, exp.With) and any(cte.alias.lower() == name for cte in given.expressions):
            return True
        inner = outer
    return False


def _check_function(call: exp.Anonymous, text: str, own: frozenset[str] = frozenset()) -> str:
    if not isinstance(call.this, str):
        _refuse("the name of a function stands without quotes", call, text)
    name = call.this.lower()
    if name not in ALLOWED_FUNCTIONS and name not in _BY_SYNTAX and name not in own:
        if name in REASONS:
            _refuse(f"{name}() may not be called: {REASONS[name]}", call, text)
        near = get_close_matches(name, ALLOWED_FUNCTIONS | own, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}()?" if near else ""
        _refuse(f"{name[:80]}() is not among the functions that may be called{hint}", call, text)
    if name in _WITH_UNITS and len(call.expressions) == 3:
        _settle_unit(call, text)
    return name


def _settle_unit(call: exp.Anonymous, text: str) -> None:
    """Have the unit of ``dateadd(DAY, 1, ts)`` be a word: in quotes it would be a column."""
    first = call.expressions[0]
    if isinstance(first, exp.Var):
        return
    if not isinstance(first, exp.Column) or first.name.upper() not in _UNITS or first.table:
        _refuse(f"expected a unit such as DAY or HOUR in {call.this}()", first, text)
    first.replace(exp.Var(this=first.name.upper()))


def _check_lateral(lateral: exp.Lateral, text: str) -> None:
    call = lateral.this
    if not lateral.args.get("view") or not isinstance(call, exp.Anonymous):
        _refuse("of LATERAL only LATERAL VIEW explode(...) and its like are taken", lateral, text)
    if call.name.lower() not in TABLE_FUNCTIONS - {"range"}:
        expected = ", ".join(sorted(TABLE_FUNCTIONS - {"range"}))
        _refuse(f"{call.name}() gives no rows; expected one of {expected}", lateral, text)
    alias = lateral.args.get("alias")
    if alias is not None and alias.this is not None and not _PLAIN_NAME.fullmatch(alias.name):
        _refuse("expected a name of letters, digits and '_' for what LATERAL VIEW gives", lateral, text)


def _check_dot(dot: exp.Dot, text: str) -> None:
    if not isinstance(dot.expression, exp.Identifier | exp.Star):
        _refuse("behind a dot stands the name of a field", dot, text)


def _check_lambda(function: exp.Lambda, text: str) -> None:
    # Where they are used, the arguments of a lambda are written without quotes.
    for argument in function.expressions:
        if not _PLAIN_NAME.fullmatch(argument.name):
            _refuse("expected a name of letters, digits and '_' before '->'", argument, text)


def _check_name(name: exp.Identifier, text: str) -> None:
    if name.name.lower() in _REFUSED_NAMES:
        _refuse(f"'{name.name}' is not taken as a name", name, text)
    if problem := name_problem(name.name):
        _refuse(problem, name, text)


def _calls_of(canonical: str, own: frozenset[str]) -> set[str]:
    """Return the functions that a text calls for Spark: every word before a bracket that is no known syntax.

    Raises:
        SqlError: there is one that may not be called: the tree was not what the text is.
    """
    found = set()
    tokens = tokens_of(canonical)
    for word, bracket in pairwise(tokens):
        if bracket.token_type is not TokenType.L_PAREN or word.token_type in (
            TokenType.IDENTIFIER,
            TokenType.STRING,
            TokenType.NUMBER,
        ):
            continue
        name = word.text.lower()
        if not _PLAIN_NAME.fullmatch(name) or (name in _SYNTAX_WORDS and name not in ALLOWED_FUNCTIONS):
            continue
        if name not in ALLOWED_FUNCTIONS and name not in _BY_SYNTAX and name not in own:
            raise SqlError(f"{name[:80]}() may not be called")
        found.add(name)
    return found - _SYNTAX_WORDS | (found & {"decimal", "filter", "struct"})
