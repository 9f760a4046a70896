"""Decides whether a pipeline can run and what its runner is sent, and composes its status. Pure.

Rules:
1. A pipeline that has not begun waits for what it names, and for room; one that runs is not stopped because an
   address or its user went away: its queries report what happens then, and go on when it is back.
2. What must never run is stopped at once: users' Python and clusters where processes cannot be separated, and
   anything in a space that is gone or is another one now.
3. Users' Python can do all that its process can, so it runs where processes are separated, or an operator allows it.
4. A cluster is as trusted as the installation: executors run as the user of their workers, whichever space they work
   for, and a master may hand objects to the driver. So there must be no other tenants. Executors connect to the
   driver, so its runner has no network of its own: where others have one, an operator must have listed the masters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from enmasse.messaging.patterns import matches, parse_permission
from enmasse.model.kinds.lakes import S3Lake
from enmasse.model.kinds.pipelines.builtins import BUILTINS, MeteringParameters
from enmasse.model.kinds.pipelines.pipeline import BEHIND_SINK, Pipeline, unapplied_by_type
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.schema.conditions import READY, Condition, Truth, Unapplied, find, stamp, unmet, with_effect
from enmasse.pipeline.backup.outside import RestoredMarks
from enmasse.pipeline.host.lakes import LakeFacts
from enmasse.pipeline.host.reach import ANNOTATION, Reach, is_never, parse_hosts, place_of
from enmasse.pipeline.host.secrets import SecretEntries, judge_secrets
from enmasse.pipeline.host.separation import Separation

_INSTEAD = "SQL and built-in pipelines run"


def python_rule(separation: Separation, spaces: int, *, is_api_open: bool) -> Rule:
    """Return what counts for all pipelines with Python of their own.

    Args:
        separation: whether processes of spaces can be kept from each other.
        spaces: the number of spaces.
        is_api_open: whether everyone who reaches the API may run Python, because it asks for no proof of identity.
    """
    if is_api_open:
        return Rule(
            False,
            "ApiOpen",
            "Python of pipelines does not run where the API is open: everyone who reaches it may do everything, and "
            f"Python would; start without --api-auth open, or with --allow-python. {_INSTEAD}",
        )
    if spaces <= 1:
        return Rule(True, "OneSpace")
    if not separation.is_possible:
        return Rule(
            False,
            "NotSeparated",
            "Python of pipelines does not run where there are several spaces whose processes cannot be kept from "
            f"each other: {separation.reason}; run EnMasse as root, where every user may read it. {_INSTEAD}",
        )
    return Rule(True, "Separated")


def cluster_rule(pipeline: Pipeline, spaces: int, hosts: str | None = None) -> Rule | None:
    """Return what counts for a pipeline; None: it runs on this machine.

    Args:
        pipeline: the pipeline that may name a cluster.
        spaces: the number of spaces.
        hosts: the hosts that the operator lets its runner reach; None: runners are not kept from other hosts.
    """
    resources = pipeline.spec.resources
    master = resources.master if resources is not None else None
    if not master or master.startswith("local"):
        return None
    if not master.startswith("spark://"):
        return Rule(
            False,
            "NotSupported",
            f"pipelines run on standalone clusters, spark://HOST:PORT, and not on {master}: its executors would "
            "reach neither Spark's driver nor the node, which listen on the loopback interface",
        )
    if spaces > 1:
        return Rule(
            False,
            "NotSeparated",
            "pipelines run on a cluster only where there is one space: executors run as the user of their workers, "
            "so spaces cannot be kept from each other there; leave out spec.resources.master",
        )
    if hosts is not None and (missing := _missing(master.removeprefix("spark://"), hosts)):
        return Rule(
            False,
            "HostNotGranted",
            f"pipelines of this namespace do not reach {missing}: the operator of EnMasse lists it in the "
            f"annotation {ANNOTATION} of the namespace",
        )
    return Rule(True, "OneSpace")


def database_rule(pipeline: Pipeline, hosts: str) -> Rule | None:
    """Return whether a pipeline may reach its databases; None: it has none.

    Args:
        pipeline: the pipeline that may name databases.
        hosts: the hosts that the operator lets runners of its namespace reach; what is not listed is refused, also
            where runners share this machine's network.
    """
    databases = pipeline.spec.databases
    reach = Reach(parse_hosts(hosts)[0])
    for database in databases:
        host, port = database.host.lower(), database.port
        try:
            place = place_of(host, port)
        except ValueError:
            return Rule(False, "HostNotGranted", f"the database host {host} is neither a name nor an address")
        if place.network is not None and is_never(str(place.network.network_address)):
            message = f"the database host {host} is refused: nothing but what clouds tell machines is found there"
            return Rule(False, "HostNotGranted", message)
        if not reach.covers(place):
            entry = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return Rule(
                False,
                "HostNotGranted",
                f"pipelines of this namespace do not reach the database at {entry}: the operator of EnMasse lists it "
                f"in the annotation {ANNOTATION} of the namespace",
            )
    return Rule(True, "Granted") if databases else None


def restored_rule(pipeline: Pipeline, marks: RestoredMarks) -> Rule | None:
    """Return whether a pipeline may go on after its installation was restored; None: nothing speaks against it.

    Args:
        pipeline: the pipeline that may write to what no backup has.
        marks: of those that were restored and do.
    """
    restart = pipeline.spec.restart
    told = {} if restart is None else {"at": restart.at, "from": restart.start_from}
    space, metadata = pipeline.space_key.replace("/", "."), pipeline.metadata
    ahead = marks.sinks_ahead(space, metadata.name, metadata.uid or "", told)
    if not ahead:
        return None
    return Rule(
        False,
        BEHIND_SINK,
        f"it was restored from a backup, and what it has written elsewhere is not in that: {'; '.join(ahead)}. "
        "Look at what is there, and say from where it goes on, such as from the moment after the newest row: "
        f"`enmasse pipeline restart {metadata.name} --namespace {metadata.namespace} --from WHERE`",
    )


def _missing(masters: str, hosts: str) -> str:
    """Return the first master that no entry covers."""
    reach = Reach(parse_hosts(hosts)[0])
    for master in masters.split(","):
        places, problems = parse_hosts(master)
        if problems or not all(reach.covers(place) for place in places):
            return master
    return ""


Document = dict[str, Any]
Rest = Literal["", "Paused", "Finished"]


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """Facts about a space."""

    uid: str
    needs_user: bool
    """True if only its users come in."""
    is_going: bool = False
    """True if it is being deleted."""
    lake: S3Lake | None = None
    """The storage of its tables; None: they are in its own folder."""
    has_ui: bool = False
    """True if Spark's pages are to be shown."""
    has_event_log: bool = False
    """True if its sessions write Spark's event log."""
    memory: int | None = None
    """The bytes that each session's heap may have by its plan; None: its plan does not say."""
    cores: int | None = None
    """The cores that each session may have by its plan; None: its plan does not say."""


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """Facts about an address."""

    type: str
    schema: Any = None
    is_ready: bool = True
    is_placed: bool = True

    def to_command(self) -> Document:
        """Return the form in which a runner gets it."""
        return {"type": self.type} | ({} if self.schema is None else {"schema": self.schema})


