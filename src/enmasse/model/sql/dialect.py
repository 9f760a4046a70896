"""Spark's SQL as pipelines have it: text to tree, tree to text, and nothing translated in between.

sqlglot knows hundreds of functions and turns them into one another between dialects. Here a call stays the call that
was written, because what Spark runs is made from the tree.
"""

from __future__ import annotations

from typing import ClassVar, Final

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError, UnsupportedError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from enmasse.model.sql.sql import SqlError

_MAX_TOKENS: Final = 5_000
_MAX_DEPTH: Final = 30  # of brackets; each is about 20 calls of the parser, and Python has 1,000

_MAX_TREE_DEPTH: Final = 400  # hundreds of terms joined by OR are seen; Spark itself ends at some thousands

# The parser uses parts of its input before it has checked them.
_ANY_FAILURE = (SqlglotError, RecursionError, AttributeError, TypeError, ValueError, KeyError, IndexError)

_WITH_WORDS_INSIDE = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
_REFUSED_TOKENS: Final = {
    TokenType.HINT: "hints are not taken",
    TokenType.L_BRACE: "'{' has no meaning here",
    TokenType.PARAMETER: "variables are not taken",
    TokenType.PIPE_GT: "the pipe syntax '|>' is not taken: write SELECT ... FROM ...",
    TokenType.PLACEHOLDER: "parameters are not taken",
    TokenType.SEMICOLON: "expected one query, got ';' and more",
}

_NAMED: Final = [TokenType.ALIAS, TokenType.L_PAREN]
"""The words between the name of a window and what it is."""


class _Dialect(Spark):
    class Tokenizer(Spark.Tokenizer):
        # `window` is a function of streams far more often than the clause that names windows.
        KEYWORDS: ClassVar = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in _WITH_WORDS_INSIDE}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        NO_PAREN_FUNCTIONS: ClassVar = {
            kind: SparkParser.NO_PAREN_FUNCTIONS[kind]
            for kind in (TokenType.CURRENT_DATE, TokenType.CURRENT_TIMESTAMP)
        }
        ARRAY_CONSTRUCTORS: ClassVar = {}  # else array(1, 2)[0] would become array(0)


_DIALECT = _Dialect()


def tokens_of(text: str) -> list[Token]:
    """Return the words of a text, without the semicolons at its end.

    Raises:
        SqlError: a word has no end, there are too many or too deep, or some that are never taken.
    """
    try:
        tokens = _DIALECT.tokenize(text)
    except TokenError:
        raise SqlError("expected SQL, but a quote, a bracket or a comment in it has no end", *_end_of(text)) from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if len(tokens) > _MAX_TOKENS:
        raise SqlError(f"expected at most {_MAX_TOKENS} words, got {len(tokens)}")
    depth = 0
    for index, token in enumerate(tokens):
        place = position_of(text, token.start)
        if token.token_type in _REFUSED_TOKENS:
            raise SqlError(_REFUSED_TOKENS[token.token_type], *place)
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise SqlError(f"expected at most {_MAX_DEPTH} brackets in each other", *place)
        if token.text.upper() == "WINDOW" and [one.token_type for one in tokens[index + 2 : index + 4]] == _NAMED:
            raise SqlError("WINDOW clauses are not taken: write what is in its brackets after each OVER", *place)
        if _is_doubled_quote(text, tokens, index):
            raise SqlError("a quote in a text is written \\' here, not twice", *place)
    return tokens


def read(text: str) -> exp.Expression:
    """Return the tree of the one query in a text.

    Raises:
        SqlError: there is none, or it cannot be read.
    """
    tokens = tokens_of(text)
    if not tokens:
        raise SqlError("expected a query, got nothing")
    if tokens[0].token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
        place = position_of(text, tokens[0].start)
        raise SqlError(f"expected SELECT or WITH, got {tokens[0].text[:40]!r}", *place)
    try:
        trees = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except ParseError as error:
        raise _problem_of(error) from None
    except _ANY_FAILURE:
        raise SqlError("this cannot be read as a query, or is too deeply nested") from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Expression):
        raise SqlError("expected one query")
    _check_depth(tree, text)
    _spell_paths(tree)
    return tree


def write(tree: exp.Expression) -> str:
    """Return a tree as one line of SQL with every name in quotes, without comments.

    Raises:
        SqlError: Spark has no such SQL.
    """
    try:
        return _DIALECT.generate(
            tree,
            identify=True,
            comments=False,
            normalize_functions=False,
            pretty=False,
            unsupported_level=ErrorLevel.RAISE,
        )
    except UnsupportedError as error:
        raise SqlError(f"Spark has no such SQL: {error}") from None
    except _ANY_FAILURE:
        raise SqlError("this cannot be written as a query, or is too deeply nested") from None


def position_of(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def place_of(node: exp.Expr, text: str) -> tuple[int, int]:
    """Return line and column of a part of a tree, or of what is nearest to it and has a place."""
    for near in node.walk():
        if (start := near.meta.get("start")) is not None:
            return position_of(text, start)
    return place_of(node.parent, text) if node.parent else (1, 1)


def _check_depth(tree: exp.Expression, text: str) -> None:
    level: list[exp.Expr] = [tree]
    for _ in range(_MAX_TREE_DEPTH):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise SqlError("this is too deeply nested", *place_of(level[0], text))


def _spell_paths(tree: exp.Expression) -> None:
    """Have what follows the second name of a path be fields: for the parser ``a.b.c`` has a database and a table."""
    for column in list(tree.find_all(exp.Column)):
        first, *rest = column.parts
        if len(rest) < 2:
            continue
        path: exp.Expr = exp.Column(this=rest[0], table=first)
        for name in rest[1:]:
            path = exp.Dot(this=path, expression=name)
        column.replace(path)


def _is_doubled_quote(text: str, tokens: list[Token], index: int) -> bool:
    """Return True if two texts touch, as in ``'it''s'``: for Spark that is a quote, for others two texts."""
    if index == 0:
        return False
    one, two = tokens[index - 1], tokens[index]
    is_touching = one.token_type is two.token_type is TokenType.STRING and one.end + 1 == two.start
    return is_touching and text[two.start] in "'\""


def _problem_of(error: ParseError) -> SqlError:
    found = error.errors[0] if error.errors else {}
    line, end = found.get("line") or 1, found.get("col") or 1
    word = found.get("highlight") or ""
    message = str(found.get("description") or "this cannot be read").partition(" but got")[0].rstrip(".")
    if message.startswith("Invalid expression"):
        message = f"unexpected {word[:40]!r}"
    elif message.startswith("Required keyword"):
        message = f"something is missing at {word[:40]!r}"
    return SqlError(message[:1].lower() + message[1:], line, max(end - len(word) + 1, 1))


def _end_of(text: str) -> tuple[int, int]:
    return position_of(text, max(len(text) - 1, 0))
