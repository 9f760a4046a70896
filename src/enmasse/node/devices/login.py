"""The login of a device: by password, token or certificate, as the registry has its credentials.

Rules:
1. A refusal does not contain its reason; ``reason`` keeps it for the log.
2. What is not known now is no refusal: the device is told to try again.
3. A token is a JSON web token that is signed with a key which is registered for the device as ``rpk``.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.serialization import load_der_public_key

from enmasse.identity.password_checks import DigestCheck
from enmasse.identity.passwords import Checked, Postponed
from enmasse.identity.users import User
from enmasse.node.devices.directory import UNAVAILABLE, Found
from enmasse.node.devices.proofs import CERTIFICATE, KEY, PASSWORD, Proof, valid_secrets
from enmasse.node.devices.proofs import Login as Credentials
from enmasse.wire.sasl.mechanisms import Pending, SaslCode, Verdict

if TYPE_CHECKING:
    from enmasse.identity.passwords import PasswordClient, Passwords
    from enmasse.node.devices.authorities import Presented
    from enmasse.node.devices.directory import Directory
    from enmasse.node.devices.tenants import Device, Document, Tenant


Ask = Callable[[dict[str, Any], Callable[[dict[str, Any] | None], None]], bool]

AUDIENCE: Final = "hono-adapter"

MOST_PASSWORD_BYTES: Final = 1_024
MOST_TOKEN_S: Final = 24 * 3_600 + 600
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
        tenant: of the device.
        client: who logs in, for a password that has to wait.
        wall: returns seconds since 1970 UTC.
        ask: asks the control process, as the directory does.

    Attributes:
        user: with its permissions, once it is authenticated.
        device: which it is, then.
        proof: by which it has proved that.
        named: the name that it gave.
        reason: of a refusal.
        guess: a hash of the proof that was sent, valid in this process alone.
    """

    def __init__(
        self,
        directory: Directory,
        passwords: Passwords,
        tenant: Tenant,
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
        self._client = client
        self._wall = wall
        self._ask = ask
        self._new: Presented | None = None
        """A certificate whose device is registered if it is not known."""

    def password(self, auth_id: str, password: str) -> Verdict:
        """Authenticate by a password."""
        self.guess = hash((auth_id, password))
        proof = password.encode("utf-8", "surrogatepass")
        if len(proof) > MOST_PASSWORD_BYTES:
            return self._refuse("the password is too long")
        return self._find(PASSWORD, auth_id, lambda found: self._try(found, auth_id, password, proof))

    def token(self, auth_id: str, token: str) -> Verdict:
        """Authenticate by a token."""
        self.guess = hash((auth_id, token))
        return self._find(KEY, auth_id, lambda found: self._read_token(found, auth_id, token))

    def certificate(self, shown: Presented) -> Verdict:
        """Authenticate by a certificate that was verified."""
        self._new = shown if shown.is_new_welcome else None
        return self._find(CERTIFICATE, shown.auth_id, lambda found: self._take(found, shown))

    def _refuse(self, reason: str) -> bool:
        self.reason = self.reason or reason
        return False

    def _find(self, kind: str, auth_id: str, judge: Callable[[Credentials], Verdict]) -> Verdict:
        self.named = f"{auth_id}@{self._tenant.id}"
        if not self._tenant.is_enabled:
            return self._refuse("the tenant is disabled")
        pending: Pending[Verdict] = Pending()

        def found(login: Found) -> None:
            shown, self._new = self._new, None
            if login is None and shown is not None:
                self._register(shown, lambda: self._directory.find_login(self._tenant, kind, auth_id, found))
            else:
                _settle(pending, self._judge(login, judge))

        self._directory.find_login(self._tenant, kind, auth_id, found)
        return pending if pending.answer is None else pending.answer[0]

    def _register(self, shown: Presented, done: Callable[[], None]) -> None:
        """Have the device of a certificate registered, and look for it again."""
        tenant = self._tenant

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

    def _judge(self, login: Found, judge: Callable[[Credentials], Verdict]) -> Verdict:
        if login is UNAVAILABLE:
            self._refuse("the device registry cannot be asked now")
            return SaslCode.SYS_TEMP
        if login is None:
            return self._refuse("no such credentials")
        if not login.is_enabled:
            return self._refuse("the credentials are disabled")
        if not login.device.is_enabled:
            return self._refuse("the device is disabled")
        return judge(login)

    def _take(self, login: Credentials, shown: Presented) -> bool:
        secret = next(iter(valid_secrets(login.secrets, self._wall())), None)
        if secret is None:
            return self._refuse("no secret is valid now")
        proof = Proof(CERTIFICATE, shown.auth_id, login, secret, until=shown.ends_at, authority=shown.authority)
        return self._admit(login, proof)

    def _admit(self, login: Credentials, proof: Proof) -> bool:
        self.device, self.proof = login.device, proof
        self.user = User(f"{proof.auth_id}@{self._tenant.id}", self._tenant.space, self._tenant.permissions)
        self.reason = ""
        return True

    # Passwords

    def _try(self, login: Credentials, auth_id: str, password: str, proof: bytes) -> Verdict:
        """Try the secrets that are valid now, one after another."""
        checks = [(secret, _check_of(secret, proof)) for secret in valid_secrets(login.secrets, self._wall())]
        return self._try_next(
            login, auth_id, password, [(secret, check) for secret, check in checks if check is not None]
        )

    def _try_next(
        self, login: Credentials, auth_id: str, password: str, checks: list[tuple[Document, DigestCheck]]
    ) -> Verdict:
        if not checks:
            return self._refuse("wrong password")
        (secret, check), *others = checks
        tenant = self._tenant

        def decide(found: Checked) -> Verdict:
            if isinstance(found, Postponed):
                self._refuse(found.value)
                return SaslCode.SYS_TEMP
            if found:
                return self._admit(login, Proof(PASSWORD, auth_id, login, secret))
            return self._try_next(login, auth_id, password, others)

        # With the tenant: equal hashes of two tenants are two secrets.
        stored = f"{tenant.id}\0{auth_id}\0{check.function}\0".encode() + check.salt + check.stored
        found = self._passwords.check_stored(check, stored, password, tenant.space, self._client)
        if not isinstance(found, Pending):
            return decide(found)
        verdict: Pending[Verdict] = Pending()

        found.then(lambda later: _settle(verdict, decide(later)))
        return verdict

    # Tokens

    def _read_token(self, login: Credentials, auth_id: str, token: str) -> bool:
        for secret in valid_secrets(login.secrets, self._wall()):
            algorithms = _ALGORITHMS.get(str(secret.get("algorithm")))
            if algorithms is None:
                continue
            try:
                claims = jwt.decode(
                    token,
                    load_der_public_key(b64decode(secret["key"])),  # type: ignore[arg-type]  # of the kinds that are registered
                    algorithms=algorithms,
                    options={"verify_aud": False, "verify_exp": False, "verify_iat": False, "verify_nbf": False},
                )
            except (jwt.InvalidTokenError, ValueError, binascii.Error):
                continue
            problem = self._problem_of(claims, auth_id)
            if problem:
                return self._refuse(problem)
            return self._admit(login, Proof(KEY, auth_id, login, secret, until=claims["exp"] + LEEWAY_S))
        return self._refuse("the token was not signed with a key of the device that is valid now")

    def _problem_of(self, claims: dict[str, Any], auth_id: str) -> str:
        """Return what is wrong with a token whose signature is right; empty: nothing."""
        now = self._wall()
        issued, end = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int | float) or not isinstance(end, int | float):
            return "the token does not say when it was issued, and when it ends"
        if not issued - LEEWAY_S <= now <= end + LEEWAY_S:
            return "the token is not valid now"
        if end - issued > MOST_TOKEN_S:
            return "the token is valid for more than a day"
        if "tid" in claims or "aud" in claims:
            if claims.get("aud") != AUDIENCE:
                return f"the token is for another audience than {AUDIENCE}"
            tenant = self._directory.tenant(str(claims.get("tid")))
            if tenant is not self._tenant or claims.get("sub") != auth_id:
                return "the token is another device's"
        return ""


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
    except (jwt.InvalidTokenError, ValueError):
        return None
    tenant, auth_id = claims.get("tid"), claims.get("sub")
    if claims.get("aud") != AUDIENCE or not isinstance(tenant, str) or not isinstance(auth_id, str):
        return None
    return tenant, auth_id


def _check_of(secret: Document, password: bytes) -> DigestCheck | None:
    function, stored = secret.get("hash-function"), str(secret.get("pwd-hash"))
    if function == "bcrypt":
        # Of a longer password bcrypt sees the beginning alone, and so would take others for it.
        return DigestCheck(function, password, b"", stored.encode()) if len(password) <= 72 else None
    try:
        return DigestCheck(str(function), password, b64decode(secret.get("salt") or ""), b64decode(stored))
    except (ValueError, binascii.Error):
        return None
