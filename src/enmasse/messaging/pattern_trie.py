"""A trie of patterns: finds the values whose patterns match a name, whatever number of others there are.

A level is a word of the patterns. A name is followed along all branches at once, of which each is taken at most
once for each word; so a search takes time by the words of the name and the branches that its words lead to.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from enmasse.messaging.patterns import Pattern, Start, Wild

ValueT = TypeVar("ValueT", bound=Hashable)


class _Node(Generic[ValueT]):
    """The patterns that begin with the same words."""

    __slots__ = ("any", "is_rest", "only", "rest", "starts", "value", "values", "word", "words")

    def __init__(self, *, is_rest: bool = False) -> None:
        self.is_rest = is_rest
        """True after words that stand for the rest of a name: each further word may be one of them."""
        # Most nodes have one child or one value: dicts are made for more.
        self.word: str | None = None
        """The only word that follows, if it stands for itself and there is one such word."""
        self.only: _Node[ValueT] | None = None
        """The node after that word."""
        self.words: dict[str, _Node[ValueT]] | None = None
        """The nodes after words that stand for themselves, where there are several."""
        self.any: _Node[ValueT] | None = None
        """The node after exactly one word of any kind."""
        self.rest: _Node[ValueT] | None = None
        """The node after zero or more words; never has such a child itself."""
        self.starts: dict[str, _Node[ValueT]] | None = None
        """The nodes after words that begin so."""
        self.value: ValueT | None = None
        """The value of the pattern that ends here, if there is one."""
        self.values: dict[ValueT, None] | None = None
        """The values of that pattern, where there are several."""

    @property
    def is_empty(self) -> bool:
        """True if no pattern leads here or further."""
        children = self.only or self.words or self.any or self.rest or self.starts
        return children is None and self.value is None and not self.values

    def held(self) -> Collection[ValueT]:
        """Return the values of the pattern that ends here."""
        return self.values or (() if self.value is None else (self.value,))

    def put(self, value: ValueT) -> bool:
        """Add a value; return whether it was not there."""
        if self.values is not None:
            is_new = value not in self.values
            self.values[value] = None
            return is_new
        if self.value is None:
            self.value = value
            return True
        if self.value == value:
            return False
        self.values = {self.value: None, value: None}
        self.value = None
        return True

    def take(self, value: ValueT) -> bool:
        """Remove a value; return whether it was there."""
        if self.values is not None:
            if value not in self.values:
                return False
            del self.values[value]
            self.values = self.values or None
            return True
        if self.value is None or self.value != value:
            return False
        self.value = None
        return True


class PatternTrie(Generic[ValueT]):
    """Values by their patterns."""

    __slots__ = ("_count", "_root")

    def __init__(self) -> None:
        self._root: _Node[ValueT] = _Node()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of values."""
        return self._count

    def __iter__(self) -> Iterator[ValueT]:
        """Iterate over the values, in no particular order."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            yield from node.held()
            nodes += (node.words or {}).values()
            nodes += (node.starts or {}).values()
            nodes += [child for child in (node.only, node.any, node.rest) if child is not None]

    def add(self, pattern: Pattern, value: ValueT) -> None:
        """Add a value; the same one may have several patterns."""
        node = self._root
        for word in _simplified(pattern):
            child = _child(node, word)
            if child is None:
                child = _Node(is_rest=word is Wild.REST)
                _set_child(node, word, child)
            node = child
        self._count += node.put(value)

    def remove(self, pattern: Pattern, value: ValueT) -> None:
        """Remove a value, and the branches that only it had; what is not there is no error."""
        words = _simplified(pattern)
        path = [self._root]
        for word in words:
            child = _child(path[-1], word)
            if child is None:
                return
            path.append(child)
        if not path[-1].take(value):
            return
        self._count -= 1
        for depth in range(len(words) - 1, -1, -1):
            if not path[depth + 1].is_empty:
                return
            _remove_child(path[depth], words[depth])

    def find(self, name: str) -> list[ValueT]:
        """Return the values whose patterns match a name; each once, also if it has several such patterns.

        A wildcard in the first place stands for no word that begins with ``$`` [MQTT-4.7.2-1].
        """
        if not self._count:
            return []
        root = self._root
        if name.startswith("$"):
            root = _without_wildcards(root)
        here = [root] if root.rest is None else [root, root.rest]
        for word in name.split("/"):
            following: list[_Node[ValueT]] = []
            for node in here:
                if node.is_rest:
                    following.append(node)
                words = node.words
                child = words.get(word) if words is not None else node.only if node.word == word else None
                if child is not None:
                    following.append(child)
                    if child.rest is not None:
                        following.append(child.rest)
                child = node.any
                if child is not None:
                    following.append(child)
                    if child.rest is not None:
                        following.append(child.rest)
                if node.starts is not None:
                    for child in _started(node.starts, word):
                        following.append(child)
                        if child.rest is not None:
                            following.append(child.rest)
            # A branch that several lead to is followed once, or there would be ever more of them.
            here = list(dict.fromkeys(following)) if len(following) > 1 else following
            if not here:
                return []
        found = [node.held() for node in here]
        if len(found) == 1:
            return list(found[0])
        return list(dict.fromkeys(value for values in found for value in values))

    def count(self, name: str, most: int) -> int:
        """Return the number of values whose topic filters match a name; no more are looked for than ``most``.

        No more than ``MAX_STEPS`` branches are followed, so it may be less than there are.
        """
        words = name.split("/")
        pending: list[tuple[_Node[ValueT], int]] = [(self._root, 0)]
        found = steps = 0
        while pending and found < most and steps < MAX_STEPS:
            node, depth = pending.pop()
            steps += 1
            if depth == len(words):
                found += len(node.held())
                if node.rest is not None:
                    found += len(node.rest.held())
                continue
            if node.is_rest:
                pending.append((node, depth + 1))
            if node.rest is not None:
                pending.append((node.rest, depth))
            if node.any is not None:
                pending.append((node.any, depth + 1))
            child = _child(node, words[depth])
            if child is not None:
                pending.append((child, depth + 1))
        return found

    def example(self, pattern: Pattern, others: Sequence[str]) -> list[str]:
        """Return the words of a name that a topic filter matches, with those of other filters in place of wildcards.

        Args:
            pattern: the filter.
            others: words by their places, for places where no other filter goes on in the same way.
        """
        words: list[str] = []
        node: _Node[ValueT] | None = self._root
        is_rest = pattern[-1] is Wild.REST
        for at in range(max(len(pattern) - 1, len(others)) if is_rest else len(pattern)):
            word = pattern[at] if at < len(pattern) else Wild.REST
            text = word if isinstance(word, str) else None if node is None else _word_of(node)
            words.append(text if text is not None else others[at] if at < len(others) else _NO_WORD)
            node = None if node is None else _child(node, words[-1]) or node.any
        return words


MAX_STEPS = 1_000
"""Branches that are followed to count what matches a name: enough for some dozens of patterns with as many words."""

_NO_WORD = "+"
"""In the place of a word of which nothing is known: no name has it."""


def _word_of(node: _Node[Any]) -> str | None:
    """Return the latest word that follows and stands for itself; ``None`` if none does."""
    return node.word if node.words is None else next(reversed(node.words))


def _simplified(pattern: Pattern) -> Pattern:
    """Return the pattern with one ``Wild.REST`` in place of several in a row, which mean the same."""
    following = pattern[1:]
    if not any(word is Wild.REST and after is Wild.REST for word, after in zip(pattern, following, strict=False)):
        return pattern
    return tuple(word for word, after in zip(pattern, (*following, None), strict=True)
                 if not (word is Wild.REST and after is Wild.REST))  # fmt: skip


def _without_wildcards(node: _Node[ValueT]) -> _Node[ValueT]:
    """Return a node as it is for names that only words and their beginnings lead on from."""
    found: _Node[ValueT] = _Node()
    found.word, found.only, found.words, found.starts = node.word, node.only, node.words, node.starts
    return found


def _child(node: _Node[ValueT], word: str | Wild | Start) -> _Node[ValueT] | None:
    if word is Wild.ANY:
        return node.any
    if word is Wild.REST:
        return node.rest
    if isinstance(word, Start):
        return None if node.starts is None else node.starts.get(word.text)
    assert isinstance(word, str)
    if node.words is not None:
        return node.words.get(word)
    return node.only if node.word == word else None


def _set_child(node: _Node[ValueT], word: str | Wild | Start, child: _Node[ValueT]) -> None:
    if word is Wild.ANY:
        node.any = child
    elif word is Wild.REST:
        node.rest = child
    elif isinstance(word, Start):
        if node.starts is None:
            node.starts = {}
        node.starts[word.text] = child
    else:
        assert isinstance(word, str)
        if node.words is not None:
            node.words[word] = child
        elif node.word is None:
            node.word, node.only = word, child
        else:
            assert node.only is not None
            node.words = {node.word: node.only, word: child}
            node.word = node.only = None


def _remove_child(node: _Node[ValueT], word: str | Wild | Start) -> None:
    if word is Wild.ANY:
        node.any = None
    elif word is Wild.REST:
        node.rest = None
    elif isinstance(word, Start):
        assert node.starts is not None
        del node.starts[word.text]
        node.starts = node.starts or None
    else:
        assert isinstance(word, str)
        if node.words is None:
            node.word = node.only = None
        else:
            del node.words[word]
            node.words = node.words or None


def _started(starts: dict[str, _Node[ValueT]], word: str) -> list[_Node[ValueT]]:
    """Return what follows the beginnings that a word has: looked for by the word or by them, whichever is less."""
    if len(starts) <= len(word):
        return [child for text, child in starts.items() if word.startswith(text)]
    return [starts[word[:end]] for end in range(len(word) + 1) if word[:end] in starts]
