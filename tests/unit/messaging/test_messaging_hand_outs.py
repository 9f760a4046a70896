"""What receivers have when the node dies comes again as a failed attempt."""

from __future__ import annotations

from random import Random

from enmasse.message.outcomes import Modified
from enmasse.message.sections import header_of
from enmasse.messaging.core import ENDED_IN_ORDER, PAUSE_S
from enmasse.messaging.log.entry import FrameRef, attempts_of, encode_attempts
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.storage import Table
from enmasse.node.management.entities import Entities
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from tests.unit.messaging.queue_scene import LOG, Scene, bodies


def attempts(port: MemoryConsumerPort) -> list[tuple[int, bool]]:
    """Of each message: its failed deliveries, and whether nobody had it before."""
    headers = [header_of(payload) for payload in port.payloads]
    return [(header.delivery_count, header.first_acquirer) for header in headers if header is not None]


def records(scene: Scene) -> list[dict[int, int]]:
    """What is on disk of attempts, frame by frame."""
    found = scene.harness.storage.scan(Table.ATTEMPTS, *log_range(LOG), 1 << 30)
    return [attempts_of(value) for _, value in found]


def careful(scene: Scene) -> Scene:
    """The queue after a crash."""
    again = scene.restart()
    again.harness.core.is_careful = True
    return again


def test_what_a_receiver_had_comes_again_marked_and_what_nobody_had_does_not() -> None:
    scene = Scene()
    scene.receiver(2)
    scene.send("one", "two", "three")
    scene.harness.commit()
    port = scene.restart().receiver(10)
    assert bodies(port) == ["one", "two", "three"]
    assert attempts(port) == [(1, False), (1, False), (0, False)]


def test_the_mark_is_in_the_batch_of_its_message() -> None:
    scene = Scene()
    scene.receiver(2)
    batches = scene.harness.core.batches_committed
    scene.send("one", "two")
    scene.harness.commit()
    assert scene.harness.core.batches_committed == batches + 1
    assert records(scene) == [{0: 1, 1: 1}]


def test_what_is_settled_before_its_batch_is_cut_leaves_no_mark() -> None:
    scene = Scene()
    scene.send("one", "two")
    scene.harness.commit()
    scene.receiver(2, presettle=True)
    scene.harness.commit()
    assert (scene.stored(), records(scene)) == ([], [])


def test_what_was_given_back_was_not_attempted() -> None:
    scene = Scene()
    scene.send("one", "two", "three")
    scene.harness.commit()
    port = scene.receiver(3)
    scene.harness.commit()
    port.credit = 0
    port.release(3)
    scene.harness.commit()
    assert records(scene) == []
    assert attempts(scene.restart().receiver(10)) == [(0, False)] * 3


def test_each_life_of_the_node_counts() -> None:
    scene = Scene()
    scene.send("one")
    scene.harness.commit()
    for life in range(4):
        port = scene.receiver(1)
        scene.harness.commit()
        assert [count for count, _ in attempts(port)] == [life]
        scene = scene.restart()


def test_a_failed_delivery_and_one_that_died_with_the_node_are_two() -> None:
    scene = Scene()
    port = scene.receiver(2)
    scene.send("one")
    scene.harness.turn()
    port.settle(Modified(delivery_failed=True))
    scene.harness.commit()
    assert attempts(port) == [(0, False), (1, False)]
    assert records(scene) == [{0: 2}]


def test_marks_whose_batch_failed_are_written_with_the_next_one() -> None:
    scene = Scene()
    scene.send("one")
    scene.harness.commit()
    scene.receiver(1)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert records(scene) == [{0: 1}]


def test_after_a_crash_the_first_hand_out_waits_for_its_mark() -> None:
    scene = Scene()
    scene.send("poison", "other")
    scene.harness.commit()
    scene = careful(scene)
    port = scene.receiver(1)
    for _ in range(3):
        # Reads are answered at once, batches by a commit alone.
        scene.harness.turn()
    assert port.payloads == []
    scene.harness.commit()
    assert bodies(port) == ["poison"]
    assert records(scene) == [{0: 1}]


def test_a_receiver_that_leaves_before_the_mark_is_on_disk_attempted_nothing() -> None:
    scene = Scene()
    scene.send("one")
    scene.harness.commit()
    scene = careful(scene)
    port = scene.receiver(1)
    scene.harness.turn()
    port.leave()
    scene.harness.commit()
    assert (port.payloads, records(scene)) == ([], [])
    other = scene.receiver(1)
    scene.harness.commit()
    assert attempts(other) == [(0, False)]


def test_once_what_was_found_is_handed_out_nothing_waits_any_more() -> None:
    scene = Scene()
    scene.send("one")
    scene.harness.commit()
    scene = careful(scene)
    port = scene.receiver(10)
    scene.harness.commit()
    scene.send("two")
    scene.harness.commit()
    scene.send("three")
    scene.harness.turn()
    assert bodies(port) == ["one", "two", "three"]


def test_a_message_that_had_its_last_attempt_is_not_handed_out_again() -> None:
    scene = Scene(max_attempts=1)
    scene.receiver(1)
    scene.send("poison", "other")
    scene.harness.commit()
    again = Scene(scene.harness.restarted(), max_attempts=1)
    port = again.receiver(10)
    again.harness.commit()
    assert bodies(port) == ["other"]
    assert (again.queue.dead_lettered, again.queue.depth) == (1, 1)


def test_a_node_is_careful_unless_the_one_before_it_ended_in_order() -> None:
    def started(harness: CoreHarness) -> Entities:
        entities = Entities(harness.core, lambda: "id")
        entities.load()
        assert harness.core.is_careful
        harness.commit()
        assert harness.storage.get(Table.ENTITY, ENDED_IN_ORDER) is None
        return entities

    harness = CoreHarness()
    entities = started(harness)
    assert harness.core.is_careful
    entities.end()
    harness.commit()
    harness = harness.restarted()
    started(harness)
    assert not harness.core.is_careful
    harness = harness.restarted()
    started(harness)
    assert harness.core.is_careful


def test_ranges_of_rows_are_kept_whatever_the_order_of_hand_outs() -> None:
    random = Random(1)
    scene = Scene()
    log = scene.queue.log
    assert isinstance(log, MessageLog)
    for _ in range(50):
        ref = FrameRef(log, (LOG, 0), 0, 40)
        out: set[int] = set()
        for _ in range(100):
            row = random.randrange(40)
            if random.random() < 0.6:
                ref.hand_out(row)
                out.add(row)
            else:
                ref.give_back(row)
                out.discard(row)
            assert {row for row in range(40) if ref.is_out(row)} == out
        assert attempts_of(encode_attempts({}, ref.out)) == dict.fromkeys(sorted(out), 1)
