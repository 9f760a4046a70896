"""The form of a QUERY and of its answer [AMQP Management draft 4, 3.1].

What management does to the messages that an address stores: PURGE, MOVE, REPLAY.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.message.text_search import TextSearch
from enmasse.messaging.address import Address
from enmasse.messaging.errors import AttachError, SelectorError
from enmasse.messaging.queues.jobs import always
from enmasse.messaging.queues.operations import Choice, can_replay, count, everything, move, purge, replay
from enmasse.messaging.queues.places import Chosen, Place
from enmasse.messaging.selectors.selector import Selector, compile_selector
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.space import Space


def _asked_number(asked: dict[str, Any], name: str) -> int | None:
    """Return a number of entities that a query names, if it does.

    Raises:
        EntityError: 400 it is none.
    """
    value = asked.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise EntityError(400, f"{name} is a number of entities, not {value!r:.100}")
    return value


def asked_page(asked: dict[str, Any], most: int | None = None) -> slice:
    """Return which of the entities a query asks for.

    Args:
        asked: the application properties of the request.
        most: the most entities of one answer; None is any number.

    Raises:
        EntityError: 400 offset or count is no number.
    """
    first = _asked_number(asked, "offset") or 0
    count = _asked_number(asked, "count")
    if most is not None:
        count = most if count is None else min(count, most)
    return slice(first, None if count is None else first + count)


def asked_names(body: Any) -> list[str]:
    """Return the names of the attributes that a query asks for; none for all.

    Raises:
        EntityError: 400 they are no list of strings.
    """
    names = body.get("attributeNames") if isinstance(body, dict) else None
    if not names:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise EntityError(400, f"attributeNames is a list of strings, not {names!r:.100}")
    return names


def table(found: Sequence[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Return the body of the answer: the attributes asked for, of each entity."""
    columns = names or list(dict.fromkeys(name for entity in found for name in entity))
    return {"attributeNames": columns, "results": [[entity.get(name) for name in columns] for entity in found]}


_CHOICE = ("selector", "search", "ids", "dryRun")
ACTIONS = {"PURGE": _CHOICE, "MOVE": ("to", *_CHOICE), "REPLAY": _CHOICE}
"""Operations on the messages of an address, each with the names of its arguments."""

MAX_IDS = 10_000
"""The most messages that one request names."""

Done = Callable[[int, EntityError | None], None]


def _of_nobody(_address: Address) -> bool:
    return False


def act(
    action: str,
    name: str,
    space: Space,
    address: Address,
    arguments: Any,
    done: Done,
    is_closed: Callable[[Address], bool] = _of_nobody,
    is_wanted: Callable[[], bool] = always,
) -> None:
    """Carry out an operation on the messages of an address.

    Args:
        action: one of ``ACTIONS``.
        name: the entity's name, for errors.
        space: the space of the address.
        address: the address that stores the messages.
        arguments: a map of arguments.
        done: called once with the number of messages, when the result is stored.
        is_closed: returns true if who asks may not use an address, from which nothing is taken and to which nothing
            goes.
        is_wanted: returns false once who asks has gone; then it ends with what was done by then.

    Raises:
        EntityError: 400 the arguments are wrong or the address stores no messages for receivers, 403 an address is
            closed, 404 there is no address to move to.
    """
    given = _arguments(action, arguments)
    words = given.get("search")
    choice = Choice(_selector(given.get("selector")), _chosen(given.get("ids")), TextSearch(words) if words else None)
    backlog = address.stored()
    if backlog is None:
        raise EntityError(
            400, f"{name!r} is of type {address.kind}; {action} is for what queues and subscriptions store"
        )

    def answer(found: int, problem: str | None) -> None:
        if problem is None:
            done(found, None)
        else:
            done(found, EntityError(409, f"{problem}; {found} messages were dealt with"))

    def resolve(origin: str) -> Address | None:
        found = _find(space, origin)
        return None if found is None or is_closed(found) else found

    target = _target(space, backlog, given.get("to")) if action == "MOVE" else None
    if is_closed(address) or (target is not None and is_closed(target)):
        raise EntityError(403, f"{name!r}, or where its messages are to go, is for users only")
    if given.get("dryRun"):
        is_meant = can_replay(backlog, resolve) if action == "REPLAY" else everything
        count(backlog, choice, is_meant, answer, is_wanted)
    elif target is not None:
        move(backlog, target, choice, answer, is_wanted)
    elif action == "REPLAY":
        replay(backlog, resolve, choice, answer, is_wanted)
    else:
        purge(backlog, choice, answer, is_wanted)


def _arguments(action: str, arguments: Any) -> dict[str, Any]:
    known = ACTIONS[action]
    given = arguments if isinstance(arguments, dict) else {}
    for key, value in given.items():
        if key not in known:
            raise EntityError(400, f"{action} has no argument {key!r:.100}; it has {', '.join(known)}")
        kind, said = _TAKEN.get(key, (str, "a string"))
        if value is not None and not isinstance(value, kind):
            raise EntityError(400, f"argument {key} takes {said}, not {value!r:.100}")
    return given


_TAKEN: dict[str, tuple[type, str]] = {"ids": (list, "a list of ids"), "dryRun": (bool, "true or false")}


def _chosen(ids: list[Any] | None) -> Chosen | None:
    if ids is None:
        return None
    if len(ids) > MAX_IDS:
        raise EntityError(400, f"ids are {len(ids)}; one request names {MAX_IDS} messages at most")
    places = []
    for name in ids:
        place = Place.parse(name) if isinstance(name, str) else None
        if place is None:
            raise EntityError(400, f"{name!r:.100} is no id of a message")
        places.append(place)
    return Chosen(places)


def _selector(text: str | None) -> Selector | None:
    if text is None or not text.strip():
        return None
    try:
        return compile_selector(text)
    except SelectorError as error:
        raise EntityError(400, error.description) from None


def _find(space: Space, name: str) -> Address | None:
    try:
        return space.find(name)
    except AttachError:
        return None


def _target(space: Space, address: Backlog, to: str | None) -> Backlog:
    if not to:
        raise EntityError(400, "MOVE lacks its argument to: the address that the messages go to")
    target = _find(space, to)
    if target is None:
        raise EntityError(404, f"space {space.name!r} has no address {to!r} to move to")
    if target is address:
        raise EntityError(400, f"{to!r} is where the messages are already; name another address")
    stored = target.stored()
    if stored is None:
        raise EntityError(
            400, f"{to!r} is of type {target.kind}; messages are moved to queues and subscriptions only"
        )
    return stored
