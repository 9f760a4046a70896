"""What a node was told to serve: spaces and addresses, kept in its journal.

The records are the node's configuration snapshot: with them it starts and serves without the control
process. A change is answered once it is on disk.

An address is made when it is first asked for, or at the start if the journal holds anything of it: until
then it is a record, and costs no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.core import ENDED_IN_ORDER, LOG_COUNTER
from enmasse.messaging.queue import Queue
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.stream import Stream
from enmasse.messaging.subscription import Subscription
from enmasse.messaging.topic import Topic
from enmasse.model.entity_digest import entity_digest
from enmasse.node.address_factory import configure_address, make_address
from enmasse.node.address_list import AddressList
from enmasse.node.declared import DeclaredAddresses, packed
from enmasse.node.entity_fields import (
    ADDRESS_TYPE,
    BROKERED_KINDS,
    FIELDS,
    SPACE_TYPE,
    Record,
    check_address,
    checked,
    home_of,
    public,
    space_limits,
    told,
)
from enmasse.node.errors import EntityError
from enmasse.node.snapshot import Snapshot

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["ADDRESS_TYPE", "SPACE_TYPE", "Entities"]

ADDRESS_LIST = "$addresses"
"""From where a space's list of addresses is received."""

Done = Callable[[EntityError | None], None]


