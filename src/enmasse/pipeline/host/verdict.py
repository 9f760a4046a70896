"""Whether a pipeline can run, and what its runner is told. Pure.

Rules:
1. A pipeline that has not begun waits for what it names; one that runs is not stopped because an address or
   its user went away: its queries say what happens then, and go on when it is back.
2. What must never run is stopped at once: users' Python and clusters where processes cannot be separated, and
   anything in a space that is gone or is another one now.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from enmasse.messaging.patterns import matches, parse
from enmasse.model.builtins import BUILTINS, MeteringParameters
from enmasse.model.conditions import Condition, Truth
from enmasse.model.pipelines import Pipeline

__all__ = [
    "AddressFacts",
    "Facts",
    "Rule",
    "SpaceFacts",
    "Verdict",
    "judge",
    "named_addresses",
    "read_credentials",
    "runs_python",
]

Document = dict[str, Any]
Rest = Literal["", "Paused", "Finished"]


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """What counts of a space."""

    uid: str
    needs_user: bool
    """Whether only its users come in."""
    is_going: bool = False
    """Whether it is being deleted."""


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """What counts of an address."""

    type: str
    schema: Any = None
    is_ready: bool = True

    def told(self) -> Document:
        """As a runner is told."""
        return {"type": self.type} | ({} if self.schema is None else {"schema": self.schema})


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether something may run here."""

    is_allowed: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that one pipeline depends on."""

    space: SpaceFacts | None
    addresses: Mapping[str, AddressFacts]
    """Of the space, by what applications call them."""
    secret: Document | None = None
    code: Document | None = None
    spark: str = ""
    """Why Spark cannot start; empty: it can."""
    python: Rule = field(default_factory=lambda: Rule(True, "Separated"))
    cluster: Rule | None = None
    """Whether it may run on the cluster that it names; None: it names none."""
    has_begun: bool = False
    """Whether a runner runs it now."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of it.

    Attributes:
        conditions: what holds.
        is_wanted: whether a runner is to run it.
        rest: why it is not, if nothing is wrong.
        credentials: name, user and password that the runner must find; None: it needs none.
        modules: Python by file name that the runner must find.
        put: what the runner is told, without the resource.
        mark: changes when the runner must be told again.
    """

    conditions: tuple[Condition, ...]
    is_wanted: bool
    rest: Rest = ""
    credentials: tuple[str, str, str] | None = None
    modules: Mapping[str, str] = field(default_factory=dict)
    put: Document = field(default_factory=dict)
    mark: str = ""


def judge(pipeline: Pipeline, facts: Facts) -> Verdict:
    """Tell what holds for a pipeline, and whether it is to run."""
    generation = pipeline.metadata.generation
    space = facts.space
    found: list[Condition] = []

    def note(kind: str, status: Truth, reason: str, message: str = "") -> bool:
        found.append(
            Condition(type=kind, status=status, reason=reason, message=message, observed_generation=generation)
        )
        return status == "True"

    has_space = space is not None and not space.is_going
    if has_space:
        note("SpaceFound", "True", "Found")
    else:
        going = "is being deleted" if space is not None else "does not exist"
        note("SpaceFound", "False", "SpaceGoing" if space else "SpaceMissing", f"space {pipeline.space} {going}")
    told, has_addresses = _judge_addresses(pipeline, facts, note)
    credentials, has_credentials = _judge_credentials(pipeline, facts, note)
    modules, has_code = _judge_code(pipeline, facts, note)
    has_spark = (
        note("SparkAvailable", "True", "Found")
        if not facts.spark
        else note("SparkAvailable", "False", "SparkMissing", facts.spark)
    )
    may_python = True
    if runs_python(pipeline):
        rule = facts.python
        may_python = note("PythonAllowed", "True" if rule.is_allowed else "False", rule.reason, rule.message)
    may_cluster = True
    if facts.cluster is not None:
        rule = facts.cluster
        may_cluster = note("ClusterAllowed", "True" if rule.is_allowed else "False", rule.reason, rule.message)
    rest = _rest_of(pipeline)
    must_not = not (has_space and may_python and may_cluster and has_spark) or bool(rest) or _is_going(pipeline)
    waits = not (has_addresses and has_credentials and has_code)
    put = {"credentials": credentials[0] if credentials else "", "addresses": told}
    digest = {
        "uid": pipeline.metadata.uid,
        "generation": generation,
        "space": space.uid if space else "",
        "code": modules,
        **put,
    }
    return Verdict(
        conditions=tuple(found),
        is_wanted=not must_not and (facts.has_begun or not waits),
        rest=rest,
        credentials=credentials,
        modules=modules,
        put=put,
        mark=hashlib.sha256(json.dumps(digest, sort_keys=True).encode()).hexdigest(),
    )


def runs_python(pipeline: Pipeline) -> bool:
    """Whether it has Python of its own."""
    return any(step.function for step in pipeline.spec.steps)


def named_addresses(pipeline: Pipeline) -> Iterator[str]:
    """Yield the addresses that a pipeline names, some of them more than once; patterns are none."""
    spec = pipeline.spec
    for source in spec.sources:
        yield from filter(None, (source.address, source.bad_records))
    for sink in spec.sinks:
        yield from (address for address in (sink.address, sink.bad_records) if address and address != "*")
    if spec.builtin is not None and (kind := BUILTINS.get(spec.builtin.name)) is not None:
        parameters = kind.model_validate(dict(spec.builtin.parameters))
        if not isinstance(parameters, MeteringParameters):
            yield from parameters.reads()
        yield from parameters.writes()


def _patterns(pipeline: Pipeline) -> tuple[str, ...]:
    """The patterns of addresses that a pipeline names; one that stands for nothing now is no mistake."""
    builtin = pipeline.spec.builtin
    if builtin is None or BUILTINS.get(builtin.name) is not MeteringParameters:
        return ()
    return MeteringParameters.model_validate(dict(builtin.parameters)).addresses


def _judge_addresses(pipeline: Pipeline, facts: Facts, note: Any) -> tuple[Document, bool]:
    named = list(dict.fromkeys(named_addresses(pipeline)))
    missing = [name for name in named if name not in facts.addresses]
    unready = [name for name in named if name in facts.addresses and not facts.addresses[name].is_ready]
    told = {name: facts.addresses[name].told() for name in named if name in facts.addresses}
    for pattern in map(parse, _patterns(pipeline)):
        told |= {name: item.told() for name, item in facts.addresses.items() if matches(pattern, name)}
    if any(sink.address == "*" for sink in pipeline.spec.sinks):
        told |= {name: item.told() for name, item in facts.addresses.items()}
    if missing:
        some = ", ".join(missing[:10])
        return told, note(
            "AddressesFound", "False", "AddressMissing", f"space {pipeline.space} has no address {some}"
        )
    if unready and not facts.has_begun:
        some = ", ".join(unready[:10])
        return told, note("AddressesFound", "False", "AddressNotReady", f"address {some} is not ready yet")
    return told, note("AddressesFound", "True", "Found")


def _judge_credentials(pipeline: Pipeline, facts: Facts, note: Any) -> tuple[tuple[str, str, str] | None, bool]:
    name, kind = pipeline.spec.credentials_secret, "CredentialsFound"
    if name is None:
        if facts.space is not None and facts.space.needs_user:
            message = (
                f"space {pipeline.space} lets in its users alone: make a Secret with the entries username and "
                "password of one of them, and name it in spec.credentialsSecret"
            )
            return None, note(kind, "False", "CredentialsNeeded", message)
        return None, note(kind, "True", "NotNeeded")
    if facts.secret is None:
        where = pipeline.metadata.namespace
        return None, note(kind, "False", "SecretMissing", f"there is no Secret {name} in namespace {where}")
    read = read_credentials(name, facts.secret)
    if isinstance(read, str):
        return None, note(kind, "False", "SecretIncomplete", read)
    return read, note(kind, "True", "Found")


def read_credentials(name: str, secret: Document) -> tuple[str, str, str] | str:
    """Return the name, user and password of a Secret; or what is wrong with it, without what it holds."""
    entries, values = secret.get("data") or {}, []
    for entry in ("username", "password"):
        try:
            values.append(base64.b64decode(entries[entry], validate=True).decode())
        except (KeyError, ValueError, binascii.Error):
            return f"Secret {name} has no entry {entry} of text; username and password are needed"
    user, password = values
    return name, user, password


def _judge_code(pipeline: Pipeline, facts: Facts, note: Any) -> tuple[dict[str, str], bool]:
    code = pipeline.spec.code
    if code is None:
        return {}, True
    if facts.code is None:
        where = pipeline.metadata.namespace
        message = f"there is no ConfigMap {code.config_map} in namespace {where}"
        return {}, note("CodeFound", "False", "ConfigMapMissing", message)
    modules = {name: text for name, text in (facts.code.get("data") or {}).items() if _is_module(name)}
    wanted = {step.function.partition(":")[0] for step in pipeline.spec.steps if step.function}
    if missing := sorted(name for name in wanted if f"{name}.py" not in modules):
        message = f"ConfigMap {code.config_map} has no entry {missing[0]}.py"
        return modules, note("CodeFound", "False", "ModuleMissing", message)
    return modules, note("CodeFound", "True", "Found")


def _is_module(name: str) -> bool:
    return name.endswith(".py") and name[:-3].isidentifier()


def _rest_of(pipeline: Pipeline) -> Rest:
    if pipeline.spec.paused:
        return "Paused"
    status = pipeline.status
    if status.phase == "Finished" and status.observed_generation == pipeline.metadata.generation:
        return "Finished"
    return ""


def _is_going(pipeline: Pipeline) -> bool:
    return bool(pipeline.metadata.deletion_timestamp)
