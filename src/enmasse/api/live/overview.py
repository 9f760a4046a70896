"""The state of everything at a glance: what is wrong and how to mend it, sums, and nodes.

Rules:
1. It tells of those namespaces alone whose spaces one may list; of nodes, who may list nodes.
2. A problem says what is wrong in the words of whoever found it, how to mend it, and where to look.
3. Problems are bounded: those of nodes first, then the others by kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from enmasse.api.live.rows import Rows
    from enmasse.api.live.sampler import NodeReading, Sampler
    from enmasse.control.context import Context

Document = dict[str, Any]

_MAX_PROBLEMS: Final = 100
_NEARLY_FULL: Final = 0.9
_REMEDIES: Final = {
    ADDRESS.name: "Its conditions say more: `enmasse get address {name} -o yaml`.",
    ADDRESS_SPACE.name: "Its conditions say more: `enmasse get space {name} -o yaml`.",
    PIPELINE.name: "Its log says more: `enmasse pipeline logs {name}`.",
}
_NODE_REMEDY: Final = (
    "`enmasse logs {name}` says more. Where a disk is full, make room: then the node goes on by itself. One that has "
    "died is started again by `enmasse up`."
)
_FULL_REMEDY: Final = "Receive faster, purge what nobody needs, or raise the limit of its plan."
_SERIES: Final = ("messagesIn", "messagesOut", "stored")
_MINUTES: Final = 15


class Overview:
    """Tells the state of everything.

    Args:
        rows: the rows of what is declared.
        sampler: the sampler of the nodes' figures.
        context: the context of the controllers, with what nodes keep although it is not declared so;
            None: that is not known.
    """

    def __init__(self, rows: Rows, sampler: Sampler, context: Context | None) -> None:
        self._rows = rows
        self._sampler = sampler
        self._context = context

    def nodes(self) -> list[Document]:
        """Return a row for each node."""
        return [self._node(name, reading) for name, reading in self._sampler.latest.nodes.items()]

    async def answer(self, namespaces: Collection[str], *, shows_nodes: bool) -> Document:
        """Return the overview of some namespaces, and of nodes where one may see these."""
        for declared in (self._rows.spaces, self._rows.addresses, self._rows.pipelines):
            await declared.follow()
        spaces = [f"{namespace}/{name}" for namespace in namespaces for name in self._rows.spaces.of(namespace)]
        nodes = self.nodes() if shows_nodes else []
        problems = [*self._node_problems(nodes), *self._problems(namespaces, spaces)]
        found: Document = {
            "kind": "Overview",
            "apiVersion": ADDRESS_SPACE.api_version,
            "metadata": {},
            "problems": problems[:_MAX_PROBLEMS],
            "problemCount": len(problems),
            "totals": self._totals(spaces),
            "series": self._series(spaces),
        }
        return found | ({"nodes": nodes} if shows_nodes else {})

    def _node(self, name: str, reading: NodeReading) -> Document:
        problems = [reading.problem] if reading.problem else [str(it) for it in reading.health.get("problems") or ()]
        if self._context is not None and name in self._context.nodes and not reading.problem:
            problems += self._context.nodes[name].problems()
        statistics = reading.statistics
        row = {
            "name": name,
            "up": not reading.problem,
            "ready": bool(reading.health.get("ready")) and not reading.problem,
            "cpu": reading.cpu,
            "memory": statistics.get("memoryBytes"),
            "connections": statistics.get("connections"),
            "links": statistics.get("links"),
            "addresses": statistics.get("addresses"),
            "uptime": statistics.get("uptime"),
            "version": statistics.get("version"),
            "diskFree": statistics.get("diskFreeBytes"),
            "lag": statistics.get("recentLag"),
            "problems": problems,
        }
        return {column: value for column, value in row.items() if value is not None}

    def _node_problems(self, nodes: list[Document]) -> Iterator[Document]:
        for node in nodes:
            for text in node["problems"]:
                yield {
                    "kind": "Node",
                    "name": node["name"],
                    "text": text,
                    "remedy": _NODE_REMEDY.format(name=node["name"]),
                    "path": f"/nodes/{node['name']}",
                }

    def _problems(self, namespaces: Collection[str], spaces: Collection[str]) -> Iterator[Document]:
        for namespace in namespaces:
            for row in self._rows.spaces.of(namespace).values():
                yield from self._unready(ADDRESS_SPACE.name, namespace, row, f"/spaces/{namespace}/{row['name']}")
        for space in spaces:
            namespace = space.partition("/")[0]
            for row in self._rows.pipelines.of(space).values():
                path = f"/spaces/{space}/pipelines/{row['name']}"
                yield from self._unready(PIPELINE.name, namespace, row, path)
            for row in self._rows.addresses.of(space).values():
                path = f"/spaces/{space}/addresses/{row['name']}"
                if not row["ready"]:
                    yield from self._unready(ADDRESS.name, namespace, row, path)
                elif row["limits"]:
                    yield from self._full(namespace, row, path)

    def _unready(self, kind: str, namespace: str, row: Document, path: str) -> Iterator[Document]:
        texts = [row["lastError"]] if row.get("lastError") else row.get("messages", [])
        if (row["ready"] and not row.get("lastError")) or not texts or row.get("paused"):
            return
        yield {
            "kind": kind,
            "namespace": namespace,
            "name": row["name"],
            "text": "; ".join(texts),
            "remedy": _REMEDIES[kind].format(name=row["name"]),
            "path": path,
        }

    def _full(self, namespace: str, row: Document, path: str) -> Iterator[Document]:
        fill: Mapping[str, Any] = self._rows.fill_of(row, namespace)
        used = fill.get("bytes")
        if used and used["used"] >= _NEARLY_FULL * used["limit"]:
            share = round(100 * used["used"] / used["limit"])
            yield {
                "kind": ADDRESS.name,
                "namespace": namespace,
                "name": row["name"],
                "text": f"{row['address']} is full to {share} %: senders get no more credit at 100 %",
                "remedy": _FULL_REMEDY,
                "path": path,
            }

    def _totals(self, spaces: Collection[str]) -> Document:
        totals = [total for space in spaces if (total := self._sampler.latest.totals.get(space)) is not None]
        phases: dict[str, int] = {}
        for space in spaces:
            for row in self._rows.pipelines.of(space).values():
                phases[row["phase"]] = phases.get(row["phase"], 0) + 1
        return {
            "spaces": len(spaces),
            "addresses": sum(len(self._rows.addresses.of(space)) for space in spaces),
            "connections": sum(total.connections for total in totals),
            "stored": sum(total.stored for total in totals),
            "bytes": sum(total.bytes for total in totals),
            "messagesIn": round(sum(total.rate_in for total in totals), 2),
            "messagesOut": round(sum(total.rate_out for total in totals), 2),
            "pipelines": phases,
        }

    def _series(self, spaces: Collection[str]) -> Document:
        """Return the sums of the last minutes."""
        times = list(self._sampler.times)
        after = times[-1] - _MINUTES * 60 if times else 0.0
        sums: dict[str, list[float]] = {}
        at: list[float] = [time for time in times if time > after]
        for name in _SERIES:
            sums[name] = [0.0] * len(at)
        for space in spaces:
            for name, values in self._sampler.spaces.series(space, times, after)[1].items():
                sums[name] = [round(total + (value or 0), 2) for total, value in zip(sums[name], values, strict=True)]
        return {"times": [round(time) for time in at], "series": sums}