@dataclass(frozen=True, slots=True)
class Rule:
    """The outcome of one rule, as a condition has it."""

    is_allowed: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that one pipeline depends on."""

    space: SpaceFacts | None
    addresses: Mapping[str, AddressFacts]
    """The addresses of the space, by what applications call them."""
    secrets: Mapping[str, Document | None] = field(default_factory=dict)
    """Those that it names; None: there is no such."""
    code: Document | None = None
    lake: LakeFacts | None = None
    """The storage of the space's tables; None: they are in its own folder."""
    spark: str = ""
    """The reason why Spark cannot start; empty: it can."""
    python: Rule = field(default_factory=lambda: Rule(True, "Separated"))
    cluster: Rule | None = None
    """True if it may run on the cluster that it names; None: it names none."""
    databases: Rule | None = None
    """True if it may reach the databases that it names; None: it names none."""
    restored: Rule | None = None
    """True if it may go on after a restore; None: nothing speaks against it."""
    room: Rule = field(default_factory=lambda: Rule(True, "Granted"))
    """The rule whether there is capacity for its runner."""
    has_begun: bool = False
    """True if a runner runs it now."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a pipeline.

    Attributes:
        conditions: the conditions that hold.
        is_wanted: whether a runner is to run it.
        rest: why it is not, if nothing is wrong.
        credentials: names and entries of the Secrets that the runner must find.
        modules: Python by file name that the runner must find.
        put: the order that the runner is sent, without the resource.
        mark: changes when the runner must be sent it again.
        unapplied: the parts of the declaration that have no effect.
    """

    conditions: tuple[Condition, ...]
    is_wanted: bool
    rest: Rest = ""
    credentials: tuple[SecretEntries, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    put: Document = field(default_factory=dict)
    mark: str = ""
    unapplied: tuple[Unapplied, ...] = ()


def judge(pipeline: Pipeline, facts: Facts) -> Verdict:
    """Decide what holds for a pipeline, and whether it is to run."""
    generation = pipeline.metadata.generation
    space = facts.space
    found: list[Condition] = []

    def note(kind: str, status: Truth, reason: str, message: str = "") -> bool:
        found.append(
            Condition(type=kind, status=status, reason=reason, message=message, observed_generation=generation)
        )
        return status == "True"

    def note_rule(kind: str, rule: Rule | None) -> bool:
        return rule is None or note(kind, "True" if rule.is_allowed else "False", rule.reason, rule.message)

    has_space = space is not None and not space.is_going
    if has_space:
        note("SpaceFound", "True", "Found")
    else:
        going = "is being deleted" if space is not None else "does not exist"
        note("SpaceFound", "False", "SpaceGoing" if space else "SpaceMissing", f"space {pipeline.space} {going}")
    addresses, has_addresses = _judge_addresses(pipeline, facts, note)
    needs_user = facts.space is not None and facts.space.needs_user
    secrets = judge_secrets(pipeline, facts.secrets, needs_user=needs_user)
    has_credentials = note_rule("CredentialsFound", Rule(not secrets.problem, secrets.reason, secrets.problem))
    modules, has_code = _judge_code(pipeline, facts, note)
    lake = facts.lake
    has_lake = note_rule("LakeFound", None if lake is None else Rule(not lake.problem, lake.reason, lake.problem))
    has_spark = note_rule(
        "SparkAvailable", Rule(not facts.spark, "SparkMissing" if facts.spark else "Found", facts.spark)
    )
    may_python = note_rule("PythonAllowed", facts.python if runs_python(pipeline) else None)
    may_cluster = note_rule("ClusterAllowed", facts.cluster)
    may_reach = note_rule("DatabasesAllowed", facts.databases)
    may_go_on = note_rule("SinksRestored", facts.restored)
    rest = _rest_of(pipeline)
    has_room = note_rule("ResourcesGranted", None if rest else facts.room)
    must_not = (
        not (has_space and may_python and may_cluster and may_reach and may_go_on and has_spark)
        or bool(rest)
        or _is_going(pipeline)
    )
    waits = not (has_addresses and has_credentials and has_code and has_lake and has_room)
    own = pipeline.spec.credentials_secret
    put = {"credentials": own if any(name == own for name, _ in secrets.entries) else "", "addresses": addresses}
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
        credentials=secrets.entries,
        modules=modules,
        put=put,
        mark=hashlib.sha256(json.dumps(digest, sort_keys=True).encode()).hexdigest(),
        unapplied=tuple(unapplied_by_type(pipeline.spec, lambda name: _type_of(facts.addresses.get(name)))),
    )


