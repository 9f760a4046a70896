"""What users are told who may not do what they ask for."""

from __future__ import annotations

import pytest

from enmasse.client import LinkRefusedError, Message
from tests.outcomes.outcome_cells import cell, row
from tests.outcomes.outcome_site import BANK, Site

pytestmark = pytest.mark.slow

DENIED = "amqp:unauthorized-access"
BOTH = f"attach refused with `{DENIED}`"


@row(
    "unauthorised",
    {
        "anycast": BOTH,
        "multicast": BOTH,
        "queue": BOTH,
        "topic": f"{BOTH}; names below the topic need a grant that covers them",
        "subscription": BOTH,
        "stream": BOTH,
        "deadletter": BOTH,
    },
)
async def test_a_user_without_a_grant_is_refused(site: Site, address_type: str) -> None:
    address = await site.declare(address_type, space=BANK)
    owner, guest = await site.connect(user="owner"), await site.connect(user="guest")
    for name in (address, f"{address}/below") if address_type == "topic" else (address,):
        with pytest.raises(LinkRefusedError, match=DENIED):
            await guest.sender(name)
        with pytest.raises(LinkRefusedError, match=DENIED):
            await guest.receiver(name)
        await owner.receiver(name)
        if address_type != "subscription":
            await owner.sender(name)


@cell(
    "dynamic",
    "unauthorised",
    f"whoever knows the name may send; receivers of another user are refused with `{DENIED}`, and so is a user "
    "without any grant who asks for one",
)
async def test_a_dynamic_address_belongs_to_its_user(site: Site) -> None:
    owner, guest = await site.connect(user="owner"), await site.connect(user="guest")
    replies = await guest.receiver(dynamic=True)
    assert replies.address is not None
    sender = await owner.sender(None)
    sent = sender.send_nowait(Message("reply", to=replies.address))
    delivery = await replies.receive(10)
    assert delivery is not None
    delivery.accept()
    assert (await sent).name == "accepted"
    theirs = await owner.receiver(dynamic=True)
    with pytest.raises(LinkRefusedError, match=DENIED):
        await guest.receiver(theirs.address)
    nobody = await site.connect(user="nobody")
    with pytest.raises(LinkRefusedError, match=DENIED):
        await nobody.receiver(dynamic=True)


@cell(
    "anonymous terminus", "unauthorised", f"`rejected` with `{DENIED}`, message by message; dropped if it was settled"
)
async def test_the_anonymous_terminus_looks_at_each_message(site: Site) -> None:
    address = await site.declare("queue", space=BANK)
    guest, owner = await site.connect(user="guest"), await site.connect(user="owner")
    sender = await guest.sender(None)
    outcome = await sender.send(Message("m", to=address), timeout=10)
    assert (outcome.name, outcome.condition) == ("rejected", DENIED)
    await sender.send(Message("m", to=address), settled=True)
    assert (await (await owner.sender(None)).send(Message("mine", to=address), timeout=10)).name == "accepted"
    delivery = await (await owner.receiver(address)).receive(10)
    assert delivery is not None
    assert delivery.message.body == "mine"
