"""The spaces and addresses that a node serves, kept in its journal.

The records are the node's configuration: with them it starts and serves without the control process. A change is
answered once it is on disk.

An address is built when it is first asked for, or at the start if the journal holds anything of it: until then it
is a record, and costs no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.address_types import ADDRESS_TYPES
from enmasse.messaging.core import ENDED_IN_ORDER
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.sessions.records import stored_sessions
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Operation, Table
from enmasse.model.kinds.address_settings import BROKERED_TYPES, entity_digest
from enmasse.model.schema.names import host_problem
from enmasse.node.entity_records import Record
from enmasse.node.errors import EntityError
from enmasse.node.management.address_list import AddressList
from enmasse.node.management.entity_fields import (
    ADDRESS_TYPE,
    FIELDS,
    SPACE_TYPE,
    check_address,
    checked,
    declaration_of,
    public,
    reported,
    space_limits,
)
from enmasse.node.management.records import AddressRecords, Snapshot, packed

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.owners import Grants, Holding
    from enmasse.messaging.sessions.records import Stored


ADDRESS_LIST = "$addresses"
"""The address from which a space's list of addresses is received."""

Done = Callable[[EntityError | None], None]


class Entities:
    """The spaces and addresses of a node.

    Args:
        core: the messaging core.
        new_id: returns unguessable names.
        space_closed: called with a space that is deleted.
    """

    def __init__(
        self, core: Core, new_id: Callable[[], str], space_closed: Callable[[Space], None] = lambda _space: None
    ) -> None:
        self.core = core
        self._snapshot = Snapshot(core)
        self.spaces: dict[str, Space] = {}
        self.declared = AddressRecords()
        self.records: dict[str, MutableMapping[str, Record]] = {SPACE_TYPE: {}, ADDRESS_TYPE: self.declared}
        """The records by type and name."""
        self.hosts: dict[str, str] = {}
        """The spaces that further host names stand for."""
        self.changes = 0
        """The number of changes of entities since the start: of those created, changed and deleted."""
        self._addresses: dict[str, Address] = {}
        """The addresses that are built, by the names of their entities."""
        self._idle_counts: dict[tuple[str, int], dict[str, Any]] = {}
        self._new_id = new_id
        self._space_closed = space_closed
        self.grants_of: Callable[[str, str, str], Grants | None] = lambda _space, _owner, _user: None
        """Returns the grants of a space's owner of a name, where they are known without the user's token."""
        self.is_known: Callable[[str, str, str, bool], bool] = lambda _space, _owner, _user, _is_removed: True
        """Returns true if a space's owner of a name may still come in; see ``Owners.is_known``."""
        self.owner_of: Callable[[str, str], str] = lambda _space, _user: ""
        """Returns a space's owner of a name; see ``Owners.owner_of``."""
        self.protocol_holdings: Callable[[Space], Iterable[Holding]] = lambda _space: ()
        """Returns what protocols keep for clients of a space that come back."""
        self.space_changed: Callable[[Space], None] = lambda _space: None
        """Called with a space whose authentication has changed."""
        self.connectors_changed: Callable[[Space, dict[str, Any]], None] = lambda _space, _connectors: None
        """Called with a space and its connectors, when it has some or they have changed."""
        self.rates_changed: Callable[[Space], None] = lambda _space: None
        """Called with a space when a rate limit is new for some of its senders."""
        self.is_here: Callable[[str], bool] = lambda _space: True
        """Returns true if a space, whose record is known, is at home at this node."""
        self.home_changed: Callable[[Space], None] = lambda _space: None
        """Called with a space whose home has changed."""
        self.port_changed: Callable[[str, int], None] = lambda _name, _port: None
        """Called with a space's name and its own port; 0 is none."""
        self._lists: dict[str, AddressList] = {}
        """The address lists of the spaces."""
        self.extra_status: Callable[[str], dict[str, Any]] = lambda _name: {}
        """Returns further attributes to report of a space."""
        self._coming: dict[tuple[str, str], Record] = {}
        self._changing: dict[tuple[str, str], Record] = {}
        """Entities as they will be once the changes under way are on disk."""
        self._leaving: dict[tuple[str, str], Record] = {}

    # Loading

    def load(self) -> None:
        """Load what the journal holds, messages included."""
        storage = self.core.storage
        self.core.log_numbers.load(storage)
        self._begin(storage.get(Table.ENTITY, ENDED_IN_ORDER) is not None)
        for record, _ in self._snapshot.records(SPACE_TYPE):
            if "hosts" in record:
                # Older versions accepted hosts that are not allowed any more.
                record["hosts"] = [host for host in record["hosts"] if host_problem(host) is None]
            self.records[SPACE_TYPE][record["name"]] = record
            self._build_space(record)
        names: dict[int, str] = {}
        for record, value in self._snapshot.records(ADDRESS_TYPE):
            name = record["name"]
            self.declared.put(name, record, value)
            names[record["log"]] = name
        stored = self._snapshot.logs()
        # Addresses of a space depend on each other, so they are all built before the first loads its messages.
        built = [address for log in stored if log in names for address in self._build(names[log])]
        for address in built:
            address.load()
        self._load_sessions()
        self._clear_leftovers(stored, names)

    def _load_sessions(self) -> None:
        """Load sessions and wills, as the addresses have what belongs to them."""
        found: dict[str, list[Stored]] = {}
        for stored in stored_sessions(self.core.storage):
            found.setdefault(stored.space, []).append(stored)
        for name, space in self.spaces.items():
            space.sessions.load(stored for stored in found.get(name, ()) if stored.is_of(space.uid))
            space.sessions.clear(address for address in space.addresses.values() if isinstance(address, Topic))
            # The process may have died before all was ended of users who went.
            space.owners.review()

    def _begin(self, ended_in_order: bool) -> None:
        """Check stored frames carefully, unless the last run ended in order and a note of this one is on disk."""
        self.core.is_careful = True

        def begun() -> None:
            self.core.is_careful = False

        if ended_in_order:
            self.core.store_in_time([Operation(Table.ENTITY, ENDED_IN_ORDER, None)], begun)

    def end(self) -> None:
        """Note in the journal that this run ended in order; nothing is written after that."""
        ended = Operation(Table.ENTITY, ENDED_IN_ORDER, self.core.wall_us.to_bytes(8, "big"))
        self.core.store([ended], lambda _reason: None)

    def _clear_leftovers(self, stored: Iterable[int], known: Container[int]) -> None:
        """Delete what an interrupted deletion has left."""
        made = {log for address in self._addresses.values() for log in address.extra_logs()}
        for space in self.spaces.values():
            made |= space.sessions.logs
        for log in stored:
            if log not in known and log not in made:
                self._snapshot.clear(log)

    def _build_space(self, record: Record) -> None:
        name = record["name"]
        space = Space(self.core, name, self._new_id, uid=record.get("uid", ""), max_bytes=record.get("maxBytes", 0))
        _set_behaviour(space, record)
        space.limit(space_limits(record))
        space.wake = lambda address: self._build_on_demand(name, address)
        space.grants = lambda owner, user: self.grants_of(name, owner, user)
        space.owners.is_known = lambda owner, user, is_removed: self.is_known(name, owner, user, is_removed)
        space.owners.owner_of = lambda user: self.owner_of(name, user)
        space.protocol_holdings = lambda of: self.protocol_holdings(of)  # noqa: PLW0108  it may be set later
        space.declarations = lambda: self.declared.types_of(name)
        self.spaces[name] = space
        listing = self._lists[name] = AddressList(self.core, ADDRESS_LIST, name, self.declared, self.changes)
        space.services[ADDRESS_LIST] = listing
        for host in record.get("hosts", ()):
            self.hosts.setdefault(host, name)
        if record.get("port") and self.is_here(name):
            self.port_changed(name, record["port"])
        if record.get("connectors") and self.is_here(name):
            self.connectors_changed(space, record["connectors"])

    def _build(self, name: str) -> list[Address]:
        """Build an address and those it depends on: a topic with its subscriptions, a subscription with its topic.

        Returns:
            The addresses that were built, in the order in which they have to load their messages.
        """
        if name in self._addresses:
            return []
        record = self.declared[name]
        space = self.spaces[record["space"]]
        address = self._make(record, space.usage.limits.ttl_ms)
        self._addresses[name] = address
        space.add(address)
        made = [address]
        for other in self.declared.companions(record):
            made += self._build(other)
        return made

    def _make(self, record: Record, max_ttl_ms: int = 0) -> Address:
        """Return a new address for a record, empty and not yet part of its space."""
        of = ADDRESS_TYPES[record["addressType"]].of
        return of.declared(self.core, record["address"], declaration_of(record, max_ttl_ms))

    def _build_on_demand(self, space: str, address: str) -> Address | None:
        """Build an address that is asked for, if it is declared."""
        name = self.declared.named(space, address)
        if name is None:
            return None
        for made in self._build(name):
            made.load()
        return self._addresses[name]

    def _declare(self, record: Record, value: bytes | None = None, done: Callable[[], None] | None = None) -> None:
        """Begin to serve an address; ``done`` is called once all filters of sessions reach it."""
        name, space = record["name"], self.spaces[record["space"]]
        self.declared.put(name, record, packed(record) if value is None else value)
        space.declared(record["address"], record["addressType"], done)
        if any(other in self._addresses for other in self.declared.companions(record)):
            self._build_on_demand(space.name, record["address"])
        self._lists[space.name].changed(record["address"])

    # Changing

    def create(self, entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Add a space or an address; ``done`` is called once it can be used.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 no such space, 409 the name or
                the address exists, 503 the node has no number for another log.
        """
        record = checked(entity_type, name, attributes)
        key = (entity_type, name)
        if name in self.records[entity_type] or key in self._coming or key in self._leaving:
            raise EntityError(409, f"{entity_type} {name!r} exists already")
        operations = []
        if entity_type == ADDRESS_TYPE:
            self._check_new_address(name, record)
            try:
                record["log"], counter = self.core.new_log()
            except AttachError as error:
                raise EntityError(503, error.description) from None
            operations.append(counter)
        else:
            self._check_hosts(name, record)
        record.setdefault("uid", self._new_id())
        put = self._snapshot.put(entity_type, record)
        operations.append(put)
        self._coming[key] = record

        def stored(reason: str | None) -> None:
            del self._coming[key]
            if reason is None:
                self.changes += 1
                self._serve(entity_type, record, put.value, lambda: done(None))
            else:
                done(EntityError(503, f"{name!r} was not stored: {reason}"))

        self.core.store(operations, stored)

    def _serve(
        self, entity_type: str, record: Record, value: bytes | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """Begin to serve an entity that is on disk; ``done`` is called once it can be used."""
        if entity_type == ADDRESS_TYPE:
            self._declare(record, value, done)
        else:
            self.records[SPACE_TYPE][record["name"]] = record
            self._build_space(record)
            if record.get("oidc"):
                self.space_changed(self.spaces[record["name"]])
            if done is not None:
                done()

    def _check_new_address(self, name: str, record: Record) -> None:
        """Check that an address fits in its space."""
        check_address(name, record)
        space, address, kind = record["space"], record["address"], record["addressType"]
        if space not in self.spaces:
            raise EntityError(404, f"there is no space {space!r}")
        if not self.is_here(space):
            raise EntityError(409, f"space {space!r} is at home at another node, which alone has its addresses")
        if self.records[SPACE_TYPE][space].get("spaceType") == "brokered" and kind not in BROKERED_TYPES:
            raise EntityError(
                400,
                f"space {space!r} is brokered, which has {', '.join(BROKERED_TYPES)}: everything is kept there, and "
                f"{kind} keeps nothing in order; use a space of type standard",
            )
        other = self.declared.named(space, address) or self._name_under_way(space, address)
        if other is not None:
            raise EntityError(409, f"address {address!r} exists already, as {other!r}")

    def _name_under_way(self, space: str, address: str | None = None) -> str | None:
        """Return the name of an address of a space that is being created or deleted."""
        for records in (self._coming, self._leaving):
            for (kind, name), record in records.items():
                if kind == ADDRESS_TYPE and record["space"] == space and address in (None, record["address"]):
                    return name
        return None

    def _check_hosts(self, name: str, record: Record) -> None:
        """Check that a space's further host names are not another's."""
        for host in record.get("hosts", ()):
            if self.hosts.get(host, name) != name:
                # A tenant sees this error, and may not know whose host it is.
                raise EntityError(409, f"host {host!r} stands for another space already")

    def update(self, entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Change what may change; see ``create``. A null brings an attribute back to its default.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 it does not exist, 409 an attribute
                that is fixed for ever would change.
        """
        key = (entity_type, name)
        before = self._changing.get(key) or self._existing(entity_type, name)
        fields = FIELDS[entity_type]
        given = {k: v for k, v in attributes.items() if v is not None or k not in fields or fields[k].is_changeable}
        after = checked(entity_type, name, {**public(before), **given})
        for attribute, field in fields.items():
            if before.get(attribute) != after.get(attribute) and not field.is_changeable:
                raise EntityError(
                    409, f"attribute {attribute} of {name!r} cannot be changed; delete it and make it anew"
                )
        if entity_type == ADDRESS_TYPE:
            check_address(name, after)
        else:
            self._check_hosts(name, after)
        record = {**after, "log": before["log"]} if "log" in before else after
        self._changing[key] = record

        def stored(reason: str | None) -> None:
            if self._changing.get(key) is record:
                del self._changing[key]
            if name not in self.records[entity_type]:
                done(EntityError(404, f"{name!r} was deleted meanwhile"))
                return
            if reason is None:
                self.changes += 1
                self._apply(entity_type, record)
            done(None if reason is None else EntityError(503, f"{name!r} was not stored: {reason}"))

        self.core.store([self._snapshot.put(entity_type, record)], stored)

    def _apply(self, entity_type: str, record: Record) -> None:
        name = record["name"]
        if entity_type == SPACE_TYPE:
            self._apply_space(self.spaces[name], record)
            return
        self.declared[name] = record
        space, address = self.spaces[record["space"]], self._addresses.get(name)
        if address is not None:
            is_metered, was_for_users = address.meter is not None, address.is_for_users
            address.apply(declaration_of(record, space.usage.limits.ttl_ms))
            if address.meter is not None and not is_metered:
                self.rates_changed(space)
            if address.is_for_users != was_for_users:
                self.space_changed(space)
        self._lists[space.name].changed(record["address"])

    def _apply_space(self, space: Space, record: Record) -> None:
        name, before = space.name, self.records[SPACE_TYPE][space.name]
        was_here = self.is_here(name)
        self.records[SPACE_TYPE][name] = record
        is_here = self.is_here(name)
        space.configure(max_bytes=record.get("maxBytes", 0))
        _set_behaviour(space, record)
        limits, is_metered = space_limits(record), space.meter is not None
        is_other_ttl = limits.ttl_ms != space.usage.limits.ttl_ms
        space.limit(limits)
        if space.meter is not None and not is_metered:
            self.rates_changed(space)
        if is_other_ttl:
            for address in self._built(name):
                self._addresses[address].apply(declaration_of(self.declared[address], limits.ttl_ms))
        if any(before.get(key) != record.get(key) for key in ("authentication", "oidc")):
            self.space_changed(space)
            space.owners.review()
        connectors, former = record.get("connectors") or {}, before.get("connectors") or {}
        if (connectors if is_here else {}) != (former if was_here else {}):
            self.connectors_changed(space, connectors if is_here else {})
        self._release_hosts(name, before)
        for host in record.get("hosts", ()):
            self.hosts.setdefault(host, name)
        port, former_port = record.get("port", 0), before.get("port", 0)
        if (port if is_here else 0) != (former_port if was_here else 0):
            self.port_changed(name, port if is_here else 0)
        if any(before.get(key) != record.get(key) for key in ("home", "homeGeneration")):
            self.home_changed(space)

    def _release_hosts(self, name: str, record: Record) -> None:
        for host in record.get("hosts", ()):
            if self.hosts.get(host) == name:
                del self.hosts[host]

    def _built(self, space: str) -> list[str]:
        """Return the names of the addresses of a space that are built."""
        return [name for name in self.declared.of_space(space).values() if name in self._addresses]

    def delete(self, entity_type: str, name: str, done: Done) -> None:
        """Remove a space or an address with all that it stores; its links are detached, in turns if they are many.

        Raises:
            EntityError: 404 it does not exist, 409 the space still has addresses.
        """
        record = self._existing(entity_type, name)
        if entity_type == SPACE_TYPE:
            left = self.declared.of_space(name)
            example = next(iter(left.values()), None) or self._name_under_way(name)
            if example is not None:
                raise EntityError(409, f"space {name!r} still has {len(left) or 1} addresses, such as {example!r}")
            space = self.spaces.pop(name)
            del self._lists[name]
            self._release_hosts(name, record)
            space.close()
            self._space_closed(space)
            if record.get("port"):
                self.port_changed(name, 0)
        else:
            space = self.spaces[record["space"]]
            address = self._addresses.pop(name, None)
            # It must not be built again while it is deleted.
            del self.declared[name]
            self._lists[space.name].changed(record["address"])
        self.records[entity_type].pop(name, None)
        self._changing.pop((entity_type, name), None)
        self._leaving[entity_type, name] = record

        def stored(reason: str | None) -> None:
            del self._leaving[entity_type, name]
            if reason is not None:
                # It is still on disk: serve it again, as a restart would.
                self._serve(entity_type, record)
                if entity_type == ADDRESS_TYPE:
                    self._build_on_demand(record["space"], record["address"])
                done(EntityError(503, f"{name!r} was not deleted: {reason}"))
                return
            self.changes += 1
            # Every batch that could have frames of it is committed now.
            log = record.get("log")
            if log is not None:
                self._snapshot.clear(log)
            done(None)

        def closed() -> None:
            self.core.store([self._snapshot.removal(entity_type, name)], stored)

        if entity_type == SPACE_TYPE:
            closed()
        elif address is not None:
            space.remove(address, closed)
        else:
            space.undeclared(record["address"], closed)

    def _existing(self, entity_type: str, name: str) -> dict[str, Any]:
        record = self.records[entity_type].get(name)
        if record is None:
            raise EntityError(404, f"there is no {entity_type} {name!r}")
        return record

    # Reading

    def find(self, name: str) -> tuple[Space, Address]:
        """Return an address by the name of its entity, and its space.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(ADDRESS_TYPE, name)
        address = self._build_on_demand(record["space"], record["address"])
        assert address is not None
        return self.spaces[record["space"]], address

    def read(self, entity_type: str, name: str) -> dict[str, Any]:
        """Return one entity's attributes and counters.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(entity_type, name)
        attributes = {"type": entity_type, "identity": name, **reported(record), "digest": entity_digest(record)}
        if entity_type == ADDRESS_TYPE:
            address = self._addresses.get(name)
            return attributes | (self._counts_of(record) if address is None else address.counts())
        space = self.spaces[name]
        attributes |= {"dynamicAddresses": len(space.dynamic), "unroutable": space.unroutable}
        attributes |= {
            "connections": space.usage.connections,
            "devices": len(space.usage.devices),
            "links": space.usage.links,
            "bytesStored": space.bytes_stored,
            "retained": len(space.retained),
            "retainedBytes": space.retained.bytes_retained,
            "sessions": space.sessions.lasting,
            "subscriptions": space.usage.subscriptions,
            "subscriptionBytes": space.usage.subscription_bytes,
        }
        return attributes | self.extra_status(name)

    def note_change(self) -> None:
        """Count a change of what an entity shows that no request has made, so that control reads it."""
        self.changes += 1

    def _counts_of(self, record: Record) -> dict[str, Any]:
        """Return the counters of an address that is not built."""
        key = record["addressType"], record.get("partitions", 1)
        if key not in self._idle_counts:
            self._idle_counts[key] = self._make(record).counts()
        return self._idle_counts[key]

    def read_all(self, entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """Return the entities of a type, or a page of them in the order of their creation, as ``read`` does."""
        return [self.read(entity_type, name) for name in self._names(entity_type, page)]

    def identify(self, entity_type: str, names: list[str], page: slice) -> list[list[Any]]:
        """Return identifying attributes and digests of the entities of a type as rows, without counters."""
        records = self.records[entity_type]
        found = (records[name] for name in self._names(entity_type, page))
        return [
            [entity_digest(record) if name == "digest" else record.get(name) for name in names] for record in found
        ]

    def _names(self, entity_type: str, page: slice) -> list[str]:
        return self.declared.page(page) if entity_type == ADDRESS_TYPE else list(self.records[entity_type])[page]


def _set_behaviour(space: Space, record: Record) -> None:
    """Set what clients meet in a space, as its record says."""
    space.takes_query_properties = record.get("takeQueryProperties", False)
    space.acknowledges_undeliverable = record.get("acknowledgeUndeliverable", False)
    space.copies_overlapping = record.get("copyOverlapping", False)
    takes_dollar_names = record.get("takeDollarNames", False)
    if space.takes_dollar_names is not takes_dollar_names:
        space.takes_dollar_names = takes_dollar_names
        # Names that led nowhere, or to the topic, are looked up again.
        space.version += 1
