"""An index of names or topic filters by their words, which finds those that belong together without a walk over all.

Rules:
1. What has a way of its own is kept as one leaf with all its words: a chain of nodes is made only where ways part.
2. ``+`` and ``#`` are words like any other here; what they mean is said by whoever searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from enmasse.messaging.sessions.filters import ONE, REST

T = TypeVar("T")

Words = tuple[str, ...]


class _Leaf(Generic[T]):
    """The items of one sequence of words, from where no other goes on in the same way."""

    __slots__ = ("items", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.items: dict[T, None] = {}


class _Node(Generic[T]):
    """A place at which ways part."""

    __slots__ = ("branches", "here")

    def __init__(self) -> None:
        self.branches: dict[str, _Node[T] | _Leaf[T]] = {}
        self.here: _Leaf[T] | None = None
        """The items of the words up to here."""


class WordIndex(Generic[T]):
    """Items by sequences of words."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, words: Words, item: T) -> None:
        """Keep an item under some words."""
        node = self._root
        for depth, word in enumerate(words):
            found = node.branches.get(word)
            if found is None:
                leaf = node.branches[word] = _Leaf(words)
                leaf.items[item] = None
                return
            if isinstance(found, _Leaf):
                if found.words == words:
                    found.items[item] = None
                    return
                parting: _Node[T] = _Node()
                if len(found.words) == depth + 1:
                    parting.here = found
                else:
                    parting.branches[found.words[depth + 1]] = found
                node.branches[word] = found = parting
            node = found
        if node.here is None:
            node.here = _Leaf(words)
        node.here.items[item] = None

    def remove(self, words: Words, item: T) -> None:
        """Forget an item; nothing is left of a way that nobody goes any more."""
        way: list[tuple[_Node[T], str]] = []
        node = self._root
        leaf: _Leaf[T] | None = None
        for word in words:
            found = node.branches.get(word)
            if found is None:
                return
            way.append((node, word))
            if isinstance(found, _Leaf):
                leaf = found
                break
            node = found
        else:
            leaf = node.here
        if leaf is None or leaf.words != words:
            return
        leaf.items.pop(item, None)
        if leaf.items:
            return
        if leaf is node.here:
            node.here = None
        else:
            above, word = way.pop()
            del above.branches[word]
        while way and node is not self._root and not node.branches and node.here is None:
            node, word = way.pop()
            del node.branches[word]

    def __iter__(self) -> Iterator[T]:
        """Iterate over all items."""
        pending: list[_Node[T] | _Leaf[T]] = [self._root]
        while pending:
            node = pending.pop()
            if isinstance(node, _Leaf):
                yield from node.items
            else:
                pending += node.branches.values()
                if node.here is not None:
                    pending.append(node.here)

    # Of names

    def reached_by(self, words: Words) -> Iterator[T]:
        """Return the items whose names match a filter, or that lie on the way to what it matches.

        Those are the addresses of which a filter may want something; whether an address on the way owns the names
        below it is for the caller to see.
        """
        pending: list[tuple[_Node[T] | _Leaf[T], int]] = [(self._root, 0)]
        while pending:
            node, depth = pending.pop()
            if isinstance(node, _Leaf):
                if all(
                    index >= len(words) or words[index] in (ONE, REST, word) or REST in words[:index]
                    for index, word in enumerate(node.words)
                ):
                    yield from node.items
                continue
            if node.here is not None:
                yield from node.here.items
            if depth >= len(words):
                continue
            word = words[depth]
            if word == REST:
                pending += [(branch, depth) for branch in node.branches.values()]
            elif word == ONE:
                pending += [(branch, depth + 1) for branch in node.branches.values()]
            else:
                found = node.branches.get(word)
                if found is not None:
                    pending.append((found, depth + 1))

    # Of filters

    def reaching(self, words: Words) -> Iterator[T]:
        """Return the items whose filters match a name or one below it."""
        pending: list[tuple[_Node[T] | _Leaf[T], int]] = [(self._root, 0)]
        while pending:
            node, depth = pending.pop()
            if isinstance(node, _Leaf):
                if _may_reach(node.words, words):
                    yield from node.items
                continue
            if depth >= len(words):
                if node.here is not None:
                    yield from node.here.items
                pending += [(branch, depth + 1) for branch in node.branches.values()]
                continue
            for word in dict.fromkeys((words[depth], ONE)):
                found = node.branches.get(word)
                if found is not None:
                    pending.append((found, depth + 1))
            rest = node.branches.get(REST)
            if rest is not None:
                # It is the last word of its filter, and stands for whatever follows.
                leaf = rest if isinstance(rest, _Leaf) else rest.here
                if leaf is not None:
                    yield from leaf.items


def _may_reach(filter_words: Words, words: Words) -> bool:
    """Return whether a filter matches a name or one below it."""
    for depth, word in enumerate(words):
        if depth >= len(filter_words):
            return False
        if filter_words[depth] == REST:
            return True
        if filter_words[depth] not in (word, ONE):
            return False
    return True
