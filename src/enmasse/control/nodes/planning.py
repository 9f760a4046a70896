"""Choose the home of a space. Pure.

Rules:
1. A space is placed once, and stays: nothing moves by itself.
2. Of the nodes that may have it, the one with the fewest spaces gets it, of several the least busy.
3. Tenants, whose spaces say why they have no home, learn no node's name; the log of control tells operators.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.control.runtime.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Home:
    """The home of a space.

    Attributes:
        node: the name of the node.
        generation: the number of homes that the space has had, this one included.
    """

    node: str
    generation: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which a space may be placed.

    Attributes:
        name: its name.
        labels: its labels.
        is_cordoned: whether an operator wants no new space on it.
        is_home: whether it has the role ``home``.
        is_reachable: whether it can be reached.
        spaces: the number of spaces that it has.
        busy: the share of a processor that it uses.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    is_cordoned: bool = False
    is_home: bool = True
    is_reachable: bool = True
    spaces: int = 0
    busy: float = 0.0


def refusals_of(nodes: Sequence[Candidate], selector: Mapping[str, str]) -> dict[str, str]:
    """Return why nodes may not have a new space, by their names.

    Args:
        nodes: the nodes of the installation.
        selector: the labels that the space's plan asks for.
    """
    refusals: dict[str, str] = {}
    for node in nodes:
        missing = [f"{name}={value}" for name, value in selector.items() if node.labels.get(name) != value]
        if not node.is_home:
            refusals[node.name] = "has not the role home"
        elif missing:
            refusals[node.name] = f"has not the label {', '.join(missing)}"
        elif node.is_cordoned:
            refusals[node.name] = "is cordoned"
    return refusals


def choose_home(nodes: Sequence[Candidate], selector: Mapping[str, str]) -> Candidate | Verdict:
    """Return the node on which a new space is placed, or why there is none, in words for tenants.

    Args:
        nodes: the nodes of the installation.
        selector: the labels that the space's plan asks for.
    """
    refusals = refusals_of(nodes, selector)
    fitting = [node for node in nodes if node.name not in refusals]
    if not fitting:
        counts = Counter(refusals.values())
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return Verdict("NoNode", f"no node may have it: of {len(nodes)}, {told}")
    # A space on a node that is away could not be served; where there is one node alone, it is that or none.
    reachable = fitting if len(nodes) == 1 else [node for node in fitting if node.is_reachable]
    if not reachable:
        return Verdict("NodeUnavailable", "no node that may have it can be reached")
    return min(reachable, key=lambda node: (node.spaces, round(node.busy, 1), node.name))
