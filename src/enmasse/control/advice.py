"""What an applied object's author should know: it is taken, and may do less, or more, than was meant.

The API gives these sentences as Warning headers, which kubectl and our command line show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.model.builtins import BUILTINS, MeteringParameters
from enmasse.model.pipelines import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.control.store import ResourceStore
    from enmasse.model.resource import Resource

__all__ = ["advice"]

_MAX_SENTENCES = 10  # of at most 300 characters: a client's limit of 8 KiB of headers is far

_CONSUMED = "what the pipeline reads is gone for other receivers, and may be read twice after a failure"
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


def advice(resource: Resource, store: ResourceStore) -> Iterator[str]:
    """Yield sentences for whoever applied an object.

    Args:
        resource: as it was given, with its namespace.
        store: what else there is.
    """
    yield from resource.unapplied()
    if isinstance(resource, Pipeline):
        found = list(_of_pipeline(resource, store))
        yield from found[:_MAX_SENTENCES]
        if len(found) > _MAX_SENTENCES:
            yield f"{resource.metadata.name}: {len(found) - _MAX_SENTENCES} more of this kind"


def _of_pipeline(pipeline: Pipeline, store: ResourceStore) -> Iterator[str]:
    name, namespace, space = pipeline.metadata.name, pipeline.metadata.namespace, pipeline.space
    if store.find("AddressSpace", namespace, space) is None:
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
                f"{name}: spec.sources[{index}]: what cannot be decoded is counted and gone; "
                "badRecords names an address for it"
            )


def _addresses(pipeline: Pipeline) -> Iterator[tuple[str, str, bool]]:
    """Yield the addresses that a pipeline names: where it does, which, and whether it reads them."""
    spec = pipeline.spec
    for index, source in enumerate(spec.sources):
        if source.address:
            yield f"spec.sources[{index}].address", source.address, True
        if source.bad_records:
            yield f"spec.sources[{index}].badRecords", source.bad_records, False
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


def _spec_of(address: str, pipeline: Pipeline, store: ResourceStore) -> dict[str, Any] | None:
    for document in store.select_address("Address", pipeline.metadata.namespace, address):
        if document["metadata"]["name"].startswith(f"{pipeline.space}."):
            return dict(document["spec"])
    return None
