"""Ways by certificates: authorities that are not red's, devices that are called as blue's, hosts that are another's.

Blue has an authority that is proved, an intermediate below it that is registered, and one that is not. Whatever red
registers, blue's devices come in as blue's, and red's as nobody but red's.
"""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enmasse.client.blocking import connect
from enmasse.client.options import TlsOptions
from enmasse.errors import EnmasseError
from enmasse.iot.possession import sign
from tests.devices.authority import Authority, name_of
from tests.support.polling import until
from tests.tenancy.refusals import Way, forbidden
from tests.tenancy.tenants import tenant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.tenancy.tenants import Tenants

__all__ = ["WAYS"]

RED, BLUE = tenant_of("red"), tenant_of("blue")
HOSTS = {"red": "red.team-a", "blue": "blue.team-b"}
CONNECT = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me"
_numbers = count(1)


class Blue:
    """What blue has: authorities, and a device by each of them.

    Args:
        tenants: the installation.
        folder: for keys.
    """

    def __init__(self, tenants: Tenants, folder: Path) -> None:
        self.folder = folder
        self.root = Authority.new(folder, "Blue Root, Inc.")
        self.registered = self.root.below("blue registered")
        self.unregistered = self.root.below("blue unregistered")
        self.devices = {
            "root": self.root.issue("gauge"),
            "registered intermediate": self.registered.issue("gauge"),
            "unregistered intermediate": self.unregistered.issue("gauge"),
        }
        with tenants.http("blue") as http:
            self._document = http.get(f"/registry/v1/tenants/{BLUE}").json()
            http.post(f"/registry/v1/devices/{BLUE}/gauge").raise_for_status()
            proof = [{"type": "x509-cert", "auth-id": "gauge", "secrets": [{}]}]
            http.put(f"/registry/v1/credentials/{BLUE}/gauge", json=proof).raise_for_status()
        self.restore(tenants)
        until(lambda: self.is_well(tenants))

    def withdraw(self, tenants: Tenants) -> None:
        """Trust nobody, as before it has registered anything."""
        with tenants.http("blue") as http:
            http.put(f"/registry/v1/tenants/{BLUE}", json=self._document).raise_for_status()

    def restore(self, tenants: Tenants) -> None:
        """Register its authorities, and prove them."""
        trusted = [
            one.anchor | {"id": one.key_digest, "auth-id-template": "{{subject-cn}}"}
            for one in (self.root, self.registered)
        ]
        with tenants.http("blue") as http:
            document = self._document | {"trusted-ca": trusted}
            http.put(f"/registry/v1/tenants/{BLUE}", json=document).raise_for_status()
        for one in (self.root, self.registered):
            prove(tenants, "blue", one)

    def is_well(self, tenants: Tenants) -> bool:
        """Return true if each of its devices comes in as blue's, whether it names blue or nobody."""
        return all(
            place(tenants, context, host, BLUE, "gauge") == 400 and mqtt(tenants, context, host)
            for context in self.devices.values()
            for host in (None, HOSTS["blue"], "mq.example.org")
        )


_known: dict[Path, Blue] = {}


def blue_of(tenants: Tenants) -> Blue:
    if tenants.data not in _known:
        _known[tenants.data] = Blue(tenants, Path(mkdtemp()))
    return _known[tenants.data]


def prove(tenants: Tenants, who: str, authority: Authority) -> None:
    """Prove that a tenant has the key of an authority."""
    with tenants.http(who) as http:
        path = f"/registry/v1/tenants/{tenant_of(who)}/authorities"
        found = http.get(path).raise_for_status().json()["authorities"]
        known = next(one for one in found if one.get("key") == authority.key_digest)
        nonce = http.post(f"{path}/{known['id']}/nonce").raise_for_status().json()["nonce"]
        given = {"nonce": nonce, "signature": b64encode(sign(authority.key, nonce)).decode()}
        http.post(f"{path}/{known['id']}/proof", json=given).raise_for_status()


# Coming in, by raw sockets: clients of each protocol name the host that they are at, and these name any


def _open(tenants: Tenants, protocol: str, context: ssl.SSLContext, host: str | None, **more: Any) -> ssl.SSLSocket:
    port = urlsplit(tenants.place.url(protocol)).port
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(plain, server_hostname=host, **more)


def _asked(tenants: Tenants, protocol: str, context: ssl.SSLContext, host: str | None, data: bytes) -> bytes:
    """Return the beginning of the answer; empty: the handshake failed, or the connection ended."""
    try:
        with _open(tenants, protocol, context, host) as sock:
            sock.sendall(data)
            return sock.recv(4096)
    except OSError:
        return b""


