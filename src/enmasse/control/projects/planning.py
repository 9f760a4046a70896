"""The needs of a project in its space, and the conditions that follow from what there is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.model.kinds.spaces import NO_AUTHENTICATION
from enmasse.model.schema.conditions import READY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.model.kinds.projects import IoTProject, ProjectPipeline
    from enmasse.model.kinds.spaces import AddressSpace
    from enmasse.model.schema.conditions import Condition

RESOURCES_CREATED: Final = "ResourcesCreated"
RESOURCES_READY: Final = "ResourcesReady"
CONFIGURATION_ACCEPTED: Final = "ConfigurationAccepted"
LOGIN_REQUIRED: Final = "LoginRequired"
AUTHORITIES_PROVED: Final = "AuthoritiesProved"
ALIAS_GRANTED: Final = "AliasGranted"

Document = dict[str, Any]


def space_of_project(project: IoTProject) -> Document | None:
    """Return the space that is made for a project, None when it uses one that is there."""
    managed = project.spec.downstream_strategy.managed_strategy
    if managed is None:
        return None
    wanted = managed.address_space
    service = NO_AUTHENTICATION if project.spec.anonymous else "standard"
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": wanted.name, "namespace": project.metadata.namespace},
        "spec": {"type": wanted.type, "authenticationService": {"type": service}}
        | ({"plan": wanted.plan} if wanted.plan else {}),
    }


def addresses_of_project(project: IoTProject) -> list[Document]:
    """Return the addresses of a project, which go with it."""
    wanted, tenant = project.addresses, project.tenant
    return [
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Address",
            "metadata": _metadata(project, name),
            "spec": {"address": f"{name}/{tenant}", "type": kind, "usersOnly": not project.spec.anonymous}
            | ({"plan": plan} if plan else {}),
        }
        for name, kind, plan in (
            ("telemetry", wanted.telemetry.type, wanted.telemetry.plan),
            ("event", "queue", wanted.event.plan),
            ("command", "anycast", wanted.command.plan),
            # Below it each application has a name of its own for the responses to its commands.
            ("command_response", "topic", None),
            ("inquiry", "anycast", wanted.command.plan),
        )
    ]


def _metadata(project: IoTProject, name: str) -> Document:
    """Return the metadata of an object that goes with its project."""
    metadata = project.metadata
    owner = {
        "apiVersion": project.api_version,
        "kind": project.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
    }
    return {
        "name": f"{project.space}.iot-{metadata.name}-{name.replace('_', '-')}",
        "namespace": metadata.namespace,
        "ownerReferences": [owner],
    }


def pipelines_of_project(project: IoTProject) -> list[Document]:
    """Return the pipelines that a project asks for, which go with it."""
    return [
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": _metadata(project, pipeline.name),
            "spec": _spec_of(project, pipeline)
            | {"credentialsSecret": project.spec.credentials_secret}
            | ({"trigger": pipeline.trigger} if pipeline.trigger else {}),
        }
        for pipeline in project.spec.pipelines
    ]


def _spec_of(project: IoTProject, pipeline: ProjectPipeline) -> Document:
    parameters = project.parameters_of(pipeline)
    kind = _KINDS.get(pipeline.name)
    if kind is None:
        return {"builtin": {"name": pipeline.name, "parameters": parameters}}
    return _messages(f"{kind}/{project.tenant}", parameters["table"])


_KINDS: Final = {"telemetry": "telemetry", "events": "event"}
_COLUMNS: Final = """
SELECT properties['device_id'] AS device, properties['tenant_id'] AS tenant, timestamp AS time,
properties['orig_adapter'] AS adapter, properties['gateway_id'] AS gateway, content_type, value AS payload,
map_filter(properties, (name, _) -> name NOT IN ('device_id', 'tenant_id', 'gateway_id', 'orig_adapter'))
AS properties
FROM received
"""


def _messages(address: str, table: str) -> Document:
    """Return a pipeline that keeps the messages of an address as rows, with what is said of each in columns."""
    return {
        "sources": [{"name": "received", "address": address, "format": "raw", "includeProperties": True}],
        "steps": [{"name": "messages", "sql": " ".join(_COLUMNS.split())}],
        "sinks": [{"input": "messages", "table": table}],
    }


def judge_logins(project: IoTProject, space: AddressSpace | None) -> Verdict:
    """Return whether only who logs in may use the addresses of a project."""
    if space is None or not space.spec.authentication_service.is_none:
        return Verdict("UsersOnly")
    name = f"address space '{space.metadata.name}' is open to everybody"
    how = "give it users (spec.authenticationService: {type: standard})"
    if project.spec.anonymous:
        return Verdict(
            "OpenToEverybody",
            f"{name}, and so are the project's addresses (spec.anonymous): who reaches them may receive what devices "
            f"send, and send in their name; {how}, and take spec.anonymous out",
        )
    return Verdict(
        "SpaceOpen", f"{name}, so nobody logs in, and only who does may use the project's addresses; {how}"
    )


def project_conditions(
    created: Verdict, ready: Verdict, accepted: Verdict, guarded: Verdict, generation: int
) -> Sequence[Condition]:
    """Return the conditions of a project.

    Args:
        created: whether its space and addresses are there.
        ready: whether they can be used.
        accepted: whether the device registry has its tenant.
        guarded: whether only who logs in may use its addresses; without that it is ready nevertheless.
        generation: the generation of its declaration.
    """
    parts = ((RESOURCES_CREATED, created), (RESOURCES_READY, ready), (CONFIGURATION_ACCEPTED, accepted))
    found = [condition(name, verdict, generation) for name, verdict in (*parts, (LOGIN_REQUIRED, guarded))]
    unmet = next((verdict for _, verdict in parts if not verdict.is_yes), Verdict("Ready"))
    return [*found, condition(READY, unmet, generation)]


def name_conditions(tenant: str, authorities: Sequence[str], alias: str, generation: int) -> Sequence[Condition]:
    """Return the conditions of a project whose tenant has names that do not count; it is ready nevertheless.

    Args:
        tenant: its id.
        authorities: the reasons that keep some of its authorities from counting where a device names no tenant.
        alias: the alias that it asks for, and that was not granted; empty: none.
        generation: the generation of its declaration.
    """
    found = []
    if authorities:
        how = f"`enmasse iot ca prove {tenant} --key FILE` proves one"
        verdict = Verdict("NotProved", f"{'; '.join(authorities)}: {how}")
        found.append(condition(AUTHORITIES_PROVED, verdict, generation))
    if alias:
        how = f"`enmasse iot tenant grant-alias {tenant}`"
        verdict = Verdict("NotGranted", f"alias '{alias}' counts once an operator has granted it: {how}")
        found.append(condition(ALIAS_GRANTED, verdict, generation))
    return found
