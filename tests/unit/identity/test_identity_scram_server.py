"""SCRAM's server against the examples of the specifications; who does not exist looks like everybody else."""

from __future__ import annotations

import base64
import hmac

import pytest

from enmasse.identity.scram_server import Proof, read_client_first
from enmasse.identity.users import Users, make_keys
from enmasse.message.composites import decode_composite
from enmasse.pending import Pending
from enmasse.wire.amqp.performatives import (
    Composite,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import Admitted, Question
from enmasse.wire.sasl.scram import Scram, attributes_of
from tests.unit.identity.people import FEW, SEED, Door, answered, person

# RFC 5802 5, RFC 7677 3
EXAMPLES = [
    (
        "SCRAM-SHA-1", "QSXCR+Q6sek8bf92", b"fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j",
        b"v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", b"rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "SCRAM-SHA-256", "W22ZaJ0SNY7soEsUEjb6gQ==", b"rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "salt", "theirs", "ours", "proof", "signature"), EXAMPLES)
def test_the_server_says_what_the_specification_shows(
    mechanism: str, salt: str, theirs: bytes, ours: str, proof: bytes, signature: bytes
) -> None:
    keys = make_keys(mechanism, "pencil", base64.b64decode(salt), 4096)
    first = read_client_first(b"n,,n=user,r=" + theirs)
    assert (first.user, first.nonce) == ("user", theirs)
    question = Proof(mechanism, first, keys, ours, lambda is_proved: is_proved)
    nonce = theirs + ours.encode()
    assert question.challenge == b"r=" + nonce + b",s=" + salt.encode() + b",i=4096"
    assert question.answer(b"c=biws,r=" + nonce + b",p=" + proof) == Admitted(b"v=" + signature)


def asked(user: str = "jo") -> tuple[Question, bytes, Door]:
    """A server's question, the right answer to it, and where it was asked."""
    place = Door(person("jo"))
    client = Scram("SCRAM-SHA-256", user, "secret", lambda: "client")
    question = place.begin().begin("SCRAM-SHA-256", client.response())
    assert not isinstance(question, int | Admitted | Pending)
    return question, client.answer(question.challenge), place


def test_the_right_answer_lets_in() -> None:
    question, answer, place = asked()
    assert isinstance(question.answer(answer), Admitted)
    assert place.login.user is not None


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),  # another header than at first
        (b"c=biws", b"c=?"),
        (b"c=biws,", b""),
        (b"r=clientserver", b"r=clientservex"),
        (b"r=clientserver", b"r=client"),
        (b",p=", b",q="),
        (b",p=", b",p=AAAA"),
        (b",p=", b",p=!"),
    ],
)
def test_an_answer_that_was_changed_on_the_way_does_not(change: tuple[bytes, bytes]) -> None:
    question, answer, place = asked()
    assert change[0] in answer
    assert answered(lambda: question.answer(answer.replace(*change))) is False
    assert place.login.user is None


def test_scram_takes_one_challenge_and_the_servers_proof_comes_with_the_outcome() -> None:
    place = Door(person("jo"))
    login = place.begin()
    server = SaslServer(
        ["SCRAM-SHA-256"], lambda name, response, _host: login.begin(name, response), is_optional=False
    )
    client = SaslClient([Scram("SCRAM-SHA-256", "jo", "secret", lambda: "client")])
    said: list[Composite] = []
    frames = server.begin()
    while frames:
        said.append(decode_composite(frames[0], 8, len(frames[0]))[0])
        frames = (client if len(said) % 2 else server).receive(said[-1])
    assert [type(frame) for frame in said] == [SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome]
    assert isinstance(said[-1], SaslOutcome)
    assert (said[-1].additional_data or b"").startswith(b"v=")
    assert client.is_done
    assert client.error is None


@pytest.mark.parametrize("proof", [None, b"", b"v=AAAA"])
def test_a_client_does_not_go_on_where_the_outcome_lacks_the_servers_proof(proof: bytes | None) -> None:
    question, _, _ = asked()
    client = SaslClient([Scram("SCRAM-SHA-256", "jo", "secret", lambda: "client")])
    client.receive(SaslMechanisms(("SCRAM-SHA-256",)))
    client.receive(SaslChallenge(question.challenge))
    client.receive(SaslOutcome(0, proof))
    assert client.error is not None


def test_a_proof_serves_once() -> None:
    first, answer, _ = asked()
    place = Door(person("jo"))
    login = place.begin()
    login._new_nonce = lambda: "another"
    question = login.begin("SCRAM-SHA-256", b"n,,n=jo,r=client")
    assert not isinstance(question, int | Admitted | Pending)
    assert question.challenge != first.challenge
    assert question.answer(answer) is False


def test_who_does_not_exist_is_asked_the_same() -> None:
    questions = {}
    for user in ("jo", "nobody"):
        question, answer, place = asked(user)
        salt, iterations = attributes_of(question.challenge, b"r", b"s", b"i")[1:]
        questions[user] = (iterations, type(question))
        again, _, _ = asked(user)
        assert attributes_of(again.challenge, b"r", b"s", b"i")[1] == salt, "a salt stays the same"
        if user == "nobody":
            assert question.answer(answer) is False
            assert place.login.reason == "no such user"
    assert questions["jo"] == questions["nobody"]


def test_nobodys_salts_differ_by_all_that_a_users_would_and_stay() -> None:
    users = Users([person("jo")], SEED)
    places = [
        ("SCRAM-SHA-256", "a", "x"),
        ("SCRAM-SHA-512", "a", "x"),
        ("SCRAM-SHA-256", "b", "x"),
        ("SCRAM-SHA-256", "a", "y"),
    ]
    keys = [users.decoy_keys(*place) for place in places]
    assert len({item.salt for item in keys}) == len(places)
    assert [item.iterations for item in keys] == [FEW] * len(places)
    assert [Users([person("jo")], SEED).decoy_keys(*place) for place in places] == keys
    assert Users([person("jo")], b"other").decoy_keys(*places[0]).salt != keys[0].salt
    assert [len(item.stored) for item in keys] == [32, 64, 32, 32]


def test_a_proof_is_compared_as_long_for_nobody_as_for_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    original = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return original(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for user, proof in (("jo", b"AAAA"), ("nobody", b"AAAA"), ("nobody", base64.b64encode(b"\0" * 32))):
        question, answer, _ = asked(user)
        compared.clear()
        question.answer(answer.partition(b",p=")[0] + b",p=" + proof)
        assert compared == [32]


def test_keys_do_not_show_themselves() -> None:
    user = person("jo")
    shown = repr(user) + repr(user.keys)
    for keys in user.keys.values():
        for secret in (keys.stored, keys.server, keys.salt):
            assert repr(secret) not in shown
