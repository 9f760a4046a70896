"""The login of a device: by password, token or certificate, as the registry has its credentials.

Rules:
1. A refusal does not contain its reason; ``reason`` keeps it for the log.
2. What is not known now is no refusal: the device is told to try again.
3. A token is a JSON web token that is signed with a key which is registered for the device as ``rpk``.
4. A refused password costs what the costliest one of the tenant's devices costs, whatever it is refused for: an
   unknown or disabled device or tenant, a cheaper hash. What is missing is done with hashes that are made up, in the
   same queue. A refused token has been held against one key at least. So time does not tell which devices there are.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from enmasse.identity.password_checks import DigestCheck
from enmasse.identity.passwords import Checked, Postponed
from enmasse.identity.users import User
from enmasse.node.devices.directory import UNAVAILABLE, Found
from enmasse.node.devices.proofs import CERTIFICATE, KEY, PASSWORD, Proof, material_of, valid_secrets
from enmasse.node.devices.proofs import Login as Credentials
from enmasse.pending import Pending
from enmasse.wire.sasl.mechanisms import SaslCode, Verdict

if TYPE_CHECKING:
    from enmasse.identity.passwords import PasswordClient, Passwords
    from enmasse.node.devices.authorities import Presented
    from enmasse.node.devices.directory import Directory
    from enmasse.node.devices.tenants import Device, Document, Tenant
    from enmasse.wire.peer_header import PeerDevice


Ask = Callable[[dict[str, Any], Callable[[dict[str, Any] | None], None]], bool]

AUDIENCE: Final = "hono-adapter"

MAX_PASSWORD_BYTES: Final = 1_024
MAX_BCRYPT_BYTES: Final = 72
MAX_COST: Final = (1 << 15) - 1
"""Rounds of bcrypt that are spent on a wrong password at most, where a device has many secrets: two seconds."""

MAX_TOKEN_S: Final = 24 * 3_600 + 600
"""The longest time between a token's issue and its end."""

LEEWAY_S: Final = 10 * 60
"""By how much the clock of a device may differ, as in Hono."""

_ALGORITHMS: Final = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "EC": ["ES256", "ES384", "ES512"],
    "EdDSA": ["EdDSA"],
}


