"""A table's small files joined to large ones, from time to time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.pipeline.running.plans import JobPlan

if TYPE_CHECKING:
    from enmasse.pipeline.running.plans import Scene

__all__ = ["compaction_of"]

EVERY_S: Final = 3600.0
KEEP_S: Final = 86_400.0


def compaction_of(scene: Scene, table: str, *, every_s: float = EVERY_S, keep_s: float = KEEP_S) -> JobPlan:
    """A job that keeps a table quick to read.

    Args:
        scene: where the lake is.
        table: the table; nothing is done while it is not there.
        every_s: how often.
        keep_s: how long files stay that were replaced, for readers of older versions.
    """
    path = scene.place.lake / table

    def run() -> str:
        from enmasse.pipeline.lake.compaction import compact  # noqa: PLC0415  # loads libraries of the lake

        return f"table {table}: {compact(path, keep_h=max(1, round(keep_s / 3600)))}"

    return JobPlan(f"compact-{table}", run, every_s)
