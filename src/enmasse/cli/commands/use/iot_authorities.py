"""``enmasse iot ca``: the authorities of a tenant's devices, and proofs that the tenant has their keys."""

from __future__ import annotations

import getpass
import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.passwords import PASSWORD

if TYPE_CHECKING:
    Document = dict[str, Any]

ca = typer.Typer(no_args_is_help=True, help="The authorities of a tenant's devices.")

TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="NAMESPACE.NAME, such as default.plant.")]
AuthorityId = Annotated[
    str | None, typer.Argument(metavar="[AUTHORITY]", help="Its id; left out: the only one, or that of the key.")
]


@ca.command("list")
def list_authorities(
    tenant: TenantId, output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA
) -> None:
    """List the authorities of a tenant, and where they count."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        found = _authorities(api, tenant)
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, found)
    elif not found:
        writer.note("there are no authorities")
    else:
        rows = [[one["id"], one["subject-dn"], one.get("proof", "-"), _where(one), one["not-after"]] for one in found]
        writer.out.print(make_table(["ID", "SUBJECT", "PROOF", "COUNTS", "ENDS"], rows))


@ca.command("prove")
def prove(
    tenant: TenantId,
    authority: AuthorityId = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Its private key, PEM, which does not leave this machine."),
    ] = None,
    nonce: Annotated[
        Path | None, typer.Option("--nonce", metavar="FILE", help="The nonce that was signed elsewhere.")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option("--signature", metavar="FILE", help="Its signature, in bytes or in base64.")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Prove that a tenant has the key of an authority, so that it counts where a device names no tenant.

    With --key a nonce is fetched and signed here. Without, it is printed:
    sign it elsewhere, every byte of it, such as by `openssl dgst -sha256
    -sign ca.key`, and come back with --nonce and --signature. Of an
    encrypted key the password is asked for, or is in ENMASSE_PASSWORD.
    """
    if (nonce is None) != (signature is None) or (key is not None and nonce is not None):
        raise UsageError("give --key, or --nonce with --signature, or none of them for a nonce")
    writer = Writer()
    private = None if key is None else _private_key(key)
    with ApiClient.find(data, warn=writer.warn) as api:
        known = _authorities(api, tenant)
        if authority is None and private is not None:
            known = [one for one in known if one.get("key") == _digest_of(private)]
        found = _one(known, authority)
        path = f"/registry/v1/tenants/{tenant}/authorities/{found['id']}"
        if nonce is not None and signature is not None:
            text, signed = _read(nonce).decode("utf-8", "replace"), _signature(_read(signature))
        else:
            answer, _ = api.exchange("POST", f"{path}/nonce")
            text = answer["nonce"]
            if private is None:
                writer.say(text.removesuffix("\n"))
                how = f"enmasse iot ca prove {tenant} {found['id']} --nonce FILE --signature FILE"
                writer.note(f"sign this by {answer['ends']}, then: {how}")
                return
            signed = _signed(private, text)
        given = {"nonce": text, "signature": b64encode(signed).decode()}
        api.exchange("POST", f"{path}/proof", json=given)
    writer.say(f"{found['subject-dn']} is proved to be of tenant {tenant}")


@ca.command("vouch")
def vouch(tenant: TenantId, authority: AuthorityId = None, data: Data = DEFAULT_DATA) -> None:
    """Vouch, as an operator, that a tenant has the key of an authority."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        found = _one(_authorities(api, tenant), authority)
        api.exchange("POST", f"/registry/v1/tenants/{tenant}/authorities/{found['id']}/vouch")
    writer.say(f"{found['subject-dn']} counts as proved to be of tenant {tenant}")


def _authorities(api: ApiClient, tenant: str) -> list[Document]:
    answer, _ = api.exchange("GET", f"/registry/v1/tenants/{tenant}/authorities")
    found: list[Document] = answer["authorities"]
    return found


def _one(found: list[Document], authority: str | None) -> Document:
    """Return the authority that is meant."""
    if authority is None and len(found) != 1:
        some = ", ".join(one["id"] for one in found) or "there is none of this key in trusted-ca of the tenant"
        raise UsageError(f"name the authority by its id: {some}")
    for one in found:
        if authority in (None, one["id"]):
            return one
    raise NotFoundError(f"the tenant has no authority {authority}; `enmasse iot ca list` shows those that it has")


def _where(one: Document) -> str:
    if "key" not in one:
        return "nowhere"  # it cannot be used
    return "everywhere" if one["counts"] else "with SNI"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from None


def _signature(found: bytes) -> bytes:
    try:
        return b64decode(found, validate=True) if found.isascii() else found
    except ValueError:
        return found


def _private_key(path: Path) -> Any:
    # What reads keys takes time to load, and other commands need none.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    text = _read(path)
    try:
        try:
            return load_pem_private_key(text, None)
        except TypeError:  # it is encrypted
            password = os.environ.get(PASSWORD) or getpass.getpass(f"Password of {path}: ")
            return load_pem_private_key(text, password.encode())
    except (ValueError, TypeError):
        raise UsageError(f"{path}: expected a private key in PEM, and its password") from None


def _digest_of(private: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415  as above

    from enmasse.identity.authorities import key_digest  # noqa: PLC0415

    return key_digest(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _signed(private: Any, nonce: str) -> bytes:
    from enmasse.iot.possession import sign  # noqa: PLC0415  as above

    try:
        return sign(private, nonce)
    except ValueError as error:
        raise UsageError(str(error)) from None