def place(tenants: Tenants, context: ssl.SSLContext, host: str | None, tenant: str, device: str) -> int:
    """Send an event for a device of a tenant, without a body, and return the status.

    400 is for such a device, or a gateway of it; 403 for that of another tenant; 0 for whom TLS does not let in.
    """
    head = f"PUT /event/{tenant}/{device} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n"

    def answered() -> int | None:
        answer = _asked(tenants, "https", context, host, head.encode())
        status = int(answer.split()[1]) if answer else 0
        return None if status in (429, 503) else status + 1  # who guesses waits, and tries again

    return until(answered) - 1


def mqtt(tenants: Tenants, context: ssl.SSLContext, host: str | None, connect: bytes = CONNECT) -> bool:
    """Return true if a device comes in over MQTT."""

    def answered() -> int | None:
        answer = _asked(tenants, "mqtts", context, host, connect)
        code = answer[3] if answer[:2] == b"\x20\x02" else 5
        return None if code == 3 else code + 1

    return until(answered) == 1


def amqp(tenants: Tenants, pem: Path, server_name: str | None, hostname: str | None) -> bool:
    """Return true if a device comes in over AMQP."""
    tls = TlsOptions(certificate=str(pem), verify=False, server_name=server_name)
    try:
        connect(tenants.amqps, tls=tls, hostname=hostname, sasl=["EXTERNAL"], reconnect=False, timeout=20).close()
    except EnmasseError:
        return False
    return True


# What red registers


@contextmanager
def registered(tenants: Tenants, *anchors: dict[str, Any], proved: Authority | None = None) -> Iterator[Any]:
    """Have red trust authorities, and wait until the node knows of it, by an authority of red's own."""
    own = Authority.new(blue_of(tenants).folder, f"red {next(_numbers)}")
    path = f"/registry/v1/tenants/{RED}"
    welcome = {"auth-id-template": "{{subject-cn}}", "auto-provisioning-enabled": True}
    with tenants.http("red") as http:
        document = http.get(path).json()
        trusted = [each | welcome for each in (*anchors, own.anchor)]
        answer = http.put(path, json=document | {"trusted-ca": trusted})
        assert answer.status_code == 204, answer.text
        try:
            for one in (own, proved):
                if one is not None:
                    prove(tenants, "red", one)
            context = own.issue(f"marker-{next(_numbers)}")
            until(lambda: place(tenants, context, None, RED, "none") == 404)
            yield own
        finally:
            http.put(path, json=document).raise_for_status()


def anchor(authority: Authority, subject: str = "", key: Any = None) -> dict[str, Any]:
    """Return an authority as it is registered without its certificate."""
    certificate = authority.certificate
    public = (key or certificate).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "subject-dn": subject or certificate.subject.rfc4514_string(),
        "public-key": b64encode(public).decode(),
        "algorithm": "EC",
        "not-before": "2020-01-01T00:00:00Z",
        "not-after": "2040-01-01T00:00:00Z",
    }


SPELLINGS = (
    "O=Grün & Co,CN=Blue Root\\, Inc.",
    "O=GRÜN & CO,CN=BLUE ROOT\\, INC.",
    "O=grün & co,CN=blue root\\, inc.",
    "O=Grün  &  Co,CN=Blue  Root\\,  Inc.",
    "O=\\ Grün & Co\\ ,CN=\\ Blue Root\\, Inc.\\ ",
    "O=Grün & Co,CN=Blue Root\\2C Inc.",
    "2.5.4.10=Grün & Co,2.5.4.3=Blue Root\\, Inc.",
    "CN=Blue Root\\, Inc.,O=Grün & Co",
    "O=Grün & Co+CN=Blue Root\\, Inc.",
    "O=Grün & Co,CN=Blue Root\\, Inc.,CN=Blue Root\\, Inc.",
)


def _written_first(tenants: Tenants) -> None:
    """Before blue has registered it, with its key, which anybody knows."""
    blue = blue_of(tenants)
    blue.withdraw(tenants)
    with registered(tenants, *(anchor(blue.root, subject) for subject in SPELLINGS)):
        blue.restore(tenants)
        until(lambda: blue.is_well(tenants))
        # At red's own host red is believed; a device of blue's is none of blue's there.
        assert place(tenants, blue.devices["root"], HOSTS["red"], BLUE, "gauge") == 403


def _named_alike(tenants: Tenants) -> None:
    """After blue has, with a key of red's own, which is proved."""
    blue = blue_of(tenants)
    other = Authority.new(blue.folder, "other")
    with registered(tenants, *(anchor(other, subject) for subject in SPELLINGS), proved=other):
        assert blue.is_well(tenants)
    with tenants.http("red") as http:
        for subject in SPELLINGS:
            document = {"trusted-ca": [anchor(blue.root, subject)]}
            assert http.put(f"/registry/v1/tenants/{RED}", json=document).status_code == 409, subject