class DeviceLogin:
    """One login of a device.

    Args:
        directory: knows the devices.
        passwords: checks and caches passwords.
        tenant: the tenant of the device; None: there is none.
        realm: the tenant as the device names it.
        client: the one who logs in, for a password that has to wait.
        wall: returns seconds since 1970 UTC.
        ask: asks the control process, as the directory does.

    Attributes:
        user: with its permissions, once it is authenticated.
        device: the device that it is, then.
        proof: by which it has proved that.
        named: the name that it gave.
        reason: the reason of a refusal.
        guess: a hash of the proof that was sent, valid in this process alone.
    """

    def __init__(
        self,
        directory: Directory,
        passwords: Passwords,
        tenant: Tenant | None,
        realm: str,
        *,
        client: PasswordClient,
        wall: Callable[[], float],
        ask: Ask,
    ) -> None:
        self.user: User | None = None
        self.device: Device | None = None
        self.proof: Proof | None = None
        self.named = ""
        self.reason = ""
        self.guess = 0
        self._directory = directory
        self._passwords = passwords
        self._tenant = tenant
        self._realm = realm
        self._client = client
        self._wall = wall
        self._ask = ask
        self._new: Presented | None = None
        """A certificate whose device is registered if it is not known."""
        self._proof = b""
        """The password."""
        self._cost = 0
        """Rounds of bcrypt that its checks have taken, as far as the password was wrong."""
        self._is_wrong = False
        """True once the password was held against something, and was wrong."""

    def password(self, auth_id: str, password: str) -> Verdict:
        """Authenticate by a password."""
        self.guess = hash((auth_id, password))
        proof = password.encode("utf-8", "surrogatepass")
        if len(proof) > MAX_PASSWORD_BYTES:
            return self._refuse("the password is too long")
        self._proof = proof
        return self._find(PASSWORD, auth_id, lambda found: self._try(found, auth_id, password), self._spend)

    def token(self, auth_id: str, token: str) -> Verdict:
        """Authenticate by a token."""
        self.guess = hash((auth_id, token))
        return self._find(
            KEY,
            auth_id,
            lambda found: self._read_token(found, auth_id, token),
            lambda: _hold_against_a_made_up_key(token),
        )

    def certificate(self, shown: Presented) -> Verdict:
        """Authenticate by a certificate that was verified."""
        self._new = shown if shown.is_new_welcome else None
        return self._find(CERTIFICATE, shown.auth_id, lambda found: self._take(found, shown), lambda: False)

    def asserted(self, said: PeerDevice) -> Verdict:
        """Take another node's word for what the device has proved, as far as it holds here."""
        return self._find(said.kind, said.auth_id, lambda found: self._match(found, said), lambda: False)

    def _match(self, login: Credentials, said: PeerDevice) -> bool:
        if login.device.id != said.device:
            return self._refuse("the credentials are another device's by now")
        for secret in valid_secrets(login.secrets, self._wall()):
            if material_of(said.kind, secret) == said.material:
                proof = Proof(said.kind, said.auth_id, login, secret, until=said.until, authority=said.authority)
                return self._admit(login, proof)
        return self._refuse(f"the {said.kind} of the device has changed")

    def _refuse(self, reason: str) -> bool:
        self.reason = self.reason or reason
        return False

    def _find(
        self, kind: str, auth_id: str, judge: Callable[[Credentials], Verdict], spend: Callable[[], Verdict]
    ) -> Verdict:
        """Find the credentials and judge the proof by them; ``spend`` costs what that would cost, and refuses."""
        tenant = self._tenant
        self.named = f"{auth_id}@{self._realm if tenant is None else tenant.id}"
        if tenant is None or not tenant.is_enabled:
            self._refuse("the tenant is disabled" if tenant is not None else "there is no such tenant")
            return spend()
        pending: Pending[Verdict] = Pending()

        def judged(login: Found) -> None:
            _settle(pending, self._judge(login, judge, spend))

        def found(login: Found) -> None:
            shown, self._new = self._new, None
            if login is None and shown is not None:
                self._register(tenant, shown, lambda: self._directory.find_login(tenant, kind, auth_id, judged))
            else:
                judged(login)

        self._directory.find_login(tenant, kind, auth_id, found)
        return pending if pending.answer is None else pending.answer[0]

    def _register(self, tenant: Tenant, shown: Presented, done: Callable[[], None]) -> None:
        """Have the device of a certificate registered, and look for it again."""

        def answered(answer: dict[str, Any] | None) -> None:
            if answer is None or answer.get("error"):
                self._refuse(f"it was not registered: {'nobody answers' if answer is None else answer['error']}")
            self._directory.forget_absent(tenant.id)
            done()

        question = {
            "what": "provision",
            "tenant": tenant.id,
            "device-id": shown.device_id,
            "auth-id": shown.auth_id,
            "is-gateway": shown.is_gateway,
        }
        if not self._ask(question, answered):
            answered(None)

    def _judge(self, login: Found, judge: Callable[[Credentials], Verdict], spend: Callable[[], Verdict]) -> Verdict:
        if login is UNAVAILABLE:
            self._refuse("the device registry cannot be asked now")
            return SaslCode.SYS_TEMP
        if login is None:
            self._refuse("no such credentials")
        elif not login.is_enabled:
            self._refuse("the credentials are disabled")
        elif not login.device.is_enabled:
            self._refuse("the device is disabled")
        else:
            return judge(login)
        return spend()

    def _take(self, login: Credentials, shown: Presented) -> bool:
        secret = next(iter(valid_secrets(login.secrets, self._wall())), None)
        if secret is None:
            return self._refuse("no secret is valid now")
        proof = Proof(CERTIFICATE, shown.auth_id, login, secret, until=shown.ends_at, authority=shown.authority)
        return self._admit(login, proof)

    def _admit(self, login: Credentials, proof: Proof) -> bool:
        self.device, self.proof = login.device, proof
        tenant = login.device.tenant
        self.user = User(f"{proof.auth_id}@{tenant.id}", tenant.space, tenant.permissions)
        self.reason = ""
        return True

    # Passwords

    def _try(self, login: Credentials, auth_id: str, password: str) -> Verdict:
        """Try the secrets that are valid now, one after another."""
        checks = [(secret, _check_of(secret, self._proof)) for secret in valid_secrets(login.secrets, self._wall())]
        return self._try_next(
            login, auth_id, password, [(secret, check) for secret, check in checks if check is not None]
        )

    def _try_next(
        self, login: Credentials, auth_id: str, password: str, checks: list[tuple[Document, DigestCheck]]
    ) -> Verdict:
        if not checks:
            self._refuse("wrong password")
            return self._spend()
        (secret, check), *others = checks
        tenant = login.device.tenant

        def decide(found: Checked) -> Verdict:
            if isinstance(found, Postponed):
                self._refuse(found.value)
                return SaslCode.SYS_TEMP
            if found:
                return self._admit(login, Proof(PASSWORD, auth_id, login, secret))
            self._cost += _cost_of(check)
            self._is_wrong = True
            return self._try_next(login, auth_id, password, others)

        # With the tenant: equal hashes of two tenants are two secrets.
        stored = f"{tenant.id}\0{auth_id}\0{check.function}\0".encode() + check.salt + check.stored
        return _after(self._passwords.check_stored(check, stored, password, tenant.space, self._client), decide)

    def _spend(self) -> Verdict:
        """Refuse the password, once as much was spent on it as on any other of the tenant."""
        tenant = self._tenant
        cost = self._directory.made_up_cost(self._realm) if tenant is None else tenant.password_cost
        checks = _made_up_checks(min(cost, MAX_COST) - self._cost, self._proof)
        if not checks and not self._is_wrong:
            checks = [DigestCheck("sha-256", self._proof, b"", b"")]  # so that it waits for its turn
        return self._spend_next("" if tenant is None else tenant.space, checks)

    def _spend_next(self, owner: str, checks: list[DigestCheck]) -> Verdict:
        if not checks:
            return False
        check, *others = checks

        def decide(found: Checked) -> Verdict:
            if isinstance(found, Postponed) and not self._is_wrong:
                self.reason = found.value
                return SaslCode.SYS_TEMP  # as of a password that may be right
            self._is_wrong = True
            return self._spend_next(owner, others)

        return _after(self._passwords.pretend(check, owner, self._client), decide)

    # Tokens

    def _read_token(self, login: Credentials, auth_id: str, token: str) -> bool:
        is_held = False
        for secret in valid_secrets(login.secrets, self._wall()):
            try:
                claims = _claims_of(token, secret)
            except jwt.InvalidSignatureError:
                is_held = True
                continue
            except (jwt.PyJWTError, ValueError, binascii.Error):
                continue
            problem = self._problem_of(claims, auth_id)
            if problem:
                return self._refuse(problem)
            return self._admit(login, Proof(KEY, auth_id, login, secret, until=claims["exp"] + LEEWAY_S))
        if not is_held:
            _hold_against_a_made_up_key(token)
        return self._refuse("the token was not signed with a key of the device that is valid now")

    def _problem_of(self, claims: dict[str, Any], auth_id: str) -> str:
        """Return what is wrong with a token whose signature is right; empty: nothing."""
        now = self._wall()
        issued, end = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int | float) or not isinstance(end, int | float):
            return "the token does not say when it was issued, and when it ends"
        if not issued - LEEWAY_S <= now <= end + LEEWAY_S:
            return "the token is not valid now"
        if end - issued > MAX_TOKEN_S:
            return "the token is valid for more than a day"
        if "tid" in claims or "aud" in claims:
            if claims.get("aud") != AUDIENCE:
                return f"the token is for another audience than {AUDIENCE}"
            tenant = self._directory.tenant(str(claims.get("tid")))
            if tenant is not self._tenant or claims.get("sub") != auth_id:
                return "the token is another device's"
        return ""


