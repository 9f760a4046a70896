"""The grammar of selectors [JMS 2.0 3.8.1.1], by precedence.

    condition   OR < AND < NOT < comparisons, IS, BETWEEN, IN, LIKE < + - < * / < sign

Rules:
1. What can be seen to be wrong from the form alone is refused: a string where a number belongs, a
   selector that gives no condition.
2. Comparisons do not chain, and strings and conditions are only equal or unequal.
3. Chains of one operator are one node, and the depth is bounded, so that neither reading a selector
   nor applying it can exhaust the stack.
"""

from __future__ import annotations

from enmasse.messaging.errors import SelectorError
from enmasse.messaging.selectors.lexer import Kind, Token, tokens
from enmasse.messaging.selectors.nodes import (
    ANY,
    BOOLEAN,
    NUMBER,
    STRING,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Negative,
    Node,
    Not,
)

MAX_DEPTH = 64
"""Nested expressions; each may take a dozen frames of the interpreter's thousand when it is applied."""

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _OPERAND = range(1, 8)
_POWERS = {
    (Kind.KEYWORD, "OR"): _OR,
    (Kind.KEYWORD, "AND"): _AND,
    **{(Kind.SIGN, sign): _COMPARISON for sign in ("=", "<>", "<", "<=", ">", ">=")},
    **{(Kind.KEYWORD, word): _COMPARISON for word in ("NOT", "IS", "BETWEEN", "IN", "LIKE")},
    (Kind.SIGN, "+"): _SUM,
    (Kind.SIGN, "-"): _SUM,
    (Kind.SIGN, "*"): _PRODUCT,
    (Kind.SIGN, "/"): _PRODUCT,
}


def parse(text: str) -> Node:
    """Parse a selector into its tree.

    Raises:
        SelectorError: it is none; says where, and what was expected.
    """
    return _Parser(tokens(text)).selector()


