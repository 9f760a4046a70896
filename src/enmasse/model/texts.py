"""The sentences that the classes tell of themselves: docstrings of a class and below its fields.

They are written once, in the source, and read again by who explains the kinds:
OpenAPI, CRDs and the reference.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

__all__ = ["class_text", "field_texts"]


def class_text(model: type) -> str:
    """Return what a class says of itself."""
    return _plain(inspect.cleandoc(model.__doc__ or ""))


@cache
def field_texts(model: type) -> dict[str, str]:
    """Return what a class and its bases say of each field, by the field's name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("enmasse."):
            found |= _of_module(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(tree: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = _plain(inspect.cleandoc(text))
    return found


def _plain(text: str) -> str:
    paragraphs = text.replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
