"""``enmasse control``: the control process alone."""

from __future__ import annotations

import gc
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.errors import UsageError
from enmasse.cli.node_options import HTTP_NAME, PROXY_FROM, WEB_ORIGIN, names_of
from enmasse.cli.options import DEFAULT_DATA, Data, LogFormat, LogFormatChoice
from enmasse.drivers.data_directory import DEFAULT_NODE
from enmasse.drivers.supervisor.child import die_with_parent
from enmasse.drivers.supervisor.ports import API_PORT, API_TLS_PORT
from enmasse.errors import ConfigError
from enmasse.identity.oidc_settings import OidcSettings, read_settings
from enmasse.net.egress import PROXIES, WEBHOOKS, networks_of


class AuthChoice(StrEnum):
    """The ways in which the API authenticates its users."""

    TOKEN = "token"  # noqa: S105  # its name, and none itself
    OPEN = "open"
    REQUIRED = "required"


ApiAuth = Annotated[
    AuthChoice,
    typer.Option(
        "--api-auth",
        help="token: for whoever may read the data directory, and for accounts; required: accounts, from other "
        "machines too; open: whoever reaches the API on loopback may do everything.",
    ),
]
ApiName = Annotated[
    list[str] | None,
    typer.Option("--api-name", metavar="HOST", help="A name of this machine, for the API's certificate; repeatable."),
]
WebOrigin = Annotated[list[str] | None, WEB_ORIGIN.for_typer]
HttpName = Annotated[list[str] | None, HTTP_NAME.for_typer]
ProxyFrom = Annotated[list[str] | None, PROXY_FROM.for_typer]
ApiCertificate = Annotated[
    Path | None,
    typer.Option("--api-cert", metavar="FILE", help="A certificate of your own for the API (PEM, with its chain)."),
]


class AuditChoice(StrEnum):
    """The levels of the audit log."""

    OFF = "off"
    WRITES = "writes"
    ALL = "all"


AuditFile = Annotated[
    Path | None,
    typer.Option("--audit-log", metavar="FILE", help="Where to write down who did what; by default DIR/audit.log."),
]
AuditDepth = Annotated[
    AuditChoice,
    typer.Option(
        "--audit-level", help="writes: what changes something or was refused; all: reads too; off: nothing."
    ),
]
ApiKey = Annotated[Path | None, typer.Option("--api-key", metavar="FILE", help="Its key (PEM).")]


OidcIssuer = Annotated[
    str | None,
    typer.Option("--api-oidc-issuer", metavar="URL", help="An OpenID provider whose tokens the API takes."),
]
OidcAudience = Annotated[
    str | None, typer.Option("--api-oidc-audience", metavar="NAME", help="For whom these tokens must be.")
]
OidcGroups = Annotated[
    str, typer.Option("--api-oidc-groups-claim", metavar="CLAIM", help="Where such a token holds groups.")
]
OidcClient = Annotated[
    str | None,
    typer.Option(
        "--api-oidc-client", metavar="NAME", help="Our client there, in whose name browsers log in to the console."
    ),
]
OidcSecret = Annotated[
    Path | None,
    typer.Option("--api-oidc-client-secret", metavar="FILE", help="Its secret, unless it is a public client."),
]
OidcCa = Annotated[
    Path | None, typer.Option("--api-oidc-ca", metavar="FILE", help="Who vouches for the provider (PEM).")
]
MAX_SESSION_S = 365 * 86_400

SessionIdle = Annotated[
    int | None,
    typer.Option(
        "--api-session-idle",
        metavar="SECONDS",
        min=1,
        max=MAX_SESSION_S,
        help="A browser's session ends after so long without a request; by default 12 hours, and one hour where "
        "other machines are served.",
    ),
]
SessionLife = Annotated[
    int | None,
    typer.Option(
        "--api-session-life",
        metavar="SECONDS",
        min=1,
        max=MAX_SESSION_S,
        help="It ends after so long in any case; by default 7 days, and 12 hours where other machines are served.",
    ),
]
WebhookNetwork = Annotated[
    list[str] | None,
    typer.Option(
        WEBHOOKS,
        metavar="CIDR",
        help="Webhooks may post there, and providers of identities that spaces choose may be there, although it is "
        "not public, as 10.1.0.0/16; repeatable.",
    ),
]
Domain = Annotated[
    str, typer.Option("--domain", metavar="DOMAIN", help="Spaces have hosts below it: SPACE.NAMESPACE.DOMAIN.")
]
WildcardCertificate = Annotated[
    Path | None,
    typer.Option(
        "--wildcard-cert", metavar="FILE", help="A certificate that endpoints with provider `wildcard` show (PEM)."
    ),
]
WildcardKey = Annotated[Path | None, typer.Option("--wildcard-key", metavar="FILE", help="Its key (PEM).")]

DEFAULT_DOMAIN = "enmasse.local"