_READ: Final[Any] = {"verify_aud": False, "verify_exp": False, "verify_iat": False, "verify_nbf": False}


def _claims_of(token: str, secret: Document) -> dict[str, Any]:
    """Return the claims of a token that is signed with a key.

    Raises:
        PyJWTError, ValueError: it is not, or the key is for another algorithm.
    """
    key: Any = load_der_public_key(b64decode(secret["key"]))
    algorithms = _ALGORITHMS.get(str(secret.get("algorithm")), [])
    claims: dict[str, Any] = jwt.decode(token, key, algorithms=algorithms, options=_READ)
    return claims


def _algorithm_of(token: str) -> str:
    """Return the algorithm that a token says it is signed by; empty: it is no token."""
    try:
        return str(jwt.get_unverified_header(token).get("alg"))
    except (jwt.PyJWTError, ValueError):
        return ""


def _hold_against_a_made_up_key(token: str) -> bool:
    """Verify a token as if there were a key for it, which takes as long; return false."""
    algorithm = _algorithm_of(token)
    key = _made_up_key(algorithm)
    if key is not None:
        with suppress(jwt.PyJWTError, ValueError):
            jwt.decode(token, key, algorithms=[algorithm], options=_READ)
    return False


_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}


@cache
def _made_up_key(algorithm: str) -> Any:
    """Return a public key that nobody has the private one of, for an algorithm; None: there is no such algorithm."""
    if algorithm in _CURVES:
        return ec.derive_private_key(_NOBODYS, _CURVES[algorithm]).public_key()
    if algorithm in _ALGORITHMS["RSA"]:
        return rsa.RSAPublicNumbers(65_537, _NOBODYS << 1_792 | 1 << 2_047 | 1).public_key()
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.from_private_bytes(_NOBODYS.to_bytes(32, "big")).public_key()
    return None