class _Parser:
    __slots__ = ("at", "depth", "token", "words")

    def __init__(self, words: list[Token]) -> None:
        self.words = words
        self.at = 0
        self.token = words[0]
        self.depth = 0

    def advance(self) -> Token:
        """Return the current token; the next one becomes current."""
        token = self.token
        if token.kind != Kind.END:
            self.at += 1
            self.token = self.words[self.at]
        return token

    def takes(self, kind: str, value: str) -> bool:
        """Skip the current token and return true if it is that one."""
        found = self.token.kind == kind and self.token.value == value
        if found:
            self.advance()
        return found

    def expect(self, kind: str, value: str, what: str) -> None:
        if not self.takes(kind, value):
            raise self.unexpected(what)

    def unexpected(self, what: str) -> SelectorError:
        return SelectorError(f"expected {what}, found {self.token}", self.token.position)

    def selector(self) -> Node:
        node = self.typed(0, BOOLEAN)
        if self.token.kind != Kind.END:
            raise self.unexpected("an operator or the end")
        return node

    def typed(self, minimum: int, wanted: str) -> Node:
        """Parse an expression that can give what is wanted."""
        position = self.token.position
        node = self.expression(minimum)
        check(node, wanted, position)
        return node

    def expression(self, minimum: int) -> Node:
        """Parse an operand with the operators of at least that precedence."""
        if self.depth >= MAX_DEPTH:
            raise SelectorError(f"it is nested more than {MAX_DEPTH} levels deep", self.token.position)
        self.depth += 1
        start = self.token.position
        node = self.operand(minimum)
        is_compared = False
        while True:
            power = _POWERS.get((self.token.kind, self.token.value), 0)
            if power < max(minimum, 1):
                break
            if power == _COMPARISON:
                if is_compared:
                    raise self.unexpected("AND, OR or the end, as comparisons need parentheses to be compared")
                is_compared = True
                node = self.comparison(node, start)
            elif power < _COMPARISON:
                node = self.logical(node, power, start)
                is_compared = False
            else:
                node = self.arithmetic(node, power, start)
        self.depth -= 1
        return node

    def operand(self, minimum: int) -> Node:
        """Parse what stands before an operator."""
        token = self.token
        if token.kind == Kind.KEYWORD and token.value == "NOT" and minimum <= _NOT:
            return self.negation()
        if token.kind == Kind.SIGN and token.value in ("+", "-"):
            return self.signed()
        if token.kind == Kind.SIGN and token.value == "(":
            self.advance()
            node = self.expression(0)
            self.expect(Kind.SIGN, ")", "an operator or )")
            return node
        if token.kind in (Kind.STRING, Kind.NUMBER):
            return Literal(self.advance().value)
        if token.kind in (Kind.WORD, Kind.QUOTED):
            return Identifier(self.advance().value, token.kind == Kind.QUOTED, token.position)
        if token.kind == Kind.KEYWORD and token.value in ("TRUE", "FALSE"):
            return Literal(self.advance().value == "TRUE")
        raise self.unexpected("a name, a value or (")

    def negation(self) -> Node:
        is_negated = False
        while self.takes(Kind.KEYWORD, "NOT"):
            is_negated = not is_negated
        node = self.typed(_COMPARISON, BOOLEAN)
        # Twice not is not nothing: it is a condition even where it stands before a name.
        return Not(node) if is_negated else Not(Not(node))

    def signed(self) -> Node:
        is_negated = False
        while self.token.kind == Kind.SIGN and self.token.value in ("+", "-"):
            is_negated ^= self.advance().value == "-"
        node = self.typed(_OPERAND, NUMBER)
        if not is_negated:
            return node if isinstance(node, Literal) else Negative(Negative(node))
        if isinstance(node, Literal):
            assert not isinstance(node.value, str)
            return Literal(-node.value)
        return Negative(node)

    def logical(self, node: Node, power: int, start: int) -> Node:
        check(node, BOOLEAN, start)
        operands = [node]
        word = self.token.value
        while self.takes(Kind.KEYWORD, word):
            operands.append(self.typed(power + 1, BOOLEAN))
        return Logical(word, tuple(operands))

    def arithmetic(self, node: Node, power: int, start: int) -> Node:
        check(node, NUMBER, start)
        steps = []
        while _POWERS.get((self.token.kind, self.token.value)) == power:
            operator = self.advance().value
            steps.append((operator, self.typed(power + 1, NUMBER)))
        return Arithmetic(node, tuple(steps))

    def comparison(self, node: Node, start: int) -> Node:
        token = self.advance()
        if token.kind == Kind.SIGN:
            return self.relation(node, token.value, start)
        if token.value == "IS":
            is_negated = self.takes(Kind.KEYWORD, "NOT")
            self.expect(Kind.KEYWORD, "NULL", "NULL" if is_negated else "NULL or NOT NULL")
            return IsNull(node, is_negated)
        is_negated = token.value == "NOT"
        word = self.advance() if is_negated else token
        if word.kind == Kind.KEYWORD and word.value == "BETWEEN":
            check(node, NUMBER, start)
            low = self.typed(_SUM, NUMBER)
            self.expect(Kind.KEYWORD, "AND", "AND and the upper bound")
            return Between(node, low, self.typed(_SUM, NUMBER), is_negated)
        if word.kind == Kind.KEYWORD and word.value == "IN":
            return self.membership(node, is_negated)
        if word.kind == Kind.KEYWORD and word.value == "LIKE":
            check(node, STRING, start)
            return self.likeness(node, is_negated)
        raise SelectorError(f"expected BETWEEN, IN or LIKE, found {word}", word.position)

    def relation(self, node: Node, operator: str, start: int) -> Node:
        if operator in ("=", "<>"):
            return Comparison(operator, node, self.expression(_SUM))
        check(node, NUMBER, start)
        return Comparison(operator, node, self.typed(_SUM, NUMBER))

    def membership(self, node: Node, is_negated: bool) -> Node:
        self.expect(Kind.SIGN, "(", "( and the values to choose from")
        choices = []
        while True:
            position = self.token.position
            choice = self.operand(_OPERAND)
            if not isinstance(choice, Literal):
                raise SelectorError("expected a string or a number, as only constants stand after IN", position)
            choices.append(choice)
            if not self.takes(Kind.SIGN, ","):
                self.expect(Kind.SIGN, ")", ", or )")
                return In(node, tuple(choices), is_negated)

    def likeness(self, node: Node, is_negated: bool) -> Node:
        if self.token.kind != Kind.STRING:
            raise self.unexpected("a pattern in single quotes")
        pattern = self.advance()
        escape = ""
        if self.takes(Kind.KEYWORD, "ESCAPE"):
            if self.token.kind != Kind.STRING or len(self.token.value) != 1:
                raise self.unexpected("one character in single quotes")
            escape = self.advance().value
            if ends_escaping(pattern.value, escape):
                raise SelectorError(
                    "the pattern ends with the escape character, which escapes nothing", pattern.position
                )
        return Like(node, pattern.value, escape, is_negated)


def ends_escaping(pattern: str, escape: str) -> bool:
    """Return whether the last character of a pattern would escape the one after it."""
    count = len(pattern) - len(pattern.rstrip(escape))
    return count % 2 == 1


def check(node: Node, wanted: str, position: int) -> None:
    """Refuse a part that can never give what is wanted.

    Raises:
        SelectorError: it cannot.
    """
    if node.gives not in (wanted, ANY):
        raise SelectorError(f"expected {wanted}, found {node.gives}", position)
