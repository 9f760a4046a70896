"""What is in flight between a session and its client: packet ids, what is sent again, and that QoS 2 is once."""

from __future__ import annotations

from typing import Any

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.messaging.sessions.wills import WillMessage
from tests.unit.messaging.session_scene import Client, Published, Scene, message


def receive(client: Client, packet_id: int, body: str, target: str = "news/a", *, commit: bool = True) -> list[Any]:
    """Send a message with QoS 2, and return what PUBREC would say."""
    outcomes: list[Any] = []
    address = client.scene.space.find_target(target)
    client.session.incoming.receive(packet_id, address, target, message(body), outcomes.append)  # type: ignore[arg-type]
    if commit:
        client.scene.harness.commit()
    return outcomes


def release(client: Client, packet_id: int) -> list[int]:
    done: list[int] = []
    if not client.session.incoming.release(packet_id, lambda: done.append(packet_id)):
        return [-packet_id]
    client.scene.harness.commit()
    return done


# Towards the client


def test_an_acknowledged_message_is_gone() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    scene.send("news/a", "one", "two")
    client.acknowledge(client.got[0])
    scene.harness.commit()
    scene = scene.restart()
    assert scene.client().bodies == ["two"]


def test_what_is_unacknowledged_is_sent_again_first_under_its_packet_id() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    scene.send("news/a", "one", "two", "three")
    first, second, third = client.got
    client.acknowledge(second)
    client.leave()
    scene.send("news/a", "four")
    client = scene.client()
    assert client.pubrels == [second.packet_id]
    assert client.got[:2] == [first._replace(is_duplicate=True), third._replace(is_duplicate=True)]
    assert client.bodies == ["one", "three", "four"]
    assert client.got[2].packet_id not in (first.packet_id, second.packet_id, third.packet_id)


def test_the_same_after_the_node_has_died() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    scene.send("news/a", "one", "two", "three")
    first, second, third = client.got
    client.acknowledge(second)
    scene.harness.commit()
    scene = scene.restart()
    scene.send("news/a", "four")
    client = scene.client()
    assert client.pubrels == [second.packet_id]
    assert client.got[:2] == [first._replace(is_duplicate=True), third._replace(is_duplicate=True)]
    assert client.bodies == ["one", "three", "four"]
    assert not scene.harness.faults


def test_qos_1_is_sent_again_under_its_packet_id_once_that_has_been_written() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 1)
    scene.send("news/a", "one")
    scene.harness.advance(2)
    scene.harness.commit()
    scene = scene.restart()
    again = scene.client()
    assert again.got == [client.got[0]._replace(is_duplicate=True)]


def test_a_qos_2_message_goes_out_once_its_packet_id_is_on_disk() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    port = scene.harness.sender(scene.space.find("news"), "news/a")
    scene.harness.turn()
    port.send(message("one"))
    scene.harness.turn()
    assert client.got == []
    scene.harness.storage.commit()
    scene.harness.turn()
    assert client.bodies == ["one"]


def test_a_qos_2_message_of_a_session_in_memory_goes_out_at_once() -> None:
    scene = Scene()
    client = scene.client(expiry_s=0)
    client.subscribe("news/#", 2)
    port = scene.harness.sender(scene.space.find("news"), "news/a")
    scene.harness.turn()
    port.send(message("one"))
    scene.harness.turn()
    assert client.bodies == ["one"]
    client.acknowledge(client.got[0])
    assert client.pubrels == [client.got[0].packet_id]


def test_pubrel_goes_out_once_it_is_on_disk_that_the_client_has_the_message() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    scene.send("news/a", "one")
    client.acknowledge(client.got[0])
    scene.harness.turn()
    assert client.pubrels == []
    scene.harness.fail()
    assert client.pubrels == []
    scene.harness.advance(1)
    scene.harness.commit()
    assert client.pubrels == [client.got[0].packet_id]