def _type_of(facts: AddressFacts | None) -> str | None:
    return None if facts is None else facts.type


def runs_python(pipeline: Pipeline) -> bool:
    """Return whether it has Python of its own."""
    code = pipeline.spec.code
    return any(step.function for step in pipeline.spec.steps) or bool(code is not None and code.functions)


def named_addresses(pipeline: Pipeline) -> Iterator[str]:
    """Yield the addresses that a pipeline names, some of them more than once; patterns are none."""
    spec = pipeline.spec
    for source in spec.sources:
        late = source.watermark.late if source.watermark is not None else None
        yield from filter(None, (source.address, *source.addresses, source.bad_records, late))
    yield from (step.bad_records for step in spec.steps if step.bad_records)
    for sink in spec.sinks:
        yield from (address for address in (sink.address, sink.bad_records) if address and address != "*")
    if spec.builtin is not None and (kind := BUILTINS.get(spec.builtin.name)) is not None:
        parameters = kind.model_validate(dict(spec.builtin.parameters))
        if not isinstance(parameters, MeteringParameters):
            yield from parameters.reads()
        yield from parameters.writes()


def _patterns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the patterns of addresses that a pipeline names; one that stands for nothing now is no mistake."""
    if declared := tuple(filter(None, (source.address_pattern for source in pipeline.spec.sources))):
        return declared
    builtin = pipeline.spec.builtin
    if builtin is None or BUILTINS.get(builtin.name) is not MeteringParameters:
        return ()
    return MeteringParameters.model_validate(dict(builtin.parameters)).addresses


def _judge_addresses(pipeline: Pipeline, facts: Facts, note: Any) -> tuple[Document, bool]:
    named = list(dict.fromkeys(named_addresses(pipeline)))
    missing = [name for name in named if name not in facts.addresses]
    unready = [name for name in named if name in facts.addresses and not facts.addresses[name].is_ready]
    addresses = {name: facts.addresses[name].to_command() for name in named if name in facts.addresses}
    for pattern in (parse_permission(text, "") for text in _patterns(pipeline)):
        addresses |= {name: item.to_command() for name, item in facts.addresses.items() if matches(pattern, name)}
    if any(sink.address == "*" for sink in pipeline.spec.sinks):
        addresses |= {name: item.to_command() for name, item in facts.addresses.items()}
    if missing:
        some = ", ".join(missing[:10])
        return addresses, note(
            "AddressesFound", "False", "AddressMissing", f"space {pipeline.space} has no address {some}"
        )
    if unready and not facts.has_begun:
        some = ", ".join(unready[:10])
        return addresses, note("AddressesFound", "False", "AddressNotReady", f"address {some} is not ready yet")
    return addresses, note("AddressesFound", "True", "Found")


def _judge_code(pipeline: Pipeline, facts: Facts, note: Any) -> tuple[dict[str, str], bool]:
    code = pipeline.spec.code
    if code is None:
        return {}, True
    if facts.code is None:
        where = pipeline.metadata.namespace
        message = f"there is no ConfigMap {code.config_map} in namespace {where}"
        return {}, note("CodeFound", "False", "ConfigMapMissing", message)
    modules = {name: text for name, text in (facts.code.get("data") or {}).items() if _is_module(name)}
    functions = [step.function for step in pipeline.spec.steps if step.function]
    wanted = {name.partition(":")[0] for name in (*functions, *(one.function for one in code.functions))}
    if missing := sorted(name for name in wanted if f"{name}.py" not in modules):
        message = f"ConfigMap {code.config_map} has no entry {missing[0]}.py"
        return modules, note("CodeFound", "False", "ModuleMissing", message)
    return modules, note("CodeFound", "True", "Found")


def _is_module(name: str) -> bool:
    return name.endswith(".py") and name[:-3].isidentifier()


def _rest_of(pipeline: Pipeline) -> Rest:
    if pipeline.spec.paused:
        return "Paused"
    spec, status = pipeline.spec, pipeline.status
    if spec.schedule or spec.after:
        return ""  # Its runner begins it again.
    if status.phase == "Finished" and status.observed_generation == pipeline.metadata.generation:
        return "Finished"
    return ""


def _is_going(pipeline: Pipeline) -> bool:
    return bool(pipeline.metadata.deletion_timestamp)


_CANNOT = frozenset({"ClusterAllowed", "DatabasesAllowed", "PythonAllowed", "SinksRestored", "SparkAvailable"})
"""Conditions that waiting does not fulfil."""
_PHASE_OF_REASON = {
    "Running": "Running",
    "Finished": "Finished",
    "Starting": "Starting",
    "Paused": "Starting",
    "TableEmpty": "Pending",
    "ModelMissing": "Pending",
    "Waiting": "Pending",
    "Degraded": "Running",
    "LongBatch": "Running",
}
"""Phases by the reason of a runner's condition Ready; others are failures. One that was paused is to start."""
_READY_PHASES = frozenset({"Running", "Finished"})