def oidc_settings(
    issuer: str | None,
    audience: str | None,
    groups: str,
    ca: Path | None,
    client: str | None = None,
    secret: Path | None = None,
) -> OidcSettings | None:
    """Return what is agreed with a provider for the API; None when none is named.

    Raises:
        ConfigError: when something is missing, or cannot be.
    """
    if issuer is None:
        if any(option is not None for option in (audience, ca, client, secret)):
            raise ConfigError(
                "--api-oidc-audience, --api-oidc-client, --api-oidc-client-secret and --api-oidc-ca are about "
                "--api-oidc-issuer, which is missing"
            )
        return None
    fields: dict[str, object] = {"issuer": issuer, "audience": [audience] if audience else [], "groupsClaim": groups}
    if secret is not None and client is None:
        raise ConfigError("--api-oidc-client-secret is that of --api-oidc-client, which is missing")
    if client is not None:
        fields["clientId"] = client
    if secret is not None:
        try:
            fields["clientSecret"] = secret.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{secret} cannot be read as a secret: {type(error).__name__}") from None
    if ca is not None:
        try:
            fields["caCert"] = ca.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{ca} cannot be read as a certificate: {error}") from None
    return read_settings("--api-oidc", fields)


def certificate_pair(certificate: Path | None, key: Path | None, options: str) -> tuple[Path, Path] | None:
    """Return two files that belong together; None when neither is given.

    Raises:
        ConfigError: when one of them is missing.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError(f"{options}: a certificate and its key belong together, give both")
    return certificate.absolute(), key.absolute()


def control(
    host: Annotated[str, typer.Option("--host", help="Loopback interface of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the API.")] = API_PORT,
    api_auth: ApiAuth = AuthChoice.TOKEN,
    tls_host: Annotated[
        str | None, typer.Option("--tls-host", metavar="HOST", help="Interface of the API with TLS; none without.")
    ] = None,
    tls_port: Annotated[int, typer.Option("--tls-port", min=0, max=65535, help="Its port.")] = API_TLS_PORT,
    web_origin: WebOrigin = None,
    http_name: HttpName = None,
    api_name: ApiName = None,
    api_cert: ApiCertificate = None,
    api_key: ApiKey = None,
    api_oidc_issuer: OidcIssuer = None,
    api_oidc_audience: OidcAudience = None,
    api_oidc_groups_claim: OidcGroups = "groups",
    api_oidc_ca: OidcCa = None,
    api_oidc_client: OidcClient = None,
    api_oidc_client_secret: OidcSecret = None,
    api_session_idle: SessionIdle = None,
    api_session_life: SessionLife = None,
    webhook_network: WebhookNetwork = None,
    proxy_from: ProxyFrom = None,
    domain: Domain = DEFAULT_DOMAIN,
    amqp_port: Annotated[
        int, typer.Option("--amqp-port", min=0, max=65535, help="The node's port, to be told to tenants; 0: unknown.")
    ] = 0,
    wildcard_cert: WildcardCertificate = None,
    wildcard_key: WildcardKey = None,
    audit_log: AuditFile = None,
    audit_level: AuditDepth = AuditChoice.WRITES,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help=f"A node to manage; repeatable. By default {DEFAULT_NODE}."),
    ] = None,
    node_url: Annotated[
        str | None,
        typer.Option("--node-url", metavar="URL", help="The one node's management; by default its socket in DIR."),
    ] = None,
    supervised: Annotated[
        bool, typer.Option("--supervised", help="Die with the supervisor that started it.")
    ] = False,
    log_format: LogFormat = LogFormatChoice.TEXT,
    data: Data = DEFAULT_DATA,
) -> None:
    """Run the control process alone: resource store, API and controllers, for its nodes."""
    gc.disable()  # what is loaded now stays: searching it for cycles again and again takes a tenth of a start
    from enmasse.api.listeners import ListenerSettings  # noqa: PLC0415  # slow; only needed here
    from enmasse.control.endpoints.controller import EndpointSettings  # noqa: PLC0415  # the same
    from enmasse.control_process.process import ControlSettings, run_control  # noqa: PLC0415  # the same
    from enmasse.drivers.supervisor.endpoints import machine_names  # noqa: PLC0415  # the same

    gc.freeze()
    gc.enable()
    if supervised:
        die_with_parent()
    nodes = node or [DEFAULT_NODE]
    if node_url is not None and len(nodes) > 1:
        raise UsageError("--node-url is of one node, and several are named: leave it out, or name one --node")
    listeners = ListenerSettings(
        host=host,
        port=port,
        auth=api_auth.value,
        tls_host=tls_host,
        tls_port=tls_port,
        names=tuple(api_name or ()),
        served_names=names_of(http_name),
        web_origins=tuple(web_origin or ()),
        proxy_from=networks_of(PROXIES, proxy_from or ()),
        oidc=oidc_settings(
            api_oidc_issuer,
            api_oidc_audience,
            api_oidc_groups_claim,
            api_oidc_ca,
            api_oidc_client,
            api_oidc_client_secret,
        ),
        certificate=certificate_pair(api_cert, api_key, "--api-cert, --api-key"),
        session_idle_s=api_session_idle,
        session_life_s=api_session_life,
    )
    settings = ControlSettings(
        data=data,
        networks=networks_of(WEBHOOKS, webhook_network or ()),
        listeners=listeners,
        nodes=dict.fromkeys(nodes, node_url),
        supervised=supervised,
        log_format=log_format.value,
        endpoints=EndpointSettings(
            domain.lower(),
            amqp_port,
            machine=machine_names((*(api_name or ()), *filter(None, (host, tls_host)))),
            # Without accounts, writers of spaces may write Namespaces as well.
            grants_all=api_auth != AuthChoice.REQUIRED,
            needs_bounds=api_auth == AuthChoice.REQUIRED,
        ),
        wildcard=certificate_pair(wildcard_cert, wildcard_key, "--wildcard-cert, --wildcard-key"),
        audit_file=audit_log,
        audit_level=audit_level.value,
    )
    raise typer.Exit(run_control(settings))
