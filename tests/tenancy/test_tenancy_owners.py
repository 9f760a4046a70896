"""Who comes to what a client has left behind: its owner alone, and after that one nobody, whatever names are used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from enmasse.messaging.storage import Operation, Table
from enmasse.net.loop import run
from tests.support.polling import until_async
from tests.tenancy.owners_stage import FEEDER, IDA, LEFT, OLD, Caller, Place

KEYS = ("owner", "ownerId", "spaceUid")
"""What older versions did not write; of subscriptions ``owner`` was the user's name then."""


async def nothing(_place: Place, _space: str) -> None:
    """Change nothing."""


async def replaced(place: Place, space: str) -> None:
    await place.replace_user(space)


async def removed_and_made(place: Place, space: str) -> None:
    owner = place.owner(space)
    await place.remove_user(space)
    await until_async(lambda: not place.owned(space, owner))
    await place.make_user(space)


async def opened(place: Place, space: str) -> None:
    await place.change_space(space, authentication="none")


async def closed(place: Place, space: str) -> None:
    await place.change_space(space, authentication="standard")
    for name in (IDA, FEEDER):
        await place.make_user(space, name)


async def space_made_again(place: Place, space: str) -> None:
    await place.remove_space(space)
    await place.make_space(space)
    for name in (IDA, FEEDER):
        await place.replace_user(space, name)


async def older(place: Place, space: str) -> None:
    """Have the journal as an older version has written it, which kept names alone."""
    storage = place.server.core.storage
    operations = []
    for table, start in ((Table.SESSION, 5), (Table.SUBSCRIPTION, 0)):
        for key, value in storage.scan(table, b"", b"\xff" * 16, 1 << 24):
            if table is Table.SESSION and key[4:5] not in b"sgw":
                continue
            head = value[:4] if key[4:5] == b"w" and start else b""
            end = 4 + int.from_bytes(head, "big") if head else len(value)
            record = json.loads(value[len(head) : end])
            if record.get("space", space) != space or "session" in record:
                continue
            if table is Table.SUBSCRIPTION and not record.get("ownerId", "").startswith(f"user:{space} "):
                continue
            dropped = ("ownerId",) if table is Table.SUBSCRIPTION else KEYS
            text = json.dumps({name: given for name, given in record.items() if name not in dropped}).encode()
            head = len(text).to_bytes(4, "big") if head else b""
            operations.append(Operation(table, key, head + text + value[end:]))
    assert len(operations) > 5
    place.server.core.store_in_time(operations)


async def killed(place: Place, space: str) -> None:
    """Replace the user, and let the node die before it has ended anything."""
    place.space(space).owners.is_due = True
    await place.replace_user(space)


Act = Callable[[Place, str], Awaitable[None]]


class Way(NamedTuple):
    """What happens between the leaving and the coming.

    Attributes:
        act: does it.
        is_found: true if who comes is still the owner.
        authentication: of the space before.
        then: what happens after a restart, if there is one: from a copy of the node's directory.
    """

    act: Act
    is_found: bool = False
    authentication: str = "standard"
    then: Act | None = None


WAYS = {
    "nothing happens": Way(nothing, is_found=True),
    "the user is replaced at once": Way(replaced),
    "the user is removed and later made again": Way(removed_and_made),
    "a space for users is opened to everybody": Way(opened),
    "an open space gets users": Way(closed, authentication="none"),
    "the space is made again": Way(space_made_again),
    "the node is restored": Way(nothing, is_found=True, then=nothing),
    "the user is replaced after a restart": Way(nothing, then=replaced),
    "the node dies as the user is replaced": Way(killed, then=nothing),
    "an older version wrote the journal": Way(older, is_found=True, then=nothing),
    "an older version wrote it, and the user is replaced": Way(older, then=replaced),
}
SPACES = {way: f"ns/s{number}" for number, way in enumerate(WAYS)}
CASES = [
    (way, what) for way, how in WAYS.items() for what, left in LEFT.items() if left.is_lasting or how.then is None
]


async def play(directory: Path) -> dict[tuple[str, str], bool]:
    """Leave everything, have everything happen, and return what was found by who came then."""
    place = Place(directory / "node")
    await place.start()
    owners: dict[str, str] = {}
    found: dict[tuple[str, str], bool] = {}

    async def come(way: str) -> None:
        for what, left in LEFT.items():
            if (way, what) in CASES:
                found[way, what] = await left.find(Caller(place, SPACES[way]))

    for way, how in WAYS.items():
        space = SPACES[way]
        await place.make_space(space, how.authentication)
        if how.authentication == "standard":
            for name in (IDA, FEEDER):
                await place.make_user(space, name)
        owners[way] = place.owner(space)
        for what, left in LEFT.items():
            if (way, what) in CASES:
                await left.leave(Caller(place, space))
        await Caller(place, space, FEEDER).send("news", OLD)
    for way, how in WAYS.items():
        await how.act(place, SPACES[way])
        if how.then is None:
            if not how.is_found:
                await until_async(lambda way=way: not place.owned(SPACES[way], owners[way]))  # type: ignore[misc]
            await come(way)
    await place.stop()
    kept = place.kept
    shutil.copytree(directory / "node", directory / "copy")
    place = Place(directory / "copy")
    place.kept = kept
    await place.start()
    for way, how in WAYS.items():
        if how.then is not None:
            await how.then(place, SPACES[way])
            if not how.is_found:
                await until_async(lambda way=way: not place.owned(SPACES[way], owners[way]))  # type: ignore[misc]
            await come(way)
    await place.stop()
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], bool]:
    return run(play(tmp_path_factory.mktemp("owners")))


@pytest.mark.parametrize(("way", "what"), CASES)
def test_what_is_left_behind_is_its_owners_and_goes_with_it(
    way: str, what: str, found: dict[tuple[str, str], bool]
) -> None:
    assert found[way, what] is WAYS[way].is_found
