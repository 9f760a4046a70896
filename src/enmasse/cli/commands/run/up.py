"""``enmasse up``: the whole installation on this machine."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import operator_token
from enmasse.cli.commands.run.control import (
    DEFAULT_DOMAIN,
    ApiAuth,
    ApiCertificate,
    ApiKey,
    ApiName,
    AuditChoice,
    AuditDepth,
    AuditFile,
    AuthChoice,
    Domain,
    HttpName,
    OidcAudience,
    OidcCa,
    OidcClient,
    OidcGroups,
    OidcIssuer,
    OidcSecret,
    ProxyFrom,
    SessionIdle,
    SessionLife,
    WebhookNetwork,
    WebOrigin,
    WildcardCertificate,
    WildcardKey,
    certificate_pair,
    control,
    oidc_settings,
)
from enmasse.cli.node_options import (
    ALLOW_INSECURE_PLAIN,
    CONNECTOR_NETWORK,
    DRAIN_DELAY,
    HTTP_NAME,
    PROXY_CERTIFICATE_NAMES,
    PROXY_FROM,
    USERS,
    WEB_ORIGIN,
    names_of,
    written,
)
from enmasse.cli.options import DEFAULT_DATA, Data, LogFormat, LogFormatChoice, arguments_of
from enmasse.cli.output import Writer, make_table
from enmasse.drivers.supervisor.endpoints import is_loopback, require_loopback
from enmasse.drivers.supervisor.node_count import MAX_NODES
from enmasse.drivers.supervisor.supervisor import UpSettings, run_supervisor
from enmasse.errors import ConfigError
from enmasse.net.egress import PROXIES, WEBHOOKS, Reach, networks_of
from enmasse.node.protocols import further_protocols
from enmasse.node.users.users_file import load_users

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.drivers.supervisor.endpoints import Endpoints


class PortChoice(StrEnum):
    """The choice of ports to take."""

    CUSTOMARY = "customary"
    AUTO = "auto"


def _further_ports(given: Iterable[str]) -> dict[str, int]:
    """The ports of protocols beside AMQP.

    Raises:
        ConfigError: one is not written as it should be, or its protocol does not exist.
    """
    known = [row.name for row in further_protocols()]
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in known or not number.isdigit() or not 0 < int(number) < 1 << 16:
            expected = f"PROTOCOL is {' or '.join(known)}" if known else "no protocol beside AMQP is spoken"
            raise ConfigError(f"--port {text}: PROTOCOL=PORT is expected, with a port from 1 to 65535; {expected}")
        found[name] = int(number)
    return found


def _require_own_way(host: str, proxies: Iterable[str]) -> None:
    """Check that load balancers do not come from where this installation's own processes and commands come from.

    Raises:
        ConfigError: they do, or one of their networks is none.
    """
    own = ip_address("127.0.0.1" if host == "localhost" else host)
    for network in networks_of(PROXIES, proxies):
        if own.version == network.version and own in network:
            raise ConfigError(
                f"{PROXIES} {network}: what runs on this machine comes from {own}, too, and says nothing of clients; "
                "have the load balancer come from another address, such as 127.0.0.2 (in HAProxy: source 127.0.0.2)"
            )


def up(
    data: Data = DEFAULT_DATA,
    ports: Annotated[
        PortChoice, typer.Option("--ports", help="customary: 5672 and 8080; auto: any that are free.")
    ] = PortChoice.CUSTOMARY,
    amqp_port: Annotated[int | None, typer.Option("--amqp-port", min=1, max=65535, help="Port for AMQP.")] = None,
    api_port: Annotated[int | None, typer.Option("--api-port", min=1, max=65535, help="Port for the API.")] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="PROTOCOL=PORT",
            help="Port for a protocol beside AMQP; repeatable.",
            hidden=not further_protocols(),
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            max=MAX_NODES,
            help="So many nodes share the spaces, each with a core and a journal; left out: as many as last time.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Loopback interface to serve.")] = "127.0.0.1",
    api_auth: ApiAuth = AuthChoice.TOKEN,
    api_host: Annotated[
        str | None,
        typer.Option(
            "--api-host",
            metavar="HOST",
            help="Interface on which the API is served with TLS; others than loopback need accounts.",
        ),
    ] = None,
    api_tls_port: Annotated[
        int | None, typer.Option("--api-tls-port", min=1, max=65535, help="Port for the API with TLS; else 8443.")
    ] = None,
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
    domain: Domain = DEFAULT_DOMAIN,
    wildcard_cert: WildcardCertificate = None,
    wildcard_key: WildcardKey = None,
    audit_log: AuditFile = None,
    audit_level: AuditDepth = AuditChoice.WRITES,
    log_format: LogFormat = LogFormatChoice.TEXT,
    users: Annotated[Path | None, USERS.for_typer] = None,
    web_origin: WebOrigin = None,
    http_name: HttpName = None,
    connector_network: Annotated[list[str] | None, CONNECTOR_NETWORK.for_typer] = None,
    proxy_from: ProxyFrom = None,
    proxy_certificate_names: Annotated[bool, PROXY_CERTIFICATE_NAMES.for_typer] = False,
    drain_delay: Annotated[float, DRAIN_DELAY.for_typer] = 0.0,
    allow_insecure_plain: Annotated[bool, ALLOW_INSECURE_PLAIN.for_typer] = False,
    allow_python: Annotated[
        bool, typer.Option("--allow-python", help="Run Python of pipelines with --api-auth open, too.")
    ] = False,
    pipelines: Annotated[
        bool, typer.Option("--pipelines/--no-pipelines", help="Run pipelines, with Spark once there is one.")
    ] = True,
    pipelines_folder: Annotated[
        Path | None,
        typer.Option(
            "--pipelines-folder",
            metavar="DIR",
            help="Where tables, checkpoints and logs of pipelines are, as on a shared disk; else DATA/pipelines.",
        ),
    ] = None,
) -> None:
    """Start everything on this machine and keep it alive until Ctrl-C.

    A control process, one node or several and the host of pipelines, with all
    data below DIR. Processes that die are started again on the same ports.
    """
    writer = Writer()
    require_loopback(host)
    if drain_delay < 0:
        raise ConfigError(f"{DRAIN_DELAY.flag} {drain_delay:g}: seconds are expected, 0 or more")
    if users is not None:
        load_users(users)  # an error in it is better reported here than in a node's log

    def ready(endpoints: Endpoints) -> None:
        writer.out.print(make_table(["PROTOCOL", "URL"], [[item.protocol, item.url] for item in endpoints.endpoints]))
        if api_auth == AuthChoice.TOKEN and writer.out.file.isatty():  # else it would be kept in somebody's log
            link = f"{endpoints.url('api')}/login?token={operator_token(data)}"
            writer.say(f"The console, for your browser and nobody else's eyes: {link}")
        if api_auth != AuthChoice.REQUIRED:
            writer.warn(
                "in a space with authentication `none` every user of this machine may send and receive; one with "
                "`standard` lets in its users alone"
            )
        if api_auth == AuthChoice.OPEN:
            writer.warn(
                "the API is open: every user and program of this machine may do everything"
                + ("" if allow_python else "; Python of pipelines does not run without --allow-python")
            )
        writer.say(f"Everything runs, with its data in {data}. Ctrl-C stops it.")

    if api_auth == AuthChoice.TOKEN and api_host is not None and not is_loopback(api_host):
        api_auth = AuthChoice.REQUIRED
    # Tools keep tokens back where there is no TLS.
    tls_host = api_host or (host if api_auth != AuthChoice.OPEN or api_tls_port is not None else None)
    # Errors in these are better reported here than in control's log.
    networks_of(WEBHOOKS, webhook_network or ())
    names_of(http_name)
    Reach.of_connectors(connector_network or ())
    _require_own_way(host, proxy_from or ())
    certificate_pair(api_cert, api_key, "--api-cert, --api-key")
    certificate_pair(wildcard_cert, wildcard_key, "--wildcard-cert, --wildcard-key")
    oidc_settings(
        api_oidc_issuer,
        api_oidc_audience,
        api_oidc_groups_claim,
        api_oidc_ca,
        api_oidc_client,
        api_oidc_client_secret,
    )
    of_control = arguments_of(
        control,
        web_origin=web_origin,
        http_name=http_name,
        api_name=api_name,
        api_cert=api_cert,
        api_key=api_key,
        api_oidc_issuer=api_oidc_issuer,
        api_oidc_audience=api_oidc_audience,
        api_oidc_groups_claim=api_oidc_groups_claim,
        api_oidc_ca=api_oidc_ca,
        api_oidc_client=api_oidc_client,
        api_oidc_client_secret=api_oidc_client_secret,
        api_session_idle=api_session_idle,
        api_session_life=api_session_life,
        webhook_network=webhook_network,
        proxy_from=proxy_from,
        wildcard_cert=wildcard_cert,
        wildcard_key=wildcard_key,
        audit_log=audit_log,
        audit_level=audit_level,
    )
    of_node = [
        *written(USERS.flag, users),
        *written(WEB_ORIGIN.flag, web_origin),
        *written(HTTP_NAME.flag, http_name),
        *written(CONNECTOR_NETWORK.flag, connector_network),
        *written(PROXY_FROM.flag, proxy_from),
        *written(PROXY_CERTIFICATE_NAMES.flag, proxy_certificate_names),
        *written(ALLOW_INSECURE_PLAIN.flag, allow_insecure_plain),
        *written(DRAIN_DELAY.flag, drain_delay or None),
    ]
    settings = UpSettings(
        data=data,
        api_auth=api_auth.value,
        allow_python=allow_python,
        pipelines_folder=pipelines_folder,
        control_arguments=of_control,
        domain=domain.lower(),
        api_tls_host="127.0.0.1" if tls_host == "localhost" else tls_host,
        api_tls_port=api_tls_port,
        host="127.0.0.1" if host == "localhost" else host,
        automatic_ports=ports == PortChoice.AUTO,
        amqp_port=amqp_port,
        api_port=api_port,
        further_ports=_further_ports(port or ()),
        nodes=nodes,
        log_format=log_format.value,
        node_arguments=tuple(of_node),
        drain_delay_s=drain_delay,
        with_pipelines=pipelines,
    )
    raise typer.Exit(run_supervisor(settings, on_ready=ready, report=writer.note))