def compose(
    pipeline: Pipeline,
    former: PipelineStatus,
    verdict: Verdict,
    reported: PipelineStatus | None,
    now: str,
    *,
    ending: str = "",
) -> PipelineStatus:
    """Return what is to be published of a pipeline.

    Args:
        pipeline: the pipeline as declared.
        former: the status that was published last.
        verdict: the verdict of the host.
        reported: the runner's report on the present generation; None: nothing yet.
        now: the present, RFC 3339 in UTC.
        ending: the sentence of how the runner ended, if it has and is not ready again.
    """
    phase, reason, message = _phase(pipeline, verdict, reported, ending)
    conditions = [*verdict.conditions, *_more(verdict.conditions, reported)]
    ready = Condition(
        type=READY,
        status="True" if phase in _READY_PHASES else "False",
        reason=reason,
        message=message,
        observed_generation=pipeline.metadata.generation,
    )
    conditions = list(with_effect([*conditions, ready], verdict.unapplied, pipeline.metadata.generation))
    fields: dict[str, Any] = {
        "conditions": stamp(conditions, former.conditions, now),
        "is_ready": phase in _READY_PHASES,
        "phase": phase,
        # One that runs says so where it is degraded, too.
        "messages": unmet(conditions) + ((message,) if message and phase in _READY_PHASES else ()),
        "observed_generation": pipeline.metadata.generation,
    }
    if reported is not None and verdict.is_wanted:
        for name in ("queries", "rows", "rate", "lag", "last_error", "next_run", "warnings"):
            fields[name] = getattr(reported, name)
        for name in ("restarted_at", "last_run", "backfill"):  # of which a runner that is new knows nothing
            fields[name] = getattr(reported, name) or getattr(former, name)
    else:
        state = phase if phase in ("Paused", "Finished", "Starting") else "Waiting"
        fields["queries"] = tuple(
            query.model_copy(
                update={"state": state, "input_rows_per_second": None, "processed_rows_per_second": None}
            )
            for query in former.queries
        )
        fields |= {"rate": None, "next_run": None}
    return former.model_copy(update=fields)