_NOBODYS: Final = secrets.randbits(255)
"""The secret of keys that are made up; not known outside of this process, and so nobody signs with them."""


def _after(found: Checked | Pending[Checked], decide: Callable[[Checked], Verdict]) -> Verdict:
    """Return the verdict on a check, which may come later."""
    return found.chain(decide) if isinstance(found, Pending) else decide(found)


def _settle(pending: Pending[Verdict], verdict: Verdict) -> None:
    """Settle with a verdict once it is known, too."""
    if isinstance(verdict, Pending):
        verdict.then(pending.settle)
    else:
        pending.settle(verdict)


def token_names(token: str) -> tuple[str, str] | None:
    """Return tenant and auth-id that a token claims; None: it claims none. Nothing of it is verified."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError):
        return None
    tenant, auth_id = claims.get("tid"), claims.get("sub")
    if claims.get("aud") != AUDIENCE or not isinstance(tenant, str) or not isinstance(auth_id, str):
        return None
    return tenant, auth_id


def _check_of(secret: Document, password: bytes) -> DigestCheck | None:
    function, stored = secret.get("hash-function"), str(secret.get("pwd-hash"))
    if function == "bcrypt":
        # Of a longer password bcrypt sees the beginning alone, and so would take others for it.
        is_seen = len(password) <= MAX_BCRYPT_BYTES
        return DigestCheck(function, password, b"", stored.encode()) if is_seen else None
    try:
        return DigestCheck(str(function), password, b64decode(secret.get("salt") or ""), b64decode(stored))
    except (ValueError, binascii.Error):
        return None


def _cost_of(check: DigestCheck) -> int:
    """Return what a check costs, in rounds of bcrypt."""
    return 1 << int(check.stored[4:6]) if check.function == "bcrypt" else 0


def _made_up_checks(cost: int, password: bytes) -> list[DigestCheck]:
    """Return checks that cost so many rounds of bcrypt together; less than its least are left out."""
    costs = (
        [exponent for exponent in range(MAX_COST.bit_length() - 1, 3, -1) if cost >> exponent & 1] if cost > 0 else []
    )
    password = password.replace(b"\0", b" ")[:MAX_BCRYPT_BYTES]
    return [DigestCheck("bcrypt", password, b"", b"$2b$%02d$" % each + b"." * 53) for each in costs]