class Entities:
    """The spaces and addresses of a node.

    Args:
        core: the messaging core that they live in.
        new_id: gives unguessable names.
        space_closed: hears of a space that is deleted.
    """

    def __init__(
        self, core: Core, new_id: Callable[[], str], space_closed: Callable[[Space], None] = lambda _space: None
    ) -> None:
        self.core = core
        self._snapshot = Snapshot(core)
        self.spaces: dict[str, Space] = {}
        self.declared = DeclaredAddresses()
        self.records: dict[str, MutableMapping[str, Record]] = {SPACE_TYPE: {}, ADDRESS_TYPE: self.declared}
        """Type to name to attributes."""
        self.hosts: dict[str, str] = {}
        """Further host names to the spaces that they stand for."""
        self.changes = 0
        """Entities created, changed and deleted since the start."""
        self._addresses: dict[str, Address] = {}
        """Those that are made, by the names of their entities."""
        self._idle_counts: dict[tuple[str, int], dict[str, Any]] = {}
        self._new_id = new_id
        self._space_closed = space_closed
        self.space_changed: Callable[[Space], None] = lambda _space: None
        """Hears of a space whose authentication is another one now."""
        self.rates_changed: Callable[[Space], None] = lambda _space: None
        """Hears of a space whose senders, or some of them, are to be metered from now on."""
        self.port_changed: Callable[[str, int], None] = lambda _name, _port: None
        """Hears which port of its own a space has; 0 is none."""
        self._lists: dict[str, AddressList] = {}
        """Space to what tells its addresses."""
        self.notes: Callable[[str], dict[str, Any]] = lambda _name: {}
        """Gives what else is to be told of a space."""
        self._coming: dict[tuple[str, str], Record] = {}
        self._changing: dict[tuple[str, str], Record] = {}
        """What entities will be once the change on its way is on disk."""
        self._leaving: dict[tuple[str, str], Record] = {}

    # Loading

    def load(self) -> None:
        """Take up what the journal holds, messages included."""
        storage = self.core.storage
        counter = storage.get(Table.ENTITY, LOG_COUNTER)
        if counter is not None:
            self.core.next_log = int.from_bytes(counter, "big")
        self._begin(storage.get(Table.ENTITY, ENDED_IN_ORDER) is not None)
        for record, _ in self._snapshot.records(SPACE_TYPE):
            self.records[SPACE_TYPE][record["name"]] = record
            self._build_space(record)
        names: dict[int, str] = {}
        for record, value in self._snapshot.records(ADDRESS_TYPE):
            name = record["name"]
            self.declared.put(name, record, value)
            names[record["log"]] = name
        stored = self._snapshot.logs()
        # Addresses of a space hang together, so they are all made before the first takes up what it stores.
        awake = [address for log in stored if log in names for address in self._build(names[log])]
        for address in awake:
            self._load(address)
        self._sweep(stored, names)

    def _begin(self, ended_in_order: bool) -> None:
        """Be careful with what is stored, unless it is on disk that only a crash of this life can be to blame."""
        self.core.is_careful = True

        def begun() -> None:
            self.core.is_careful = False

        if ended_in_order:
            self.core.store_in_time([Operation(Table.ENTITY, ENDED_IN_ORDER, None)], begun)

    def end(self) -> None:
        """Have the next start know that this life of the node ended in order: nothing is written after that."""
        ended = Operation(Table.ENTITY, ENDED_IN_ORDER, self.core.wall_us.to_bytes(8, "big"))
        self.core.store([ended], lambda _reason: None)

    @staticmethod
    def _load(address: Address) -> None:
        """Have an address take up what the journal holds of it; all of its space are there by then."""
        if isinstance(address, Queue | Topic | Subscription | Stream):
            address.load()

    def _sweep(self, stored: Iterable[int], known: Container[int]) -> None:
        """Delete what an interrupted deletion left behind."""
        made = {log for a in self._addresses.values() if isinstance(a, Topic) for log in a.subscribing.logs}
        for log in stored:
            if log not in known and log not in made:
                self._snapshot.clear(log)

    def _build_space(self, record: Record) -> None:
        name = record["name"]
        space = Space(self.core, name, self._new_id, max_bytes=record.get("maxBytes", 0))
        space.limit(space_limits(record))
        space.wake = lambda address: self._wake(name, address)
        self.spaces[name] = space
        told = self._lists[name] = AddressList(self.core, ADDRESS_LIST, name, self.declared, self.changes)
        space.services[ADDRESS_LIST] = told
        for host in record.get("hosts", ()):
            self.hosts.setdefault(host, name)
        if record.get("port"):
            self.port_changed(name, record["port"])

    def _build(self, name: str) -> list[Address]:
        """Make an address, and what it cannot be without: a topic has its subscriptions, and these their topic.

        Returns:
            what was made, in the order in which it is to take up what the journal holds.
        """
        if name in self._addresses:
            return []
        record = self.declared[name]
        space = self.spaces[record["space"]]
        address = make_address(self.core, record, space.usage.limits.ttl_ms)
        self._addresses[name] = address
        space.add(address)
        space.rehome(address, home_of(record))
        made = [address]
        if isinstance(address, Topic):
            for subscription in self.declared.fed_by(space.name, address.name):
                made += self._build(subscription)
        elif isinstance(address, Subscription):
            topic = self.declared.named(space.name, address.topic_name)
            if topic is not None:
                made += self._build(topic)
        return made

    def _wake(self, space: str, address: str) -> Address | None:
        """Make an address that is asked for, if it is declared."""
        name = self.declared.named(space, address)
        if name is None:
            return None
        for made in self._build(name):
            self._load(made)
        return self._addresses[name]

    def _declare(self, record: Record, value: bytes | None = None) -> None:
        """Serve an address from now on."""
        name, space = record["name"], self.spaces[record["space"]]
        self.declared.put(name, record, packed(record) if value is None else value)
        space.declared(record["address"])
        # What is fed, or feeds, must be there as long as the other one is.
        kind = record["addressType"]
        others = self.declared.fed_by(space.name, record["address"]) if kind == "topic" else []
        if kind == "subscription":
            others = [self.declared.named(space.name, record["topic"]) or ""]
        if any(other in self._addresses for other in others):
            self._wake(space.name, record["address"])
        self._lists[space.name].changed(record["address"])

    # Changing

    def create(self, entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Add a space or an address; ``done`` is called once it can be used.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 no such space, 409 the name or
                the address exists.
        """
        record = checked(entity_type, name, attributes)
        key = (entity_type, name)
        if name in self.records[entity_type] or key in self._coming or key in self._leaving:
            raise EntityError(409, f"{entity_type} {name!r} exists already")
        operations = []
        if entity_type == ADDRESS_TYPE:
            self._check_place(name, record)
            record["log"], counter = self.core.new_log()
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
                self._serve(entity_type, record, put.value)
            done(None if reason is None else EntityError(503, f"{name!r} was not stored: {reason}"))

        self.core.store(operations, stored)

    def _serve(self, entity_type: str, record: Record, value: bytes | None = None) -> None:
        """Have clients find what is on disk."""
        if entity_type == ADDRESS_TYPE:
            self._declare(record, value)
        else:
            self.records[SPACE_TYPE][record["name"]] = record
            self._build_space(record)
            if record.get("oidc"):
                self.space_changed(self.spaces[record["name"]])

    def _check_place(self, name: str, record: Record) -> None:
        """See that an address fits in its space."""
        check_address(name, record)
        space, address, kind = record["space"], record["address"], record["addressType"]
        if space not in self.spaces:
            raise EntityError(404, f"there is no space {space!r}")
        if self.records[SPACE_TYPE][space].get("spaceType") == "brokered" and kind not in BROKERED_KINDS:
            raise EntityError(
                400,
                f"space {space!r} is brokered, which has {', '.join(BROKERED_KINDS)}: everything is kept there, and "
                f"{kind} keeps nothing in order; use a space of type standard",
            )
        other = self.declared.named(space, address) or self._moving(space, address)
        if other is not None:
            raise EntityError(409, f"address {address!r} exists already, as {other!r}")

    def _moving(self, space: str, address: str | None = None) -> str | None:
        """The name of an address of a space that is on its way to the disk or from it."""
        for records in (self._coming, self._leaving):
            for (kind, name), record in records.items():
                if kind == ADDRESS_TYPE and record["space"] == space and address in (None, record["address"]):
                    return name
        return None

    def _check_hosts(self, name: str, record: Record) -> None:
        """See that a space's further host names are its own."""
        for host in record.get("hosts", ()):
            owner = self.hosts.get(host, name)
            if owner != name:
                raise EntityError(409, f"host {host!r} stands for space {owner!r} already")

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
            is_metered = address.meter is not None
            configure_address(address, record, space.usage.limits.ttl_ms)
            space.rehome(address, home_of(record))
            if address.meter is not None and not is_metered:
                self.rates_changed(space)
        self._lists[space.name].changed(record["address"])

    def _apply_space(self, space: Space, record: Record) -> None:
        name, before = space.name, self.records[SPACE_TYPE][space.name]
        self.records[SPACE_TYPE][name] = record
        space.configure(max_bytes=record.get("maxBytes", 0))
        limits, is_metered = space_limits(record), space.meter is not None
        is_other_ttl = limits.ttl_ms != space.usage.limits.ttl_ms
        space.limit(limits)
        if space.meter is not None and not is_metered:
            self.rates_changed(space)
        if is_other_ttl:
            for address in self._awake(name):
                configure_address(self._addresses[address], self.declared[address], limits.ttl_ms)
        if any(before.get(key) != record.get(key) for key in ("authentication", "oidc")):
            self.space_changed(space)
        self._take_hosts(name, before)
        for host in record.get("hosts", ()):
            self.hosts.setdefault(host, name)
        if before.get("port", 0) != record.get("port", 0):
            self.port_changed(name, record.get("port", 0))

    def _take_hosts(self, name: str, record: Record) -> None:
        for host in record.get("hosts", ()):
            if self.hosts.get(host) == name:
                del self.hosts[host]

    def _awake(self, space: str) -> list[str]:
        """The names of the addresses of a space that are made."""
        return [name for name in self.declared.of_space(space).values() if name in self._addresses]

    def delete(self, entity_type: str, name: str, done: Done) -> None:
        """Remove a space or an address with all that it stores; its links are detached at once.

        Raises:
            EntityError: 404 it does not exist, 409 the space still has addresses.
        """
        record = self._existing(entity_type, name)
        if entity_type == SPACE_TYPE:
            left = self.declared.of_space(name)
            example = next(iter(left.values()), None) or self._moving(name)
            if example is not None:
                raise EntityError(409, f"space {name!r} still has {len(left) or 1} addresses, such as {example!r}")
            space = self.spaces.pop(name)
            del self._lists[name]
            self._take_hosts(name, record)
            space.close()
            self._space_closed(space)
            if record.get("port"):
                self.port_changed(name, 0)
        else:
            space = self.spaces[record["space"]]
            address = self._addresses.pop(name, None)
            # Nobody is to wake it while it goes.
            del self.declared[name]
            if address is not None:
                space.remove(address)
            self._lists[space.name].changed(record["address"])
        self.records[entity_type].pop(name, None)
        self._changing.pop((entity_type, name), None)
        self._leaving[entity_type, name] = record

        def stored(reason: str | None) -> None:
            del self._leaving[entity_type, name]
            if reason is not None:
                # Still on disk: serve it again, as a restart would.
                self._serve(entity_type, record)
                if entity_type == ADDRESS_TYPE:
                    self._wake(record["space"], record["address"])
                done(EntityError(503, f"{name!r} was not deleted: {reason}"))
                return
            self.changes += 1
            # Every batch that could hold frames of it is committed now.
            log = record.get("log")
            if log is not None:
                self._snapshot.clear(log)
            done(None)

        self.core.store([self._snapshot.removal(entity_type, name)], stored)

    def _existing(self, entity_type: str, name: str) -> dict[str, Any]:
        record = self.records[entity_type].get(name)
        if record is None:
            raise EntityError(404, f"there is no {entity_type} {name!r}")
        return record

    # Reading

    def find(self, name: str) -> tuple[Space, Address]:
        """An address by the name of its entity, and its space.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(ADDRESS_TYPE, name)
        address = self._wake(record["space"], record["address"])
        assert address is not None
        return self.spaces[record["space"]], address

    def read(self, entity_type: str, name: str) -> dict[str, Any]:
        """One entity's attributes and counters.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(entity_type, name)
        attributes = {"type": entity_type, "identity": name, **told(record), "digest": entity_digest(record)}
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
        }
        return attributes | self.notes(name)

    def _counts_of(self, record: Record) -> dict[str, Any]:
        """The counters of an address that nobody has used."""
        key = record["addressType"], record.get("partitions", 1)
        if key not in self._idle_counts:
            self._idle_counts[key] = make_address(self.core, record).counts()
        return self._idle_counts[key]

    def read_all(self, entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """The entities of a type, or some of them in the order of their creation, as ``read`` gives them."""
        return [self.read(entity_type, name) for name in self._names(entity_type, page)]

    def tell(self, entity_type: str, names: list[str], page: slice) -> list[list[Any]]:
        """What identifies the entities of a type, as rows, and their digests, which change with any attribute."""
        records = self.records[entity_type]
        found = (records[name] for name in self._names(entity_type, page))
        return [
            [entity_digest(record) if name == "digest" else record.get(name) for name in names] for record in found
        ]

    def _names(self, entity_type: str, page: slice) -> list[str]:
        return self.declared.page(page) if entity_type == ADDRESS_TYPE else list(self.records[entity_type])[page]