def _unregistered(tenants: Tenants) -> None:
    blue = blue_of(tenants)
    taken = blue.unregistered
    with registered(
        tenants,
        taken.anchor,
        anchor(taken, taken.certificate.subject.rfc4514_string().lower().replace("o=", "O=").replace("cn=", "CN=")),
    ):
        assert blue.is_well(tenants)


def _named_as_registered(tenants: Tenants) -> None:
    blue = blue_of(tenants)
    own = Authority.new(blue.folder, "blue registered")
    with registered(tenants, own.anchor, proved=own):
        assert blue.is_well(tenants)


def _cross_signed(tenants: Tenants) -> None:
    """What red's authority has signed of blue's intermediate leads to red's, and to nobody of blue's."""
    blue = blue_of(tenants)
    own = Authority.new(blue.folder, "red crossing")
    crossed = own.cross(blue.unregistered)
    with registered(tenants, own.anchor, proved=own):
        assert blue.is_well(tenants)
        forged = crossed.issue("gauge")  # blue's intermediate would have to have issued it
        assert place(tenants, forged, HOSTS["blue"], BLUE, "gauge") in (0, 400)
        assert place(tenants, forged, None, BLUE, "gauge") in (0, 403)


def _forged(serial: int | None, *names: str) -> Callable[[Tenants], None]:
    """Devices of red's that are called as blue's, by authorities that are called as blue's."""

    def attempt(tenants: Tenants) -> None:
        blue = blue_of(tenants)
        for name in names:
            evil = Authority.new(blue.folder, name)
            context = evil.issue("gauge", serial=serial)
            with registered(tenants, evil.anchor, proved=evil):
                for host in (None, HOSTS["blue"], "mq.example.org", "127.0.0.1"):
                    assert place(tenants, context, host, BLUE, "gauge") in (0, 403), host
                assert not mqtt(tenants, context, HOSTS["blue"])
                assert place(tenants, context, HOSTS["red"], BLUE, "gauge") == 403
                assert blue.is_well(tenants)

    return attempt


def _platforms(tenants: Tenants) -> None:
    """The authority of the operator's clients, with its key, and by its name with a key of red's own."""
    blue, folder = blue_of(tenants), tenants.data / "tls"
    tenants.place.ok("certificate", "issue", "card", "--directory", str(blue.folder))
    tenants.place.ok(
        *("create", "user", f"card-{next(_numbers)}", "--namespace", "team-a", "--space", "red"),
        *("--certificate", "card", "--send", "#"),
    )
    pem = blue.folder / "card.pem"
    pem.write_bytes((blue.folder / "card.crt").read_bytes() + (blue.folder / "card.key").read_bytes())
    platform = Authority.read(blue.folder, folder / "authority" / "ca.crt")
    own = Authority.new(blue.folder, name_of(platform.certificate.subject))
    subject = platform.certificate.subject.rfc4514_string()

    def comes_in() -> bool:
        return all(amqp(tenants, pem, name, "red.team-a") for name in ("red.team-a", "localhost"))

    assert comes_in()
    for given, proved in ((anchor(platform, subject.lower().replace("cn=", "CN=").replace("o=", "O=")), None),
                          (anchor(platform, "CN=x"), None), (own.anchor, own)):  # fmt: skip
        with registered(tenants, given, proved=proved):
            assert comes_in()


def _elsewhere(tenants: Tenants) -> None:
    """The host for TLS, that of AMQP, and the realm of a user name, of which one is another's."""
    blue = blue_of(tenants)
    device = blue.registered.pem("gauge")
    assert amqp(tenants, device, HOSTS["blue"], HOSTS["blue"])
    assert amqp(tenants, device, "localhost", HOSTS["blue"])
    assert not amqp(tenants, device, "localhost", HOSTS["red"])
    assert not amqp(tenants, device, HOSTS["blue"], HOSTS["red"])
    assert not amqp(tenants, device, HOSTS["red"], HOSTS["blue"])
    for realm, is_welcome in ((BLUE, True), (RED, False), ("nobody.here", False)):
        user = f"gauge@{realm}".encode()
        body = b"\x00\x04MQTT\x04\x82\x00\x3c\x00\x02me" + len(user).to_bytes(2, "big") + user
        assert mqtt(tenants, blue.devices["root"], None, b"\x10" + bytes([len(body)]) + body) == is_welcome, realm


