"""Dry runs, and the warnings for the author of an object.

The answer to a dry run has a status with the conditions that the object would have, whether it would fit, what it
would use, and what of its plan would be in effect. Nothing is written, and no place is reserved.

Warnings are for an object that is accepted, and does less, or more, than its author may expect. The API sends them as
Warning headers, which kubectl and our command line show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.control.addresses.planning import address_status, claim_of, judge_address, wanted_address
from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.control.spaces.effective import effective_space_limits
from enmasse.control.spaces.planning import SpaceView, judge_space, space_conditions
from enmasse.control.users.authentication_services import service_of
from enmasse.control.users.identity_providers import services_in
from enmasse.model.kinds.addresses import Address
from enmasse.model.kinds.limits import SpaceLimits
from enmasse.model.kinds.pipelines.builtins import BUILTINS, MeteringParameters
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.spaces import NO_AUTHENTICATION, AddressSpace
from enmasse.model.schema.conditions import READY, sentences, with_effect
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE
from enmasse.model.schema.names import by_claim
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.control.addresses.controller import AddressController
    from enmasse.control.context import Context
    from enmasse.control.spaces.controller import SpaceController
    from enmasse.control.spaces.quota import Probe
    from enmasse.control.store.port import Document, Store
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

_DRY = Verdict("DryRun", "nothing was written")


class Preview:
    """Computes the result of a dry run.

    Args:
        context: the context of the controllers.
        addresses: the addresses that would reconcile an address.
        spaces: the spaces that would reconcile a space.
    """

    def __init__(self, context: Context, addresses: AddressController, spaces: SpaceController) -> None:
        self._context = context
        self._addresses = addresses
        self._spaces = spaces

    def __call__(self, document: Document) -> Document:
        """Return an object as it would be stored, with the status that it would have."""
        if document["kind"] not in (ADDRESS.name, ADDRESS_SPACE.name):
            return document
        resource = restore(document)
        match resource:
            case Address():
                status = self._address(resource)
            case AddressSpace():
                status = self._space(resource)
            case _:
                return document
        return document | {"status": status}

    def _address(self, address: Address) -> Document:
        context, generation = self._context, address.metadata.generation
        row = context.desired.addresses.get(address.key)
        is_placed = row is not None and context.placements.of(address.space_key).place_of(row.key) is not None
        view = self._addresses.view(address, row, is_served=is_placed)
        verdict, status = judge_address(view), address.status
        ready = verdict
        if verdict.is_yes:
            probe = context.placements.of(address.space_key).probe(address.key, claim_of(view))
            if probe.place is None:
                verdict = ready = Verdict("QuotaExceeded", probe.refusal)
            else:
                status = address_status(
                    view, wanted_address(view), probe.place, context.placements.node_of(address.space_key)
                )
                ready = _DRY
        scheduled = condition("Scheduled", verdict, generation)
        if verdict.is_yes:
            scheduled = scheduled.model_copy(update={"reason": "WouldFit", "message": _used(probe)})
        found = with_effect((scheduled, condition(READY, ready, generation)), context.effects.of(address), generation)
        return status.with_conditions(found, context.now()).to_dict()

    def _space(self, space: AddressSpace) -> Document:
        context, generation = self._context, space.metadata.generation
        view: SpaceView = self._spaces.view(space)
        verdict = judge_space(view)
        ready = condition(READY, _DRY if verdict.is_yes else verdict, generation)
        limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
        status = space.status.model_copy(update={"limits": limits if limits != SpaceLimits() else None})
        found = with_effect(space_conditions(view, ready), context.effects.of(space), generation)
        return status.with_conditions(found, context.now()).to_dict()


def _used(probe: Probe) -> str:
    """Return what a space would use, in a sentence."""
    parts = []
    for resource, used in probe.usage.items():
        limit = probe.limits.get(resource)
        parts.append(f"{used:g} {resource}" if limit is None else f"{used:g} of {limit:g} {resource}")
    return f"it fits; the address space would use {', '.join(parts)}"


_MAX_SENTENCES = 10  # of at most 300 characters: a client's limit of 8 KiB of headers is far

_CONSUMED = "what the pipeline reads is taken from other receivers, and may be read twice after a failure"
_READING: Final = {
    "queue": f"a queue: {_CONSUMED}",
    "subscription": f"a subscription: {_CONSUMED}",
    "deadletter": f"a deadletter address: {_CONSUMED}",
    "anycast": (
        "anycast: the pipeline is one of its receivers and gets its share, and senders wait while it does not run"
    ),
    "topic": (
        "a topic: the pipeline gets what is sent from its first start on, through a durable subscription of its own, "
        "and may read it twice after a failure"
    ),
    "multicast": "multicast: what is sent while the pipeline does not run is lost for it",
}


def write_warnings(resource: Resource, registry: Registry) -> Iterator[str]:
    """Yield warnings for the author of an object.

    Args:
        resource: the resource as it was given, with its namespace.
        registry: the registry of what else there is.
    """
    name = resource.metadata.name
    found = [f"{name}: {sentence}" for sentence in sentences(list(registry.unapplied(resource)))]
    if isinstance(resource, Pipeline):
        found += _of_pipeline(resource, registry.store)
    if isinstance(resource, AddressSpace):
        found += _of_space(resource, registry.store)
    yield from found[:_MAX_SENTENCES]
    if len(found) > _MAX_SENTENCES:
        yield f"{name}: {len(found) - _MAX_SENTENCES} more of this kind"


def _of_space(space: AddressSpace, store: Store) -> Iterator[str]:
    if not space.spec.connectors:
        return
    service = service_of(space, services_in(store))
    if (space.spec.authentication_service.kind if service is None else service.spec.type) == NO_AUTHENTICATION:
        names = ", ".join(connector.name for connector in space.spec.connectors)
        yield (
            f"{space.metadata.name}: spec.connectors: the space has no users, so whoever comes in may use {names} "
            "with the rights of the connector's user there; spec.authenticationService has others log in"
        )


def _of_pipeline(pipeline: Pipeline, store: Store) -> Iterator[str]:
    name, namespace, space = pipeline.metadata.name, pipeline.metadata.namespace, pipeline.space
    if store.find(ADDRESS_SPACE.name, namespace, space) is None:
        yield f"{name}: there is no address space {space} in namespace {namespace} yet; the pipeline waits for it"
        return
    for path, address, is_read in _addresses(pipeline):
        declared = _spec_of(address, pipeline, store)
        if declared is None:
            yield f"{name}: {path}: space {space} has no address '{address}' yet; the pipeline waits for it"
        elif is_read and declared["type"] in _READING:
            yield f"{name}: {path}: '{address}' is {_READING[declared['type']]}"
    for index, source in enumerate(pipeline.spec.sources):
        if source.address is None or source.bad_records is not None:
            continue
        declared = _spec_of(source.address, pipeline, store) or {}
        format_ = source.format or (declared.get("schema") or {}).get("format") or "raw"
        if format_ != "raw" and declared.get("type") in _READING:
            yield (
                f"{name}: spec.sources[{index}]: what cannot be decoded is counted and dropped; "
                "badRecords names an address for it"
            )


def _addresses(pipeline: Pipeline) -> Iterator[tuple[str, str, bool]]:
    """Yield the addresses that a pipeline names: the path of the field, the address, and whether it is read."""
    spec = pipeline.spec
    for index, source in enumerate(spec.sources):
        if source.address:
            yield f"spec.sources[{index}].address", source.address, True
        for number, address in enumerate(source.addresses):
            yield f"spec.sources[{index}].addresses[{number}]", address, True
        if source.bad_records:
            yield f"spec.sources[{index}].badRecords", source.bad_records, False
        if source.watermark is not None and source.watermark.late:
            yield f"spec.sources[{index}].watermark.late", source.watermark.late, False
    for index, step in enumerate(spec.steps):
        if step.bad_records:
            yield f"spec.steps[{index}].badRecords", step.bad_records, False
    for index, sink in enumerate(spec.sinks):
        if sink.address and sink.address != "*":
            yield f"spec.sinks[{index}].address", sink.address, False
        if sink.bad_records:
            yield f"spec.sinks[{index}].badRecords", sink.bad_records, False
    if spec.builtin is not None:
        parameters = BUILTINS[spec.builtin.name].model_validate(dict(spec.builtin.parameters))
        if not isinstance(parameters, MeteringParameters):  # it has patterns, which may stand for nothing yet
            yield from (("spec.builtin.parameters", address, True) for address in parameters.reads())
        yield from (("spec.builtin.parameters", address, False) for address in parameters.writes())


def _spec_of(address: str, pipeline: Pipeline, store: Store) -> dict[str, Any] | None:
    for document in by_claim(store.select_address(ADDRESS.name, pipeline.metadata.namespace, address)):
        if document["metadata"]["name"].startswith(f"{pipeline.space}."):
            return dict(document["spec"])
    return None
