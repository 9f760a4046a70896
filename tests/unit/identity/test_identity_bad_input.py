"""Any bytes as a proof: they do not come in, and raise nothing but what says that the peer is wrong."""

from __future__ import annotations

from random import Random

import pytest

from enmasse.errors import RemoteError
from enmasse.wire.sasl.scram import HASHES, Scram, saslprep
from tests.unit.identity.people import Door, answered, person

STARTS = {
    "PLAIN": [b"\0jo\0guess"],
    "EXTERNAL": [b"", b"jo"],
    "OAUTHBEARER": [b"n,a=jo,\x01host=h\x01port=1\x01auth=Bearer abc\x01\x01"],
    "XOAUTH2": [b"user=jo\x01auth=Bearer abc\x01\x01"],
    **{mechanism: [b"n,,n=jo,r=client", b"y,a=jo,n=jo,r=client,x=y"] for mechanism in HASHES},
}
ALPHABET = b",=\0\x01\xff\xc3\xbcacnrpsvi0129/+ "


def spoil(random: Random, message: bytes) -> bytes:
    """A message with some bytes changed, lost, doubled or put in."""
    data = bytearray(message)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                del data[at : at + random.randrange(1, 4)]
            case 1:
                data[at:at] = bytes(random.choices(ALPHABET, k=random.randrange(1, 5)))
            case 2:
                data[at:at] = data[random.randrange(len(data) + 1) :]
            case _:
                data[at : at + 1] = bytes([random.randrange(256)])
    return bytes(data[:2_000])


@pytest.mark.parametrize("mechanism", STARTS)
def test_spoilt_proofs_do_not_come_in(mechanism: str) -> None:
    random = Random(f"proofs {mechanism}")
    place = Door(person("jo", mechanisms=tuple(HASHES)))
    place.certified = ("nobody.example.com",)
    for _ in range(60 if mechanism == "PLAIN" else 600):
        login = place.begin()
        start = spoil(random, random.choice(STARTS[mechanism]))
        verdict = answered(lambda login=login, start=start: login.begin(mechanism, start))  # type: ignore[misc]
        for _ in range(3):
            if isinstance(verdict, int):
                break
            question = verdict
            answer = spoil(random, b"c=biws,r=clientserver,p=" + b"QUFB" * 8)
            verdict = answered(lambda question=question, answer=answer: question.answer(answer))  # type: ignore[misc]
        assert verdict is not True
        assert login.user is None


def test_spoilt_questions_do_not_trouble_a_client() -> None:
    random = Random("questions")
    for _ in range(300):
        client = Scram("SCRAM-SHA-256", "jo", "secret", lambda: "client")
        client.response()
        try:
            client.answer(spoil(random, b"r=clientserver,s=c2FsdA==,i=4096"))
            client.answer(spoil(random, b"v=" + b"QUFB" * 8))
        except RemoteError:
            continue
        pytest.fail("a server that knows nothing was believed")


def test_any_text_is_prepared_or_refused() -> None:
    random = Random("texts")
    for _ in range(2_000):
        text = "".join(chr(random.choice([random.randrange(0x300), random.randrange(0x110000)])) for _ in range(4))
        try:
            prepared = saslprep(text)
        except RemoteError:
            continue
        assert saslprep(prepared) == prepared
