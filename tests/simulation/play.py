"""How a scenario is played: clients act by chance, the journal gets on, things break, and all is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING
from unittest.mock import patch

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.messaging import core, fan_out
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.queues import topic, topic_producer, topic_wave
from enmasse.messaging.streams import merging as stream_merging
from enmasse.node.connections.handover import Home
from tests.simulation.clients import payload_of
from tests.simulation.copies import Message
from tests.simulation.node import ALONE, Surroundings
from tests.simulation.scenario import make_scenario
from tests.simulation.transacting import Exchange
from tests.simulation.world import MAX_LINKS, BrokenPromiseError, World

if TYPE_CHECKING:
    from tests.simulation.scenario import AddressPlan, Scenario

__all__ = ["Play", "play"]

SMALL_TURNS: list[tuple[ModuleType, str, int]] = [
    (topic, "FEW", 0),
    (topic_producer, "FEW", 0),
    (fan_out, "MAX_UNITS", 100),
    (topic_wave, "STEP_UNITS", 50),
    (topic_wave, "BATCH_UNITS", 10),
    (topic_wave, "MAX_STORED_MESSAGES", 3),
    (core, "MAX_UNITS", 15),
]
"""Every message of a topic waits for its turns, and what is done in one turn is nearly nothing."""

OTHER = 0xF407
"""Makes the seed of a neighbour."""

OUTCOMES = [
    ACCEPTED,
    ACCEPTED,
    ACCEPTED,
    ACCEPTED,
    RELEASED,
    FAILED,
    None,
    Rejected(),
    Modified(undeliverable_here=True),
]


class Play:
    """One scenario being played.

    Args:
        scenario: which.
        surroundings: of its node.
    """

    def __init__(self, scenario: Scenario, surroundings: Surroundings = ALONE) -> None:
        self.scenario = scenario
        self.world = World(scenario, surroundings)
        self.steps_left = scenario.steps
        self.random = self.world.random
        self._actions = {
            "send": self.send,
            "receive": self.receive,
            "finish": self.finish_some,
            "block": self.block,
            "drain": self.drain,
            "lose_receiver": self.lose_receiver,
            "lose_sender": self.lose_sender,
            "journal": self.world.journal,
            "pass_time": self.pass_time,
            "set_clock": self.set_clock,
            "transact": self.transact,
        }
        self._weights = list(scenario.weights.values())

    def run(self) -> None:
        """Play it to its end.

        Raises:
            BrokenPromiseError: something that must hold does not.
        """
        while self.steps_left:
            self.step()
        self.end()

    def step(self) -> None:
        """Let clients do something, and perhaps something go wrong."""
        world, scenario = self.world, self.scenario
        chance = self.random.random
        self.steps_left -= 1
        if world.answers:
            world.pass_on(self.random.randint(0, len(world.answers)))
        for name in self.random.choices(list(scenario.weights), self._weights, k=self.random.randint(1, 3)):
            self._actions[name]()
        world.after_step()
        world.note("-- end of a step")
        if chance() < 0.25:
            world.check_depths()
        if chance() < scenario.rates.crash:
            world.crash()
        elif chance() < scenario.look:
            world.look()
        elif chance() < scenario.calm:
            world.calm()
            self.redeclare()

    def end(self) -> None:
        """Have everything done, and compare for the last time."""
        self.world.calm()
        self.world.look()
        self.world.finish()

    def redeclare(self) -> None:
        """An address is deleted and declared anew, now and then."""
        plan = self._plan("queue", "subscription")
        if plan is not None and plan.is_alone and self.world.chance(0.4):
            self.world.redeclare(plan)

    # What clients do

    def _plan(self, *kinds: str) -> AddressPlan | None:
        plans = [plan for plan in self.scenario.addresses if plan.kind in kinds]
        return self.random.choice(plans) if plans else None

    def send(self) -> None:
        """A sender sends some messages."""
        plan = self._plan("queue", "topic", "stream")
        if plan is None:
            return
        if plan.kind == "stream":
            self.world.stream_clients[plan.name].act()
            return
        senders = self.world.senders[plan.name]
        if not senders or (len(senders) < MAX_LINKS and self.world.chance(0.1)):
            self.world.attach_sender(plan)
        sender = self.random.choice(senders)
        for _ in range(self.random.randint(1, 4)):
            if not sender.credit:
                return
            message = self._message()
            for account in self.world.fed_by(plan):
                account.offer(message, self.world.now)
            self.world.note("{}: {} is sent", plan.name, message)
            claimed = self.world.name(plan, message, sender.target)
            sender.put(message, payload_of(message, self.random.choice(self.scenario.padding), **claimed))

    def _message(self) -> Message:
        world, scenario = self.world, self.scenario
        choose = self.random.choice
        delay = choose(scenario.delays)
        is_dated = delay and world.chance(scenario.dated)
        return Message(
            world.next_number(),
            world.chance(scenario.durable),
            world.chance(scenario.settled),
            priority=choose(scenario.priorities),
            ttl=choose(scenario.ttls),
            delay=delay,
            date=world.now + world.clock.shift + delay if is_dated else 0.0,
            group=choose(scenario.groups),
            key=choose(scenario.keys),
            colour=choose(scenario.colours),
        )

    def receive(self) -> None:
        """A receiver comes, or takes more or less."""
        plan = self._plan("queue", "subscription", "topic", "deadletter")
        if plan is None:
            return
        receivers = self.world.receivers[plan.name]
        if not receivers or (len(receivers) < MAX_LINKS and self.world.chance(0.2)):
            presettle = self.world.chance(0.15)
            colour = self.random.choice(self.scenario.colours) if plan.kind != "topic" else None
            credit = self.random.randrange(10)
            self.world.attach_receiver(plan, credit=credit, presettle=presettle, colour=colour)
        else:
            self.random.choice(receivers).grant(self.random.randrange(12))

    def finish_some(self) -> None:
        """A receiver settles some of what it has."""
        for receivers in self.world.receivers.values():
            for receiver in receivers:
                while receiver.unsettled and self.world.chance(0.7):
                    at = 0 if self.world.chance(0.7) else self.random.randrange(len(receiver.unsettled))
                    receiver.finish(at, self.random.choice(OUTCOMES))

    def transact(self) -> None:
        """A transaction begins, goes on, or ends."""
        world = self.world
        running = [exchange for exchange in world.exchanges if exchange.is_open]
        if not running or (len(running) < MAX_LINKS and world.chance(0.2)):
            running = [Exchange(world)]
            world.exchanges += running
        exchange = self.random.choice(running)
        for _ in range(self.random.randint(1, 3)):
            plan = self._plan("queue", "topic", "stream")
            if plan is not None and world.chance(0.5):
                exchange.post(plan, self._message(), self.random.choice(self.scenario.padding))
            receivers = [r for rs in world.receivers.values() for r in rs if r.unsettled and not r.presettle]
            if receivers and world.chance(0.5):
                receiver = self.random.choice(receivers)
                at = self.random.randrange(len(receiver.unsettled))
                exchange.retire(receiver, at, self.random.choice([ACCEPTED, ACCEPTED, ACCEPTED, *OUTCOMES[4:7]]))
        if world.chance(0.5):
            if world.chance(0.8):
                exchange.commit()
            else:
                exchange.rollback()

    def _receiver_place(self) -> tuple[str, int] | None:
        places = [(n, i) for n, rs in self.world.receivers.items() for i in range(len(rs))]
        return self.random.choice(places) if places else None

    def block(self) -> None:
        """A receiver's connection takes no more, or again."""
        place = self._receiver_place()
        if place is not None:
            receiver = self.world.receivers[place[0]][place[1]]
            receiver.is_blocked = not receiver.is_blocked
            receiver.block(receiver.is_blocked)

    def drain(self) -> None:
        """A receiver asks for what there is at once."""
        place = self._receiver_place()
        if place is not None:
            self.world.receivers[place[0]][place[1]].drain(self.random.randrange(1, 10))

    def lose_receiver(self) -> None:
        """A receiver's connection drops."""
        place = self._receiver_place()
        if place is not None:
            self.world.receivers[place[0]].pop(place[1]).leave()

    def lose_sender(self) -> None:
        """A sender's connection drops."""
        places = [(n, i) for n, ss in self.world.senders.items() for i in range(len(ss))]
        if places:
            name, index = self.random.choice(places)
            sender = self.world.senders[name].pop(index)
            sender.abandon()
            sender.leave()

    def pass_time(self) -> None:
        """Time passes."""
        self.world.node.advance(self.random.choice([0.0, self.scenario.pause, 0.1]))

    def set_clock(self) -> None:
        """Somebody sets the wall clock."""
        self.world.set_clock(self.random.choice(self.scenario.shifts))