def _resumed(tenants: Tenants) -> None:
    """A session of TLS that began at red's host, or by an authority that is gone meanwhile."""
    blue = blue_of(tenants)
    evil = Authority.new(blue.folder, "red passing")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = evil.issue("gauge")
        context.maximum_version = version
        head = f"PUT /event/{BLUE}/gauge HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n".encode()

        def resumed(host: str | None, session: Any, context: ssl.SSLContext = context, head: bytes = head) -> int:
            with _open(tenants, "https", context, host, session=session) as sock:
                sock.sendall(head)
                return int(sock.recv(4096).split()[1])

        with registered(tenants, evil.anchor), _open(tenants, "https", context, HOSTS["red"]) as sock:
            sock.sendall(head)
            assert sock.recv(4096).split()[1] == b"403"
            session = sock.session
            assert session is not None
            assert not session.has_ticket
            for host in (HOSTS["blue"], None):
                with suppress(OSError):
                    assert resumed(host, session) in (401, 403)

        def is_over(session: Any = session, resumed: Callable[[str | None, Any], int] = resumed) -> bool:
            try:
                return resumed(HOSTS["red"], session) == 401
            except OSError:
                return True

        # The node hears of it a moment after the registry's answer.
        until(is_over, "the session goes on after its authority is gone")


def _squatted(tenants: Tenants) -> None:
    """An alias that is the first label of blue's host, or of everybody's."""
    blue = blue_of(tenants)
    path = f"/registry/v1/tenants/{RED}"
    for alias in ("blue", "mq", "localhost", "default"):
        with registered(tenants, blue.unregistered.anchor), tenants.http("red") as http:
            document = http.get(path).json()
            assert http.put(path, json=document | {"alias": alias}).status_code == 204
            forbidden(http.post(f"{path}/alias"))
            assert blue.is_well(tenants)
    # Where an operator has granted it, a host that is a space's stays that space's.
    with tenants.http("red") as http:
        document = http.get(path).json()
        http.put(path, json=document | {"alias": "blue"}).raise_for_status()
        try:
            tenants.place.ok("iot", "tenant", "grant-alias", RED)
            with registered(tenants, blue.unregistered.anchor) as own:
                context = own.issue("gauge")
                until(lambda: place(tenants, context, "blue.example.org", RED, "none") == 404)
                assert blue.is_well(tenants)
        finally:
            http.put(path, json={key: value for key, value in document.items() if key != "alias"})


def _proved_for_another(tenants: Tenants) -> None:
    blue = blue_of(tenants)
    with tenants.http("red") as http:
        path = f"/registry/v1/tenants/{BLUE}/authorities"
        forbidden(http.get(path), 404)
        for what in ("nonce", "proof", "vouch"):
            forbidden(http.post(f"{path}/x/{what}", json={}), 404)
    with registered(tenants, blue.unregistered.anchor), tenants.http("red") as http:
        path = f"/registry/v1/tenants/{RED}/authorities"
        [found] = [one for one in http.get(path).json()["authorities"] if one["key"] == blue.unregistered.key_digest]
        nonce = http.post(f"{path}/{found['id']}/nonce").json()["nonce"]
        own = Authority.new(blue.folder, "x")
        given = {"nonce": nonce, "signature": b64encode(sign(own.key, nonce)).decode()}
        forbidden(http.post(f"{path}/{found['id']}/proof", json=given), 400)
        forbidden(http.post(f"{path}/{found['id']}/vouch"))
        assert not next(one for one in http.get(path).json()["authorities"] if one["id"] == found["id"])["counts"]
    # Blue's proved keys are refused at once.
    with tenants.http("red") as http:
        document = http.get(f"/registry/v1/tenants/{RED}").json()
        trusted = {"trusted-ca": [blue.root.anchor]}
        answer = http.put(f"/registry/v1/tenants/{RED}", json=document | trusted)
        assert answer.status_code == 409


def _all() -> Iterator[Way]:
    yield Way(f"register blue's authority before blue, in {len(SPELLINGS)} spellings", _written_first)
    yield Way("prove an authority that is called as blue's, in as many spellings", _named_alike)
    yield Way("register an intermediate authority of blue's that blue has not registered", _unregistered)
    yield Way("prove an authority that is called as blue's intermediate", _named_as_registered)
    yield Way("sign blue's intermediate authority with one's own", _cross_signed)
    yield Way("register the platform's own authority, or one that is called so", _platforms)
    yield Way(
        "forge blue's device by an authority that is called as blue's",
        _forged(None, "Blue Root, Inc.", "blue root, inc."),
    )
    yield Way("forge blue's device with its issuer and its serial number", _forged(4711, "Blue Root, Inc."))
    yield Way("be blue's device at red's host, or with red's name", _elsewhere)
    yield Way("resume a session of TLS as blue's device", _resumed)
    yield Way("have the alias that is the first word of blue's host", _squatted)
    yield Way("prove blue's authority without its key", _proved_for_another)


WAYS = tuple(_all())