def _phase(
    pipeline: Pipeline, verdict: Verdict, reported: PipelineStatus | None, ending: str
) -> tuple[str, str, str]:
    """Return phase, reason and message of a pipeline."""
    if pipeline.metadata.deletion_timestamp:
        return "Terminating", "Deleted", "it is stopped, and its place is removed"
    wrong = next((item for item in verdict.conditions if item.status != "True"), None)
    if verdict.rest == "Paused":
        return "Paused", "Paused", "spec.paused is true"
    if verdict.rest == "Finished":
        return "Finished", "Finished", ""
    if not verdict.is_wanted and wrong is not None:
        return ("Failed" if wrong.type in _CANNOT else "Pending"), wrong.reason, wrong.message
    ready = None if reported is None else find(reported.conditions, READY)
    if ready is None:
        if ending:
            return "Starting", "RunnerEnded", f"the runner {ending} and is started again"
        return "Starting", "Starting", "Spark starts"
    phase = _PHASE_OF_REASON.get(ready.reason, "Failed")
    return phase, ready.reason, ready.message


def _more(ours: Sequence[Condition], reported: PipelineStatus | None) -> list[Condition]:
    """Return the conditions that the runner reports and the host does not."""
    if reported is None:
        return []
    known = {item.type for item in ours} | {READY}
    return [item for item in reported.conditions if item.type not in known]