class Neighbours:
    """Two nodes being played, each the home of a space, to which clients come by either; when one dies, so do the
    connections that came by it.

    Args:
        scenario: of the first.
    """

    def __init__(self, scenario: Scenario) -> None:
        # What is cut short is so for both.
        other = replace(
            make_scenario(scenario.seed ^ OTHER),
            seed=scenario.seed ^ OTHER,
            run_frames=scenario.run_frames,
            cuts_turns=scenario.cuts_turns,
        )
        homes = {f"ns/space-{number}": Home(f"node-{number}", number + 1) for number in range(2)}
        self.plays = [
            Play(each, Surroundings(home.node, space, homes))
            for each, (space, home) in zip((scenario, other), homes.items(), strict=True)
        ]
        first, second = (play.world for play in self.plays)
        first.meet(second)
        second.meet(first)
        self._random = Random(scenario.seed ^ OTHER)

    def run(self) -> None:
        """Play both to their ends.

        Raises:
            BrokenPromiseError: something that must hold does not.
        """
        while going := [play for play in self.plays if play.steps_left]:
            self._random.choice(going).step()
        for play in self.plays:
            play.end()


@contextmanager
def _small(scenario: Scenario) -> Iterator[None]:
    """Have streams merge few frames already, and turns bear little, so that a short play sees it."""
    with ExitStack() as stack:
        if scenario.run_frames:
            stack.enter_context(patch.object(stream_merging, "RUN_FRAMES", scenario.run_frames))
        if scenario.cuts_turns:
            for module, name, value in SMALL_TURNS:
                stack.enter_context(patch.object(module, name, value))
        yield


def play(seed: int, *, show: Callable[[str], None] | None = None) -> None:
    """Play the scenario of a seed.

    Args:
        seed: which.
        show: is told everything that happened, if it fails.

    Raises:
        BrokenPromiseError: something that must hold does not; the message says what, and how to play it again.
    """
    again = f"play it again: python -m tests.simulation --seed {seed}"
    plays: list[Play] = []
    try:
        scenario = make_scenario(seed)
        with _small(scenario):
            game = Neighbours(scenario) if scenario.has_neighbour else Play(scenario)
            plays = game.plays if isinstance(game, Neighbours) else [game]
            if show is not None:
                # Of both, in the order of what happened.
                events = [str(play.scenario) for play in plays]
                for play in plays:
                    play.world.events = events
            game.run()
    except BrokenPromiseError as error:
        raise BrokenPromiseError(f"{error}\n{again}") from None
    except Exception as error:
        raise BrokenPromiseError(f"{type(error).__name__}: {error}\n{again}") from error
    finally:
        if show is not None and plays:
            show("\n".join(plays[0].world.events or ()))
