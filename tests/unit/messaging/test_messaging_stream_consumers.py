"""Named consumers: they go on where they were, and how far behind they are is shown."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.message.sections import encode_message
from enmasse.message.types import ULong
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import AttachError
from enmasse.messaging.storage import Table
from enmasse.messaging.streams import consumers as stream_consumers
from enmasse.testing.ports import MemoryProducerPort
from tests.support.stream_scene import StreamScene, offsets


def filled(rows: int = 10, partitions: int = 1, **options: Any) -> StreamScene:
    scene = StreamScene(partitions, **options)
    for partition in range(partitions):
        for number in range(rows):
            scene.append(b"%d" % number, partition=partition)
    return scene


def lags(scene: StreamScene) -> dict[tuple[str, int], tuple[int, int]]:
    """(name, partition) to (offset, lag)."""
    return {
        (found["name"], found["partition"]): (found["offset"], found["lag"])
        for found in scene.stream.counts()["consumers"]
    }


def commit(port: MemoryProducerPort, consumer: Any, offsets: Any, **more: Any) -> int:
    value = {"consumer": consumer, "offsets": offsets}
    return port.send(encode_message(value), **more)


# By outcomes


def test_a_named_consumer_without_an_offset_starts_with_what_comes_next() -> None:
    scene = filled(3)
    reader = scene.reader(consumer="c")
    scene.append(b"3")
    assert offsets(reader) == [3]


def test_a_named_consumer_goes_on_behind_what_it_accepted() -> None:
    scene = filled()
    reader = scene.reader(4, consumer="c", start="first")
    reader.accept(3)
    scene.settle()
    reader.leave()
    for found in (scene, scene.restart()):
        assert offsets(found.reader(consumer="c")) == list(range(3, 10))


def test_the_offset_advances_over_accepted_messages_without_a_gap() -> None:
    scene = filled()
    reader = scene.reader(5, consumer="c", start="first")
    reader.settle(ACCEPTED, 2, at=1)
    scene.settle()
    assert lags(scene) == {}
    reader.settle(ACCEPTED)
    scene.settle()
    assert lags(scene) == {("c", 0): (3, 7)}


def test_a_rejected_message_is_done_with_and_a_released_one_is_not() -> None:
    scene = filled()
    reader = scene.reader(6, consumer="c", start="first")
    reader.settle(Rejected())
    scene.settle()
    assert lags(scene) == {("c", 0): (1, 9)}
    reader.settle(RELEASED)
    reader.settle(Modified(delivery_failed=True))
    reader.accept(3)
    scene.settle()
    assert lags(scene) == {("c", 0): (1, 9)}
    reader.leave()
    assert offsets(scene.reader(consumer="c")) == list(range(1, 10))


def test_a_start_that_is_named_wins_and_offsets_do_not_go_back_by_it() -> None:
    scene = filled()
    reader = scene.reader(consumer="c", start="first")
    reader.accept(8)
    scene.settle()
    reader.leave()
    again = scene.reader(consumer="c", start=2)
    assert offsets(again) == list(range(2, 10))
    again.accept(3)
    scene.settle()
    assert lags(scene) == {("c", 0): (8, 2)}


def test_each_partition_has_an_offset_of_its_own() -> None:
    scene = filled(5, partitions=3)
    reader = scene.reader(consumer="c", start="first", partition=1)
    reader.accept(4)
    other = scene.reader(consumer="c", start="first", partition=2)
    other.accept(1)
    scene.settle()
    assert lags(scene) == {("c", 1): (4, 1), ("c", 2): (1, 4)}


def test_a_consumer_of_all_partitions_is_where_it_was_in_each() -> None:
    scene = filled(5, partitions=3)
    reader = scene.reader(12, consumer="c", start="first")
    reader.accept(12)
    scene.settle()
    reader.leave()
    again = scene.restart()
    assert len(offsets(again.reader(consumer="c"))) == 3


def test_consumers_do_not_disturb_each_other() -> None:
    scene = filled()
    scene.reader(consumer="a", start="first").accept(2)
    scene.reader(consumer="b", start="first").accept(7)
    scene.settle()
    assert lags(scene) == {("a", 0): (2, 8), ("b", 0): (7, 3)}


def test_a_name_may_stand_in_the_links_properties() -> None:
    scene = filled()
    port = scene.harness.receiver(
        scene.stream, 3, properties={"enmasse:consumer": "c"}, filters={"enmasse:start": "first"}
    )
    scene.settle()
    port.accept(3)
    scene.settle()
    assert lags(scene) == {("c", 0): (3, 7)}


def test_a_consumer_of_settled_messages_commits_by_itself() -> None:
    scene = filled()
    port = scene.harness.receiver(
        scene.stream, 5, presettle=True, filters={"enmasse:consumer": "c", "enmasse:start": "first"}
    )
    scene.settle()
    assert all(arrival.settled for arrival in port.arrivals)
    assert lags(scene) == {}


def test_many_outcomes_of_a_turn_are_one_record() -> None:
    scene = filled(200)
    reader = scene.reader(consumer="c", start="first")
    before = scene.harness.core.batches_committed
    reader.accept(200)
    scene.settle()
    assert scene.harness.core.batches_committed == before + 1
    assert len(scene.records(Table.OFFSET)) == 1


def test_an_offset_whose_write_failed_is_written_again() -> None:
    scene = filled()
    reader = scene.reader(consumer="c", start="first")
    reader.accept(4)
    scene.harness.fail()
    assert lags(scene) == {}
    reader.accept(1)
    scene.harness.advance(PAUSE_S)
    scene.settle()
    assert lags(scene) == {("c", 0): (5, 5)}


def test_the_lag_counts_what_is_still_there() -> None:
    scene = filled()
    reader = scene.reader(consumer="c", start="first")
    reader.accept(2)
    reader.leave()
    scene.settle()
    scene.stream.configure(retention_bytes=4 * 26)
    scene.settle()
    low = scene.stream.partitions[0].low
    assert low > 2
    assert lags(scene) == {("c", 0): (2, 10 - low)}
    assert offsets(scene.reader(consumer="c")) == list(range(low, 10))


@pytest.mark.parametrize("name", ["", "x" * 256, 7, b"c", True])
def test_a_name_has_1_to_255_bytes(name: Any) -> None:
    with pytest.raises(AttachError, match="1 to 255 bytes"):
        filled(1).reader(consumer=name)


def test_a_stream_keeps_a_bounded_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_consumers, "MAX_CONSUMERS", 3)
    scene = filled()
    for number in range(3):
        scene.reader(consumer=f"c{number}", start="first").accept(1)
    with pytest.raises(AttachError, match="no more consumers") as refusal:
        scene.reader(consumer="c3")
    assert refusal.value.condition == "amqp:resource-limit-exceeded"
    assert offsets(scene.reader(consumer="c1")) == list(range(1, 10))
    commits = scene.commits()
    commit(commits, "c4", {0: 1})
    commit(commits, "c0", {0: None})
    scene.settle()
    commit(commits, "c4", {0: 1})
    scene.settle()
    assert isinstance(commits.states[0], Rejected)
    assert commits.states[2] is ACCEPTED
    assert sorted(name for name, _ in lags(scene)) == ["c1", "c2", "c4"]


# By messages


def test_a_client_commits_offsets_and_hears_when_they_are_stored() -> None:
    scene = filled(5, partitions=2)
    commits = scene.commits()
    commit(commits, "bulk", {0: 4, 1: 2})
    scene.harness.turn()
    assert commits.outcomes == []
    scene.settle()
    assert commits.outcomes == [(0, ACCEPTED)]
    for found in (scene, scene.restart()):
        assert lags(found) == {("bulk", 0): (4, 1), ("bulk", 1): (2, 3)}
    assert sorted(offsets(scene.reader(consumer="bulk"))) == [2, 3, 4, 4]


def test_a_client_may_go_back_and_may_forget_a_name() -> None:
    scene = filled()
    commits = scene.commits()
    for value in (7, 2, ULong(3)):
        commit(commits, "c", {0: value})
        scene.settle()
    assert lags(scene) == {("c", 0): (3, 7)}
    commit(commits, "c", {0: None})
    scene.settle()
    assert lags(scene) == {}
    assert scene.records(Table.OFFSET) == []
    assert [state for _, state in commits.outcomes] == [ACCEPTED] * 4


def test_settled_and_empty_commits_are_kept_or_accepted_without_more() -> None:
    scene = filled()
    commits = scene.commits()
    commit(commits, "c", {0: 5}, settled=True)
    commit(commits, "c", {})
    scene.settle()
    assert commits.outcomes == [(1, ACCEPTED)]
    assert lags(scene) == {("c", 0): (5, 5)}


def test_a_commit_that_could_not_be_stored_is_released() -> None:
    scene = filled(5, partitions=2)
    commits = scene.commits()
    commit(commits, "c", {0: 4, 1: 2})
    scene.harness.fail()
    assert commits.outcomes == [(0, RELEASED)]


@pytest.mark.parametrize(
    "body",
    [
        b"bytes",
        {"consumer": "c"},
        {"offsets": {0: 1}},
        {"consumer": "", "offsets": {0: 1}},
        {"consumer": "c", "offsets": {1: 1}},
        {"consumer": "c", "offsets": {"0": 1}},
        {"consumer": "c", "offsets": {0: 11}},
        {"consumer": "c", "offsets": {0: -1}},
        {"consumer": "c", "offsets": {0: "3"}},
        {"consumer": "c", "offsets": {0: True}},
        {"consumer": "c", "offsets": [1]},
    ],
)
def test_offsets_that_make_no_sense_are_rejected(body: Any) -> None:
    scene = filled()
    commits = scene.commits()
    commits.send(encode_message(body))
    commits.send(encode_message(body), settled=True)
    scene.settle()
    ((_, state),) = commits.outcomes
    assert isinstance(state, Rejected)
    assert lags(scene) == {}


def test_what_cannot_be_read_and_other_formats_are_rejected() -> None:
    scene = filled()
    commits = scene.commits()
    commits.send(b"\x00\x53\x77garbage")
    commits.send(encode_message({"consumer": "c", "offsets": {0: 1}}), message_format=5)
    scene.settle()
    assert all(isinstance(state, Rejected) for _, state in commits.outcomes)
    assert len(commits.outcomes) == 2


def test_offsets_are_taken_while_the_stream_is_full() -> None:
    scene = filled(max_bytes=10)
    assert scene.sender().credit == 0
    commits = scene.commits()
    assert commits.credit > 0
    commits.grant(0)
    commit(commits, "c", {0: 5})
    scene.settle()
    assert lags(scene) == {("c", 0): (5, 5)}


def test_a_deleted_stream_gives_back_what_was_not_stored() -> None:
    scene = filled()
    commits = scene.commits()
    commit(commits, "c", {0: 5})
    scene.stream.close("amqp:resource-deleted", "gone")
    assert commits.outcomes == [(0, RELEASED)]
    scene.settle()
    assert scene.records(Table.OFFSET) == []
