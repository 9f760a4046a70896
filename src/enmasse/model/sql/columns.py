"""The columns of a query's result, and a check that the columns it names exist, as far as that is known.

Rules:
1. Where the columns of anything in sight are not known, or Spark adds columns by itself, nothing is refused.
2. Spark compares names without regard to case, and so does this.
3. Names of one SELECT's results count in all of it: Spark lets later expressions use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from enmasse.model.sql.dialect import place_of
from enmasse.model.sql.sql import Columns, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_ADDED_BY_SPARK = frozenset({"window", "session_window"})  # what grouping by such a call is called


@dataclass(frozen=True, slots=True)
class _Scope:
    """The names in scope of a SELECT: the relations behind FROM, by the names they have there."""

    sources: tuple[tuple[str, Columns], ...]
    given: frozenset[str]
    outer: _Scope | None

    def is_known(self) -> bool:
        return all(columns is not None for _, columns in self.sources) and (
            self.outer is None or self.outer.is_known()
        )

    def has(self, name: str) -> bool:
        own = any(columns and name in _lower(columns) for _, columns in self.sources)
        return own or name in self.given or (self.outer is not None and self.outer.has(name))

    def source(self, name: str) -> tuple[str, Columns] | None:
        found = next((item for item in self.sources if item[0] == name), None)
        return found or (self.outer.source(name) if self.outer else None)

    def names(self) -> Iterator[str]:
        for _, columns in self.sources:
            yield from _lower(columns or ())


def columns_of(tree: exp.Expr, relations: Mapping[str, Columns], text: str) -> Columns:
    """Return the names of a query's columns; None where they are not known.

    Raises:
        SqlError: it names a column that is not there.
    """
    known = {name.lower(): columns for name, columns in relations.items()}
    return _query(tree, known, None, text)


def _query(query: exp.Expr, relations: Mapping[str, Columns], outer: _Scope | None, text: str) -> Columns:
    given = query.args.get("with_")
    if isinstance(given, exp.With):
        seen = dict(relations)
        for cte in given.expressions:
            inner = _query(cte.this, seen, None, text)
            seen[cte.alias.lower()] = tuple(cte.alias_column_names) or inner
        relations = seen
    if isinstance(query, exp.Subquery):
        return _query(query.this, relations, outer, text)
    if isinstance(query, exp.SetOperation):
        found = _query(query.this, relations, outer, text)
        _query(query.expression, relations, outer, text)
        return found
    return _select(query, relations, outer, text) if isinstance(query, exp.Select) else None


def _select(select: exp.Select, relations: Mapping[str, Columns], outer: _Scope | None, text: str) -> Columns:
    sources = tuple(_sources(select, relations, text))
    given = frozenset(name.lower() for item in select.expressions for name in _names_given(item))
    scope = _Scope(sources, given, outer)
    _check_names(select, scope, relations, text, is_top=True)
    return _results(select, sources)


def _sources(select: exp.Select, relations: Mapping[str, Columns], text: str) -> Iterator[tuple[str, Columns]]:
    origin = select.args.get("from_")
    items: list[exp.Expr] = [origin.this] if origin is not None else []
    items += [join.this for join in select.args.get("joins") or ()]
    while items:
        item = items.pop(0)
        items += [join.this for join in item.args.get("joins") or ()]
        named = tuple(item.alias_column_names) if isinstance(item, exp.Table | exp.Subquery | exp.Values) else ()
        match item:
            case exp.Table(this=exp.Identifier()):
                yield item.alias_or_name.lower(), named or relations.get(item.name.lower())
            case exp.Subquery(this=exp.Table() as table):
                items.append(table)
            case exp.Subquery():
                yield item.alias_or_name.lower(), named or _query(item, relations, None, text)
            case _:
                yield item.alias_or_name.lower(), named or None
    for lateral in select.args.get("laterals") or ():
        alias = lateral.args.get("alias")
        columns = tuple(column.name for column in alias.columns) if alias is not None else ()
        yield (alias.name.lower() if alias is not None else ""), columns or None


def _names_given(item: exp.Expr) -> Iterator[str]:
    match item:
        case exp.Alias():
            yield item.alias
        case exp.Aliases():
            yield from (alias.name for alias in item.aliases)


def _check_names(
    node: exp.Expr, scope: _Scope, relations: Mapping[str, Columns], text: str, *, is_top: bool = False
) -> None:
    """Check the columns below a part of a SELECT; a query within is checked with this one as its outer scope."""
    pending = [(node, frozenset[str](), is_top)]
    while pending:
        part, arguments, is_select = pending.pop()
        if isinstance(part, exp.Query) and not is_select:
            if not isinstance(part.parent, exp.From | exp.Join | exp.CTE):
                _query(part, relations, scope, text)
            continue
        if isinstance(part, exp.With) or (isinstance(part, exp.Star) and _is_of_structure(part, scope)):
            continue  # what a structure's star leaves out are fields
        if isinstance(part, exp.Lambda):
            arguments |= {name.name.lower() for name in part.expressions}
        if isinstance(part, exp.Column):
            _check_column(part, scope, arguments, text)
        pending += [(child, arguments, False) for child in part.iter_expressions()]


def _is_of_structure(star: exp.Star, scope: _Scope) -> bool:
    """Return whether a star means the fields of a structure, and not the columns of relations."""
    above = star.parent
    return isinstance(above, exp.Dot) or (
        isinstance(above, exp.Column) and bool(above.table) and scope.source(above.table.lower()) is None
    )


def _check_column(column: exp.Column, scope: _Scope, arguments: frozenset[str], text: str) -> None:
    is_star = isinstance(column.this, exp.Star)
    name, owner = column.name.lower(), column.table.lower()
    first = owner or name
    if first in arguments or first in _ADDED_BY_SPARK or not scope.is_known():
        return
    if owner:
        source = scope.source(owner)
        if scope.has(owner):
            return  # a structure, which may be called as its relation is
        if source is None:
            place = column.args["table"]
            _refuse(f"there is no relation or column '{column.table}'", owner, scope, place, text)
        elif not is_star and source[1] is not None and name not in _lower(source[1]):
            _refuse(f"'{column.table}' has no column '{column.name}'", name, scope, column, text)
    elif not is_star and not scope.has(name) and scope.source(name) is None:
        _refuse(f"there is no column '{column.name}'", name, scope, column, text)


def _refuse(message: str, name: str, scope: _Scope, place: exp.Expr, text: str) -> None:
    names = list(dict.fromkeys(scope.names()))
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names[:20]) or 'none'}"
    raise SqlError(f"{message}; {hint}", *place_of(place, text))


def _results(select: exp.Select, sources: tuple[tuple[str, Columns], ...]) -> Columns:
    found: list[str] = []
    for item in select.expressions:
        match item:
            case exp.Star() | exp.Column(this=exp.Star()):
                star = item if isinstance(item, exp.Star) else item.this
                owner = item.table.lower() if isinstance(item, exp.Column) else ""
                columns = _starred(owner, sources)
                if columns is None:
                    return None
                left_out = {part.name.lower() for part in star.args.get("except_") or ()}
                found += [column for column in columns if column.lower() not in left_out]
            case exp.Alias() | exp.Aliases():
                found += _names_given(item)
            case exp.Column() | exp.Dot(expression=exp.Identifier()):
                found.append(item.name)
            case _:
                return None  # Spark names it after how it writes it
    return tuple(
        {name.lower(): name for name in reversed(found)}[key] for key in dict.fromkeys(map(str.lower, found))
    )


def _starred(owner: str, sources: tuple[tuple[str, Columns], ...]) -> Columns:
    found: list[str] = []
    matching = [columns for name, columns in sources if not owner or name == owner]
    if owner and not matching:
        return None  # the fields of a struct
    for columns in matching:
        if columns is None:
            return None
        found += columns
    return tuple(found)


def _lower(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str.lower, columns))
