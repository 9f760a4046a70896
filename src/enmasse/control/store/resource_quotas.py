"""Enforce bounds of namespaces: their ResourceQuotas, and the defaults of the installation.

Rules:
1. A write that would take a namespace above a bound is refused, in the words of Kubernetes; one that takes nothing
   more is not, however much there is.
2. Bounds are checked in the transaction of the write, against counters: no two writes get the last place, and the
   check takes no longer with many objects.
3. Objects and their bytes are bounded everywhere, so that no tenant fills the store for all. A quota that names
   these bounds takes the place of the default, whether it is higher or lower.
4. What the processes of the platform write of their own accord is counted and not refused.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from enmasse.control.errors import ForbiddenError
from enmasse.identity.rbac import PIPELINE_HOST
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.resource_quota import (
    NOT_COUNTED,
    OBJECT_BYTES,
    OBJECTS,
    RUNNERS,
    counted_kinds,
    in_words,
)
from enmasse.model.schema.kinds import RESOURCE_QUOTA, kind_of
from enmasse.model.schema.quantities import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.control.store.port import Document, Store, Used
    from enmasse.control.store.writes import Write


DEFAULTS: Final[Mapping[str, Decimal]] = {OBJECTS: Decimal(500_000), OBJECT_BYTES: Decimal(1024**3)}
"""The most that a namespace may have where no quota says otherwise."""

_KIND: Final = RESOURCE_QUOTA.name
_BY_DEFAULT: Final = "default of the installation (a ResourceQuota that names it says otherwise)"


def expect_room(write: Write, growth: int) -> None:
    """Raise an error unless a namespace may have what a write takes.

    Args:
        write: as it is about to be stored.
        growth: the bytes that it adds.

    Raises:
        ForbiddenError: a quota of the namespace, or a default, would be exceeded.
    """
    namespace, store = write.resource.metadata.namespace, write.store
    if not namespace or write.resource.kind in NOT_COUNTED or write.user.name == PIPELINE_HOST.name:
        return
    has_quota = _KIND in (kinds := store.usage.of(namespace))
    if not has_quota and _fits_defaults(kinds, growth):
        return  # as nearly always: nothing more than two sums
    more = _more(write, growth)
    if not more:
        return
    defaults = dict(DEFAULTS)
    if has_quota:
        for quota in store.select(_KIND, namespace):
            hard = {name: amount_of(most) for name, most in _hard(quota).items() if name in more}
            _expect(write, quota["metadata"]["name"], hard, more, used_amounts(store, namespace, hard, quota))
            for name in hard:
                defaults.pop(name, None)
    _expect(write, _BY_DEFAULT, defaults, more, used_amounts(store, namespace, defaults))


def _fits_defaults(kinds: Mapping[str, Used], growth: int) -> bool:
    objects, size = 1, growth
    for used in kinds.values():
        objects += used.objects
        size += used.size
    return objects <= DEFAULTS[OBJECTS] and size <= DEFAULTS[OBJECT_BYTES]


def _expect(
    write: Write, quota: str, hard: Mapping[str, Decimal], more: Mapping[str, Decimal], used: Mapping[str, Decimal]
) -> None:
    over = sorted(name for name, most in hard.items() if name in more and used[name] + more[name] > most)
    if not over:
        return
    kind = kind_of(write.resource)
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    amounts_named = (
        f"{what}: {','.join(f'{name}={in_words(name, amounts[name])}' for name in over)}"
        for what, amounts in (("requested", more), ("used", used), ("limited", hard))
    )
    name = write.resource.metadata.name
    raise ForbiddenError(f'{resource} "{name}" is forbidden: exceeded quota: {quota}, {", ".join(amounts_named)}')


def _more(write: Write, growth: int) -> dict[str, Decimal]:
    """Return the amounts that a write takes, by the names of quotas; zeros are left out."""
    more = dict.fromkeys(_names_of(write.resource.kind), Decimal(1)) if write.operation == "CREATE" else {}
    if growth > 0:
        more[OBJECT_BYTES] = Decimal(growth)
    if isinstance(write.new, Pipeline):
        asked = write.new.asks
        before = write.old.asks if isinstance(write.old, Pipeline) else {}
        more |= {
            name: asked[what]
            for name, what in RUNNERS.items()
            if what in asked and asked[what] > before.get(what, Decimal(0))
        }
    return more


@cache
def _names_of(kind: str) -> tuple[str, ...]:
    """Return the names by which one object of a kind is counted."""
    return (OBJECTS, *(name for name, counted in counted_kinds().items() if counted == kind))


def _hard(quota: Document) -> Mapping[str, str]:
    found: Mapping[str, str] = (quota.get("spec") or {}).get("hard") or {}
    return found


def used_amounts(
    store: Store, namespace: str, names: Iterable[str], quota: Document | None = None
) -> dict[str, Decimal]:
    """Return the used amounts of a namespace, by the names of quotas.

    Running workloads are not known here: the program that runs them reports them in the quota's status.
    """
    reported = ((quota or {}).get("status") or {}).get("used") or {}
    kinds, counted = store.usage.of(namespace), counted_kinds()
    limited = [used for kind, used in kinds.items() if kind not in NOT_COUNTED]
    found = {}
    for name in names:
        if name == OBJECTS:
            found[name] = Decimal(sum(used.objects for used in limited))
        elif name == OBJECT_BYTES:
            found[name] = Decimal(sum(used.size for used in limited))
        elif name in RUNNERS:
            found[name] = amount_of(reported.get(name, 0))
        else:
            kind = counted[name]
            found[name] = Decimal(kinds[kind].objects if kind in kinds else 0)
    return found
