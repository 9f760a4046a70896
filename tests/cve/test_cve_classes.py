"""The classes of holes that were published of brokers in 2025 and 2026, tried at a node in all its protocols.

A number in a docstring is that of an example of the class, in whichever product: what is tried here is the class.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
import struct
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from enmasse.client import ConnectionDeniedError, LinkRefusedError, Message, Outcome, TlsOptions, blocking
from enmasse.drivers.authority import Authority
from enmasse.errors import EnmasseError
from enmasse.message.codec import encode
from enmasse.message.sections import encode_message
from enmasse.message.types import Described, Symbol
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Close, Open, SaslInit, Source, Target, Transfer
from enmasse.wire.stomp.frames import Version, encode_frame
from tests.cve.conftest import MEGABYTE, OPEN, PASSWORD, SHOP, Place, basic
from tests.support.polling import until
from tests.support.stranger import Stranger

pytestmark = pytest.mark.slow

GROWTH_BYTES = 32 * MEGABYTE

GUESSING, CAFE = "127.0.0.79", "127.0.0.78"
"""Addresses of the loopback interface from which passwords are guessed: who does that has to wait."""


def stomp(command: str, *headers: tuple[str, str], body: bytes = b"") -> bytes:
    return encode_frame(command, headers, body, Version.V1_2)


def mqtt_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def mqtt(kind: int, body: bytes) -> bytes:
    size, length = b"", len(body)
    while True:
        length, digit = divmod(length, 128)
        size += bytes((digit | (0x80 if length else 0),))
        if not length:
            return bytes((kind,)) + size + body


def mqtt_connect(user: str = "", password: str = "", client: str = "c") -> bytes:
    flags = 0x02 | (0xC0 if user else 0)
    login = mqtt_text(user) + mqtt_text(password) if user else b""
    return mqtt(0x10, mqtt_text("MQTT") + bytes((4, flags, 0, 60)) + mqtt_text(client) + login)


def upgrade(protocol: str, *more: str) -> bytes:
    lines = (
        "GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {b64encode(bytes(16)).decode()}", "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {protocol}", *more,
    )  # fmt: skip
    return "\r\n".join((*lines, "", "")).encode()


H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
PLAIN = b"\0%b\0%b"
TRANSFER = amqp_frame(0, Transfer(0, 0, b"0", 0, settled=True), 0)

DECLARED = {
    "AMQP: a frame": AMQP_HEADER + struct.pack(">IBBH", 0xFFFF_FFF0, 2, 0, 0),
    "AMQP: a frame of SASL": SASL_HEADER + struct.pack(">IBBH", 0x7FFF_FFFF, 2, 1, 0),
    "AMQP: a text": AMQP_HEADER
    + struct.pack(">IBBH", 40, 2, 0, 0)
    + b"\0\x53\x10\xd0\0\0\0\x18\0\0\0\1\xb1\xff\xff\xff\xf0",
    "AMQP: a list": AMQP_HEADER
    + struct.pack(">IBBH", 20, 2, 0, 0)
    + b"\0\x53\x10\xd0\xff\xff\xff\xf0\xff\xff\xff\xff",
    "AMQP: an array of nothing": AMQP_HEADER
    + struct.pack(">IBBH", 32, 2, 0, 0)
    + b"\0\x53\x10\xd0\0\0\0\x10\0\0\0\1\xf0\0\0\0\5\xff\xff\xff\xff\x40\0\0",
    "MQTT: CONNECT": b"\x10\xff\xff\xff\x7f\0\4MQTT\4\2\0\x3c",
    "MQTT: a length of five bytes": b"\x10\xff\xff\xff\xff\x01\0\4MQTT",
    "MQTT: a client id": mqtt(0x10, mqtt_text("MQTT") + b"\4\2\0\x3c\xff\xff"),
    "STOMP: 4 GiB": stomp("CONNECT", ("accept-version", "1.2"), ("host", OPEN))
    + b"SEND\ndestination:other\ncontent-length:4294967295\n\nx",
    "STOMP: fewer than none": stomp("CONNECT", ("accept-version", "1.2"), ("host", OPEN))
    + b"SEND\ndestination:other\ncontent-length:-1\n\nx\0",
    "STOMP: more than there is": b"CONNECT\ncontent-length:99999999999999999999999999\n\nx",
    "HTTP/1.1: a body": b"POST /v1/spaces/open.default/addresses/other/messages HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1099511627776\r\n\r\nx",
    "HTTP/1.1: fewer than none": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\nx",
    "HTTP/1.1: a chunk": b"POST /v1/spaces/open.default/addresses/other/messages HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    "HTTP/2: a frame": H2 + b"\xff\xff\xff\1\4\0\0\0\1",
    "HTTP/2: a table": H2 + bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + struct.pack(">HI", 1, 0xFFFF_FFFF),
    "WebSocket: a frame": upgrade("amqp") + b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0x",
    "WebSocket: a length below none": upgrade("amqp") + b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0x",
}  # fmt: skip


def test_allocation_by_declared_size(place: Place) -> None:
    """CVE-2026-50734, CVE-2026-53917, CVE-2026-49432, CVE-2025-66168, CVE-2026-40046, CVE-2026-27571."""
    before = place.node.memory_bytes
    waiting = []
    for data in DECLARED.values():
        for _ in range(4):
            peer = place.socket()
            with suppress(OSError):
                peer.sendall(data)
            waiting.append(peer)
    place.lives()
    assert place.node.memory_bytes < before + GROWTH_BYTES
    for peer in waiting:
        peer.close()
    # What could be inflated is not taken compressed at all.
    head = place.say(upgrade("amqp", "Sec-WebSocket-Extensions: permessage-deflate"), enough=b"\r\n\r\n")
    assert b"101" in head.split(b"\r\n")[0]
    assert b"permessage-deflate" not in head
    bomb = b"POST /v1/spaces/open.default/addresses/stock/messages HTTP/1.1\r\nHost: localhost\r\n"
    place.say(bomb + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08", enough=b"\r\n\r\n")
    place.management.purge("default/open.stock")
    assert place.node.memory_bytes < before + GROWTH_BYTES


def test_a_second_path_before_login(place: Place) -> None:
    """CVE-2026-27446, GHSA-38x3-76xf-cq45."""
    link = Attach("s", 0, False, source=Source(), target=Target("stock"), initial_delivery_count=0)
    opening = (Open("stranger", hostname=SHOP), Begin(incoming_window=9, outgoing_window=9), link)
    message = encode_message("in by the back door")
    frames = b"".join(amqp_frame(0, each) for each in opening)
    frames += amqp_frame(0, Transfer(0, 0, b"0", 0, settled=True), len(message)) + message
    plain = sasl_frame(SaslInit("PLAIN", PLAIN % (b"jo", b"wrong"), SHOP))
    before = place.stored("shop", "stock")
    publish = mqtt(0x30, mqtt_text("stock") + b"x")
    send = stomp("SEND", ("destination", "stock"), body=b"x")
    path = "/v1/spaces/shop.default/addresses/stock/messages"
    for data in (
        AMQP_HEADER + frames,  # without SASL
        SASL_HEADER + AMQP_HEADER + frames,  # as if SASL were over
        SASL_HEADER + plain + AMQP_HEADER + frames,
        SASL_HEADER + sasl_frame(SaslInit("ANONYMOUS", b"", SHOP)) + AMQP_HEADER + frames,
        SASL_HEADER + sasl_frame(SaslInit("EXTERNAL", b"card", SHOP)) + AMQP_HEADER + frames,
        SASL_HEADER + sasl_frame(SaslInit("NONE-SUCH", b"", SHOP)) + AMQP_HEADER + frames,
        publish,
        mqtt_connect("jo@shop.default", "wrong") + publish,
        mqtt_connect("jo@shop.default", "") + publish,
        send,
        stomp("CONNECT", ("accept-version", "1.2"), ("host", SHOP)) + send,
        stomp("CONNECT", ("accept-version", "1.2"), ("host", SHOP), ("login", "jo"), ("passcode", "")) + send,
        upgrade("v12.stomp") + b"\x82" + bytes((0x80 | len(send),)) + bytes(4) + send,
    ):
        place.say(data, address=GUESSING)
    transport = httpx.HTTPTransport(local_address=GUESSING)
    with httpx.Client(base_url=f"http://127.0.0.1:{place.node.port}", transport=transport, timeout=30) as http:
        for way in (
            path, path.replace("/v1", "//v1"), path.replace("/stock", "/./stock"), f"/healthz/..{path}",
            path.replace("shop.default", "open.default/../shop.default"), path.replace("shop", "%73hop"),
            path.replace("shop.default", "SHOP.default"), f"{path}?access_token=x", f"{path}/",
        ):  # fmt: skip
            url = httpx.URL(f"http://127.0.0.1:{place.node.port}").copy_with(raw_path=way.encode())
            for headers in (
                {},
                {"X-Forwarded-User": "jo"},
                {"Authorization": "Basic"},
                {"Authorization": basic("jo", "")},
            ):
                assert http.post(url, content=b"x", headers=headers).status_code >= 400, way
    assert place.stored("shop", "stock") == before
    # The same said with a proof comes in: it was no mistake of ours that kept it out.
    plain = sasl_frame(SaslInit("PLAIN", PLAIN % (b"jo", PASSWORD.encode()), SHOP))
    login = stomp(
        "CONNECT", ("accept-version", "1.2"), ("host", SHOP), ("login", "jo"), ("passcode", PASSWORD)
    )  # fmt: skip
    for data in (
        SASL_HEADER + plain + AMQP_HEADER + frames, mqtt_connect("jo@shop.default", PASSWORD) + publish, login + send,
    ):  # fmt: skip
        place.say(data)
    with httpx.Client(base_url=f"http://127.0.0.1:{place.node.port}", trust_env=False, timeout=30) as http:
        assert http.post(path, content=b"x", headers={"Authorization": basic("jo")}).status_code == 202
    until(lambda: place.stored("shop", "stock") == before + 4)
    place.management.purge("default/shop.stock")


WIDE_OF_LINKS = ("#", "news/#", "news/+/x")
"""Patterns of receivers that are wider than what jo may receive, and reach a topic."""

WIDE = (*WIDE_OF_LINKS, "own/#", "own/+", "$share/g/#")
"""Filters of MQTT that are wider, which may be there before what they stand for."""


def test_authorization_by_string_tricks(place: Place) -> None:
    """CVE-2026-44838, CVE-2026-33217."""
    login = {"user": "jo", "password": PASSWORD}
    tricks = (
        "other", "OTHER", "/other", "other/", "stock/../other", "own/jo/../../other", "own/jo/#/../../other", "#",
        "+", "*", "own/#", "own/+", "own/j*", "own/card/x", "own/jo\0/x", "%6fther", "other\n", "news/#", "news/+/x",
        "$share/g/other", "$share/g/#", "$queue/other", "other::other", "stock,other", ".*",
        "${username}", "own/${username}/x",
    )  # fmt: skip
    connection = place.connect(SHOP, **login)
    for name in tricks:
        for attach in (connection.receiver, connection.sender):
            if attach == connection.sender or name not in WIDE_OF_LINKS:
                with pytest.raises(EnmasseError):
                    attach(name).close()
    receivers = [connection.receiver(name) for name in WIDE_OF_LINKS]
    for name in tricks:
        subscribe = mqtt(0x82, b"\0\1" + mqtt_text(name) + b"\0")
        heard = place.say(
            mqtt_connect("jo@shop.default", PASSWORD, name if name.isprintable() else "c")
            + subscribe
            + mqtt(0xE0, b"")
        )
        assert heard[:4] == b"\x20\2\0\0", "the login is right"
        assert heard[4:] in ((b"\x90\3\0\1\0",) if name in WIDE else (b"", b"\x90\3\0\1\x80")), name
    # Of a filter that is wider than the grants jo gets the part that these cover.
    with place.socket() as peer, place.connect(SHOP, user="press", password=PASSWORD) as press:
        asked = b"".join(mqtt(0x82, bytes((0, at)) + mqtt_text(name) + b"\0") for at, name in enumerate(WIDE, 1))
        peer.sendall(mqtt_connect("jo@shop.default", PASSWORD) + asked)
        heard = b""
        while heard.count(b"\x90\3\0") < len(WIDE):
            heard += peer.recv(4096)
        for name in ("news", "news/secret", "news/secret/x", "news/open/x"):
            press.sender(name).send(blocking.Message(f"said to {name}"))
        while b"said to news/open/x" not in heard:
            heard += peer.recv(4096)
        assert heard.count(b"said to") == heard.count(b"said to news/open/x")
        for receiver in receivers:
            delivery = receiver.receive(timeout=60)
            assert delivery is not None
            assert delivery.message.body == "said to news/open/x", "and nothing that was said before"
    connection.close()
    for name in tricks[:12]:
        if "\n" not in name and name not in WIDE_OF_LINKS:
            start = stomp(
                "CONNECT", ("accept-version", "1.2"), ("host", SHOP), ("login", "jo"), ("passcode", PASSWORD)
            )
            asked = stomp("SUBSCRIBE", ("id", "0"), ("destination", name), ("receipt", "r"))
            heard = place.say(start + asked)
            assert b"ERROR" in heard, name
            assert b"RECEIPT" not in heard
    # What jo may have, jo gets by the same words.
    connection = place.connect(SHOP, **login)
    connection.receiver("stock").close()
    connection.close()
    subscribe = mqtt(0x82, b"\0\1" + mqtt_text("news/open/x") + b"\0")
    heard = place.say(mqtt_connect("jo@shop.default", PASSWORD) + subscribe + mqtt(0xE0, b""))
    assert heard == b"\x20\2\0\0\x90\3\0\1\0"
    asked = stomp("SUBSCRIBE", ("id", "0"), ("destination", "stock"), ("receipt", "r"))
    assert b"RECEIPT" in place.say(start + asked, enough=b"RECEIPT")
    # A name that is a pattern is a name all the same.
    for user in ("+", ".*"):
        with place.connect(SHOP, user=user, password=PASSWORD) as other, pytest.raises(LinkRefusedError):
            other.receiver("own/jo/x")


def test_header_injection_across_protocols(place: Place) -> None:
    """CVE-2026-33223, CVE-2026-33246."""
    evil = "x\r\nSet-Cookie: a=b\r\n\r\n<script>\n\nMESSAGE\nuser-id:boss\n\n\0\0"
    names = {
        "user-id": "boss",
        "X-User-Id": "boss",
        f"k{evil}": "v",
        "k": evil,
        "destination": "elsewhere",
        "ack": "9",
    }
    sent = Message(evil, subject=evil, reply_to=evil, correlation_id=evil, content_type=evil, properties=names)
    with place.connect() as connection:
        forged = connection.sender("other").send(Message("x", user_id=b"boss"))
        assert forged.condition == "amqp:unauthorized-access"
        for _ in range(3):
            assert connection.sender("stock").send(sent) == Outcome.ACCEPTED
    start = stomp("CONNECT", ("accept-version", "1.2"), ("host", OPEN))
    asked = stomp("SUBSCRIBE", ("id", "0"), ("destination", "stock"), ("ack", "client"), ("prefetch-count", "1"))
    heard = place.say(start + asked, enough=lambda data: b"MESSAGE\n" in data and data.rstrip(b"\n").endswith(b"\0"))
    head = heard.partition(b"MESSAGE\n")[2].partition(b"\n\n")[0].decode().split("\n")
    given = [line.partition(":")[0] for line in head]
    assert "user-id" not in given
    assert head[given.index("destination")] == "destination:stock"
    assert not any(line.startswith("Set-Cookie") for line in head)
    with httpx.Client(base_url=f"http://localhost:{place.node.port}", trust_env=False, timeout=30) as client:
        answer = client.post("/v1/spaces/open.default/addresses/stock/receive?auto=true")
    assert answer.status_code == 200, answer.text
    assert not {"set-cookie", "x-user-id", "destination"} & set(answer.headers)
    place.management.purge("default/open.stock")


def test_web_console(place: Place, api: Any) -> None:
    """CVE-2026-52760, CVE-2026-49877."""
    script = "<script>alert(1)</script>"
    with httpx.Client(base_url=f"http://localhost:{place.node.port}", trust_env=False, timeout=30) as node:
        for path in (
            f"/v1/spaces/open.default/addresses/{script}",
            f"/{script}",
            f"/v1/spaces/{script}/addresses/x/messages",
        ):
            answer = node.get(path)
            assert answer.status_code >= 400
            assert "html" not in answer.headers.get("content-type", "")
            assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/console/", f"/console/{script}"):
        answer = api("GET", path)
        policy = answer.headers["content-security-policy"]
        assert script not in answer.text
        assert "unsafe-inline" not in policy.split("style-src")[0]
        assert "unsafe-eval" not in policy
    for path in (
        "/console/../apis/enmasse.io/v1beta1",
        f"/apis/{script}",
        f"/osbapi/v2/{script}",
        f"/login/oidc/callback?error={script}&state=x",
    ):
        answer = api("GET", path)
        assert answer.status_code >= 400
        assert answer.headers["content-type"].startswith("application/json")
    # Who has an account has what it was granted, and a page of another origin has nothing of it.
    login = {"username": "tina", "password": PASSWORD}
    cookie = api("POST", "/login", json=login, headers={"Origin": "https://localhost"}).cookies["enmasse_session"]
    kept = {"Cookie": f"enmasse_session={cookie}"}
    assert api("GET", "/whoami", headers=kept).json()["username"] == "tina"
    for path in ("/apis/enmasse.io/v1beta1/addressspaces", "/apis/access.enmasse.io/v1beta1/accounts"):
        assert api("GET", path, headers=kept).status_code == 403
    assert api("POST", "/login", json=login, headers={"Origin": "https://evil.example"}).status_code == 403
    api("POST", "/logout", headers=kept | {"Origin": "https://localhost"})
    assert api("GET", "/whoami", headers=kept).status_code == 401


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_tls_and_token_trust(place: Place, tmp_path: Path) -> None:
    """GHSA-3f24-pcvm-5jqc, CVE-2025-27817."""

    good = place.authority.issue_client("card.example.com").write(tmp_path, "good")
    foreign = Authority(tmp_path / "foreign")
    foreign.keep_server_certificate("default", ["localhost"])
    cards = {
        "of a foreign authority": foreign.issue_client("card.example.com").write(tmp_path, "foreign"),
        "of itself": self_signed(tmp_path, "card.example.com"),
        "in other letters": place.authority.issue_client("CARD.EXAMPLE.COM").write(tmp_path, "capitals"),
        "with more behind it": place.authority.issue_client("card.example.com,O=x").write(tmp_path, "more"),
        "as an organisation": place.authority.issue_client("evil", groups=("card.example.com",)).write(
            tmp_path, "org"
        ),
    }

    def enter(card: tuple[Path, Path]) -> None:
        tls = TlsOptions(
            ca_file=str(place.authority.path), certificate=str(card[0]), key=str(card[1]), server_name=SHOP
        )
        place_url = f"amqps://127.0.0.1:{place.node.port}"

        with blocking.connect(place_url, hostname=SHOP, tls=tls, timeout=20, reconnect=False) as connection:
            connection.receiver("stock").close()

    enter(good)
    for what, card in cards.items():
        try:
            enter(card)
        except EnmasseError:
            continue
        pytest.fail(f"a certificate {what} is taken for card's")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(str(place.authority.path))
    old.check_hostname = False
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with place.socket() as peer, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(peer, server_hostname=SHOP)
    # A token means something only where a provider was named, and names none itself.
    for token in ("a.b.c", "eyJhbGciOiJub25lIn0.e30.", "file:///etc/passwd"):
        with pytest.raises(ConnectionDeniedError):
            place.connect(SHOP, token=token).close()


def self_signed(directory: Path, name: str) -> tuple[Path, Path]:

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(1))
        .not_valid_after(now + dt.timedelta(1))
        .sign(key, hashes.SHA256())
    )
    paths = directory / "self.crt", directory / "self.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return paths


def test_cpu_amplification(place: Place) -> None:
    """CVE-2026-39304: little that is said costs little, or this would not end."""
    selector = Symbol("apache.org:selector-filter:string")
    with place.connect() as connection:
        assert connection.sender("stock").send(Message("x", properties={"k": "a" * 60_000})) == Outcome.ACCEPTED
        for text in (
            f"k LIKE '{'%a' * 500}%b'",
            f"k LIKE '{'%_' * 500}b'",
            "(" * 5_000 + "k = 1" + ")" * 5_000,
            "NOT " * 20_000 + "TRUE",
            " OR ".join(["k = 'b'"] * 5_000),
            "k IN (" + ",".join(["'b'"] * 20_000) + ")",
        ):
            with suppress(EnmasseError):
                receiver = connection.receiver("stock", filters={str(selector): Described(selector, text)})
                receiver.receive(0.01)
                receiver.close()
    nested = b"\0" * 4_000
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    levels = "/".join(["+"] * 30_000)
    for data in (
        AMQP_HEADER + struct.pack(">IBBH", 8 + len(nested), 2, 0, 0) + nested,
        AMQP_HEADER + amqp_frame(0, Open("x", properties={"k": encode(deep)})),
        mqtt_connect() + mqtt(0x82, b"\0\1" + mqtt_text(levels) + b"\0"),
        mqtt_connect() + mqtt(0x30, mqtt_text("a" + "/a" * 30_000) + b"x"),
        stomp("CONNECT", ("accept-version", ",".join(["1.2"] * 2_000)), ("host", OPEN)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=" + b"0-," * 2_000 + b"\r\n\r\n",
        b"POST /v1/spaces/open.default/addresses/stock/messages HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-ndjson\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20_000,
        H2 + b"".join(bytes((0, 0, 4, 3, 0)) + struct.pack(">I", 2 * n + 1) + bytes(4) for n in range(2_000)),
        H2 + (bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + bytes(8)) * 5_000,
        upgrade("amqp") + b"\x89\x80\0\0\0\0" * 20_000,
    ):  # fmt: skip
        place.say(data)
    place.lives()
    place.management.purge("default/open.stock")


BROKEN = {
    "AMQP": (
        AMQP_HEADER + b"\0\0\0\7\2\0\0\0", AMQP_HEADER + b"\0\0\0\x0c\1\0\0\0\0\x53\x10\xc0",
        AMQP_HEADER + amqp_frame(0, Open("x")) + amqp_frame(7, Transfer(0)),
        AMQP_HEADER + amqp_frame(0, Open("x")) + amqp_frame(0, Begin(incoming_window=1, outgoing_window=1)) * 2,
        AMQP_HEADER + amqp_frame(0, Close()) * 3, SASL_HEADER + b"\0\0\0\x08\2\1\0\0" * 9,
        SASL_HEADER + sasl_frame(SaslInit("PLAIN", b"\xff" * 900, "\u2603" * 90)),
    ),
    "MQTT": (
        mqtt(0x10, b""), mqtt(0x1F, mqtt_text("MQTT") + b"\4\xff\0\0"), mqtt_connect() * 3,
        mqtt_connect() + b"\xf0\0",
        mqtt_connect() + mqtt(0x36, mqtt_text("a") + b"\0\0"), mqtt_connect() + mqtt(0x82, b"\0\1"),
        mqtt(0x10, mqtt_text("MQTT") + b"\5\2\0\0\x05\x26\0\1\xff\0\0"),
        mqtt_connect() + mqtt(0x62, b"\xff\xff") * 50,
    ),
    "STOMP": (
        b"CONNECT\n\n", b"CONNECT\na:\\q\n\n\0", b"SEND\n\n\0" * 9, b"CONNECT\n" + b"a" * 100_000,
        stomp("CONNECT", ("accept-version", "1.2"), ("host", OPEN)) + b"ACK\nid:99\n\n\0COMMIT\ntransaction:t\n\n\0",
    ),
    "HTTP": (
        b"GET \0 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        H2 + b"\0\0\1\xff\xff\xff\xff\xff\xff\0",
        H2 + bytes((0, 0, 3, 1, 4, 0, 0, 0, 0)) + b"\xff\xff\xff", H2 + bytes((0, 0, 4, 8, 0, 0, 0, 0, 0)) + bytes(4),
        H2 + bytes((0, 0, 5, 4, 0, 0, 0, 0, 0)) + bytes(5), H2 + bytes((0, 0, 0, 9, 0, 0, 0, 0, 1)),
    ),
    "WebSocket": tuple(
        upgrade(name) + data
        for name in ("amqp", "mqtt", "v12.stomp")
        for data in (
            b"\x82\xff" + b"\x80" + bytes(7) + bytes(4), b"\xf2\x80\0\0\0\0", b"\x89\xfe\1\0\0\0\0\0",
            b"\x80\x80\0\0\0\0",
            b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0", b"\x82\x05hello", b"\x88\x81\0\0\0\0x", b"\x83\x80\0\0\0\0",
        )
    ),
    "TLS": (b"\x16\3\1\0\5hello", b"\x16\3\1\xff\xff" + bytes(300), b"\x15\3\1\0\2\2\x28"),
}  # fmt: skip


@pytest.mark.parametrize("protocol", BROKEN)
def test_an_exception_that_ends_a_shared_loop(place: Place, protocol: str) -> None:
    """CVE-2026-27889, CVE-2026-33218: nobody else is disconnected, and the log has no trace of a fault of ours."""
    pid = place.node.pid
    with place.connect() as bystander:
        sender, receiver = bystander.sender("other"), bystander.receiver("other")
        for data in BROKEN[protocol]:
            place.say(data)
        assert sender.send(Message("untouched")) == Outcome.ACCEPTED
        delivery = receiver.receive(30)
        assert delivery is not None
        delivery.accept()
    os.kill(pid, 0)
    assert "Traceback" not in place.node.log


def test_limits_on_one_protocol_only(place: Place) -> None:
    """CVE-2026-53916, GHSA-7qmq-8cc4-hxwg: who guesses in one protocol waits in all; heads have bounds in all."""
    path = "/v1/spaces/shop.default/addresses/stock/messages"

    def guess(protocol: str, password: str) -> bytes:
        user = "guessed"
        if protocol == "amqp":
            init = sasl_frame(SaslInit("PLAIN", PLAIN % (user.encode(), password.encode()), SHOP))
            with Stranger(place.node.port, address=CAFE) as peer:
                peer.say_bytes(SASL_HEADER + init)
                while (heard := peer.hear_frame()) is not None:
                    if type(heard[0]).__name__ == "SaslOutcome":
                        return b"in" if heard[0].code == 0 else b"code %d" % heard[0].code  # type: ignore[attr-defined]
            return b""
        if protocol == "mqtt":
            heard_bytes = place.say(
                mqtt_connect(f"{user}@{SHOP}", password), address=CAFE, enough=lambda d: len(d) >= 4
            )
            return b"in" if heard_bytes[3:4] == b"\0" else heard_bytes
        if protocol == "stomp":
            login = ("login", user), ("passcode", password)
            frame = stomp("CONNECT", ("accept-version", "1.2"), ("host", SHOP), *login)
            heard_bytes = place.say(frame, address=CAFE, enough=b"\0")
            return b"in" if heard_bytes.startswith(b"CONNECTED") else heard_bytes
        proof = f"Authorization: {basic(user, password)}\r\n"
        request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{proof}Content-Length: 1\r\n\r\nx"
        heard_bytes = place.say(request.encode(), address=CAFE, enough=b"\r\n\r\n")
        return heard_bytes if heard_bytes.split()[1:2] in ([b"401"], [b"429"]) else b"in"

    protocols = ("amqp", "mqtt", "stomp", "http")
    for protocol in protocols:
        assert guess(protocol, PASSWORD) == b"in"
    for number, protocol in enumerate((*protocols, *protocols)):
        assert guess(protocol, f"guess {number}") != b"in"
    for protocol in protocols:
        assert guess(protocol, PASSWORD) != b"in", f"{protocol} lets somebody in who has to wait"
    before = place.node.memory_bytes
    long = b"a" * (2 * MEGABYTE)
    peers = []
    for data in (
        b"CONNECT\nlogin:" + long, b"GET / HTTP/1.1\r\nX: " + long, H2 + b"\0\x40\0\1\0\0\0\0\1" + long,
        upgrade("amqp")[:-2] + b"X: " + long, mqtt(0x10, mqtt_text("MQTT") + b"\5\2\0\0\xff\xff\x7f\x26" + long),
        AMQP_HEADER + struct.pack(">IBBH", 3 * MEGABYTE, 2, 0, 0) + long,
    ):  # fmt: skip
        for _ in range(12):
            peer = place.socket()
            with suppress(OSError):
                peer.settimeout(5)
                peer.sendall(data)
            peers.append(peer)
    place.lives()
    assert place.node.memory_bytes < before + GROWTH_BYTES
    for peer in peers:
        peer.close()
    # What one may not subscribe to is not sent as a retained value either.
    with place.connect(SHOP, user="press", password=PASSWORD) as press:
        for name in ("news/secret", "news/open/last"):
            value = blocking.Message(f"last of {name}", annotations={"x-opt-retain": True})
            press.sender(name).send(value)
    with place.connect(SHOP, user="jo", password=PASSWORD) as connection:
        receiver = connection.receiver("news/#", filters={"enmasse:retained": "always"})
        delivery = receiver.receive(timeout=60)
        assert delivery is not None
        assert delivery.message.body == "last of news/open/last"
        assert receiver.receive(timeout=0) is None


def test_secrets_at_rest(place: Place, api: Any, tmp_path: Path) -> None:
    """CVE-2025-50200: no password and no token in a file, a log, an argument or an answer."""
    wrong = "this was the wrong passphrase"
    for password, address in ((PASSWORD, "127.0.0.1"), (wrong, "127.0.0.80")):
        place.say(mqtt_connect(f"jo@{SHOP}", password), enough=lambda data: len(data) >= 4, address=address)
        login = ("login", "jo"), ("passcode", password)
        place.say(stomp("CONNECT", ("accept-version", "1.2"), ("host", SHOP), *login), enough=b"\0", address=address)
        for path in ("/v1/spaces/shop.default/addresses/stock/nothing", "/nowhere"):
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('jo', password)}\r\n\r\n"
            place.say(request.encode(), enough=b"\r\n\r\n", address=address)
        with suppress(EnmasseError):
            place.connect(SHOP, user="jo", password=password).close()
    secrets = [text.encode() for text in (PASSWORD, wrong, basic("jo"), basic("jo", wrong))]
    secrets += [b64encode(text) for text in secrets[:2]]
    kept = [place.users, *(path for path in place.node.data.rglob("*") if path.is_file())]
    assert any("journal" in str(path) for path in kept)
    for file in kept:
        with suppress(FileNotFoundError):
            content = file.read_bytes()
            assert not any(secret in content for secret in secrets), file
    assert place.users.stat().st_mode & 0o077 == 0
    for part in ("cmdline", "environ"):
        assert not any(secret in Path(f"/proc/{place.node.pid}/{part}").read_bytes() for secret in secrets)
    # The API's own.
    answer = api(
        "POST", "/login", json={"username": "tina", "password": PASSWORD}, headers={"Origin": "https://localhost"}
    )
    files = b"".join(path.read_bytes() for path in api.directory.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in files
    assert api.token.encode() not in files
    assert PASSWORD not in answer.text
    assert answer.cookies["enmasse_session"].encode() not in files