def test_a_message_that_could_not_be_stored_goes_back_to_its_sender_and_not_out() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    port = scene.harness.sender(scene.space.find("news"), "news/a")
    scene.harness.turn()
    port.send(message("one"))
    scene.harness.turn()
    scene.harness.fail()
    scene.harness.advance(1)
    scene.harness.commit()
    assert client.got == []
    assert port.outcomes == [(0, RELEASED)]
    scene.send("news/a", "two")
    assert client.bodies == ["two"]


def test_a_message_that_the_client_refuses_is_not_sent_again() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 2)
    scene.send("news/a", "one", "two")
    refusal = Rejected(AmqpError("amqp:rejected", "no"))
    assert client.session.outgoing.receive(client.got[0].packet_id, lambda: client.pubrels.append(0), refusal)
    scene.harness.commit()
    client.leave()
    scene = scene.restart()
    client = scene.client()
    assert client.bodies == ["two"]
    assert client.pubrels == []


def test_no_more_is_in_flight_than_the_client_allows() -> None:
    scene = Scene()
    client = scene.client(receive_maximum=100)
    client.subscribe("news/#", 1)
    scene.send("news/a", *range(5))
    assert len(client.got) == 5
    client.leave()
    client = scene.client(receive_maximum=2)
    assert client.bodies == ["0", "1"]
    assert client.session.outgoing.room == 0
    client.acknowledge(client.got[0])
    assert client.bodies == ["0", "1", "2"]
    for got in list(client.got[1:]):
        client.acknowledge(got)
    assert client.bodies == ["0", "1", "2", "3", "4"]


def test_packet_ids_are_used_again_when_they_are_free() -> None:
    scene = Scene()
    client = scene.client(expiry_s=0)
    client.subscribe("news/#", 1)
    outgoing = client.session.outgoing
    scene.send("news/a", "one")
    (link,) = client.links
    for _ in range(0xFFFF - 1):
        packet_id = outgoing.assign(link, None, b"", 1)
        outgoing.acknowledge(packet_id)
    # The first is in use still, and passed over.
    assert client.got[0].packet_id == 1
    assert outgoing.assign(link, None, b"", 1) == 2


def test_a_connection_that_goes_is_no_failed_attempt() -> None:
    scene = Scene(options={"news": {"max_attempts": 1}})
    scene.client().subscribe("news/#", 1)
    scene.send("news/a", "one")
    for _ in range(5):
        client = scene.client()
        assert client.bodies == ["one"]
        client.leave()
        scene = scene.restart()
    client = scene.client()
    client.acknowledge(client.got[0])
    scene.harness.commit()
    assert scene.client().bodies == []


# Of queues, which others receive from, too


def test_what_is_in_flight_of_a_queue_is_given_to_others_unless_it_is_qos_2() -> None:
    scene = Scene({"orders": "queue"}, options={"orders": {"max_attempts": 1}})
    client = scene.client("first")
    client.subscribe("orders", 1)
    scene.send("orders", "one")
    client.leave()
    other = scene.client("second")
    other.subscribe("orders", 2)
    assert other.bodies == ["one"]
    other.leave()
    third = scene.client("third")
    third.subscribe("orders", 1)
    assert third.bodies == []
    assert scene.client("second").got == [other.got[0]._replace(is_duplicate=True)]


def test_a_qos_2_message_of_a_queue_stays_with_its_session_when_the_node_dies() -> None:
    scene = Scene({"orders": "queue"})
    client = scene.client("first")
    client.subscribe("orders", 2)
    scene.send("orders", "one")
    scene.send("orders", "two")
    scene = scene.restart()
    other = scene.client("second")
    other.subscribe("orders", 1)
    assert other.bodies == []
    again = scene.client("first")
    assert again.got == [got._replace(is_duplicate=True) for got in client.got]
    for got in again.got:
        again.acknowledge(got)
    scene.harness.commit()
    again.complete()
    assert scene.space.find("orders").depth == 0


def test_what_a_session_holds_of_a_queue_is_given_back_at_its_end() -> None:
    scene = Scene({"orders": "queue"})
    scene.client("first").subscribe("orders", 2)
    scene.send("orders", "one")
    scene = scene.restart()
    scene.space.sessions.delete(scene.space.sessions.get("first"))  # type: ignore[arg-type]
    scene.harness.commit()
    other = scene.client("second")
    other.subscribe("orders", 1)
    assert other.bodies == ["one"]


# From the client


def test_a_message_is_stored_once_whatever_the_client_sends_again() -> None:
    scene = Scene()
    scene.client("reader").subscribe("news/#", 2)
    client = scene.client()
    assert receive(client, 7, "one") == [ACCEPTED]
    assert 7 in client.session.incoming
    assert receive(client, 7, "one") == [ACCEPTED]
    scene = scene.restart()
    client = scene.client()
    assert receive(client, 7, "one") == [ACCEPTED]
    assert release(client, 7) == [7]
    assert release(client, 7) == [-7]
    assert receive(client, 7, "two") == [ACCEPTED]
    scene = scene.restart()
    assert scene.client("reader").bodies == ["one", "two"]


def test_the_client_is_told_once_message_and_packet_id_are_on_disk() -> None:
    scene = Scene()
    scene.client("reader").subscribe("news/#", 1)
    client = scene.client()
    outcomes = receive(client, 7, "one", commit=False)
    scene.harness.turn()
    assert outcomes == []
    (batch,) = scene.harness.storage.pending
    scene.harness.fail()
    assert outcomes == [RELEASED]
    assert 7 not in client.session.incoming
    scene.harness.advance(1)
    assert receive(client, 7, "one") == [ACCEPTED]
    assert scene.client("reader").bodies == ["one"]
    assert batch


def test_a_message_that_is_on_its_way_answers_the_connection_that_sent_it_again() -> None:
    scene = Scene()
    scene.client("reader").subscribe("news/#", 1)
    client = scene.client()
    before = receive(client, 7, "one", commit=False)
    client.session.detach(client, is_clean_close=False)
    client = Client(scene, "device").open(waits=False)
    after = receive(client, 7, "one", commit=False)
    scene.harness.commit()
    assert before == []
    assert after == [ACCEPTED]
    assert scene.client("reader").bodies == ["one"]


def test_a_full_address_answers_as_its_policy_says() -> None:
    scene = Scene({"orders": "queue", "bills": "queue"}, options={
        "orders": {"max_bytes": 10}, "bills": {"max_bytes": 10, "full_policy": "reject"},
    })  # fmt: skip
    client = scene.client()
    assert receive(client, 1, "x" * 100, "orders") == [RELEASED]
    (refusal,) = receive(client, 2, "x" * 100, "bills")
    assert refusal.error.condition == "amqp:resource-limit-exceeded"
    assert len(client.session.incoming) == 0


def test_a_session_in_memory_receives_once_as_long_as_it_lives() -> None:
    scene = Scene()
    scene.client("reader").subscribe("news/#", 1)
    client = scene.client(expiry_s=0)
    assert receive(client, 7, "one") == receive(client, 7, "one") == [ACCEPTED]
    assert release(client, 7) == [7]
    assert scene.client("reader").bodies == ["one"]


def test_what_another_kind_of_address_has_accepted_is_noted() -> None:
    scene = Scene()
    client = scene.client()
    done: list[int] = []
    client.session.incoming.note(9, lambda: done.append(9))
    scene.harness.commit()
    assert done == [9]
    scene = scene.restart()
    assert 9 in scene.client().session.incoming


def test_no_local_holds_for_qos_2_too() -> None:
    scene = Scene()
    client = scene.client(will=WillMessage("news/gone", message("gone")))
    client.subscribe("news/#", 1, no_local=True)
    other = scene.client("other")
    other.subscribe("news/#", 1)
    assert receive(client, 7, "one") == [ACCEPTED]
    assert client.bodies == []
    assert other.bodies == ["one"]
    assert all(isinstance(got, Published) for got in other.got)
