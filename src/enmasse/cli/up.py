"""``enmasse up``: the whole installation on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.control import (
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
    OidcAudience,
    OidcCa,
    OidcGroups,
    OidcIssuer,
    WildcardCertificate,
    WildcardKey,
    certificate_pair,
    oidc_settings,
)
from enmasse.cli.options import DEFAULT_DATA, Data, LogFormat, LogFormatChoice
from enmasse.cli.output import Writer, make_table
from enmasse.control.loopback import is_loopback, require_loopback
from enmasse.engines.supervisor.supervisor import UpSettings, run_supervisor
from enmasse.node.users import load_users

if TYPE_CHECKING:
    from enmasse.engines.supervisor.endpoints import Endpoints

__all__ = ["up"]


class PortChoice(StrEnum):
    """Which ports to take."""

    CUSTOMARY = "customary"
    AUTO = "auto"


def up(
    data: Data = DEFAULT_DATA,
    ports: Annotated[
        PortChoice, typer.Option("--ports", help="customary: 5672 and 8080; auto: any that are free.")
    ] = PortChoice.CUSTOMARY,
    amqp_port: Annotated[int | None, typer.Option("--amqp-port", min=1, max=65535, help="Port for AMQP.")] = None,
    api_port: Annotated[int | None, typer.Option("--api-port", min=1, max=65535, help="Port for the API.")] = None,
    host: Annotated[str, typer.Option("--host", help="Loopback interface to serve.")] = "127.0.0.1",
    api_auth: ApiAuth = AuthChoice.OPEN,
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
    domain: Domain = DEFAULT_DOMAIN,
    wildcard_cert: WildcardCertificate = None,
    wildcard_key: WildcardKey = None,
    audit_log: AuditFile = None,
    audit_level: AuditDepth = AuditChoice.WRITES,
    log_format: LogFormat = LogFormatChoice.TEXT,
    users: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="Users of spaces with authentication `standard`; made by `enmasse user add`.",
        ),
    ] = None,
    web_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--web-origin",
            metavar="ORIGIN",
            help="Where web pages may come from that open a WebSocket, besides here; repeatable; * is anywhere.",
        ),
    ] = None,
    allow_insecure_plain: Annotated[
        bool, typer.Option("--allow-insecure-plain", help="Let users send their passwords without TLS.")
    ] = False,
    pipelines: Annotated[
        bool, typer.Option("--pipelines/--no-pipelines", help="Run pipelines, with Spark once there is one.")
    ] = True,
) -> None:
    """Start everything on this machine and keep it alive until Ctrl-C.

    A control process, a node and the host of pipelines, with all data below
    DIR. Processes that die are started again on the same ports.
    """
    writer = Writer()
    require_loopback(host)
    if users is not None:
        load_users(users)  # what is wrong with it is better told here than in a node's log

    def ready(endpoints: Endpoints) -> None:
        writer.out.print(make_table(["PROTOCOL", "URL"], [[item.protocol, item.url] for item in endpoints.endpoints]))
        writer.say(f"Everything runs, with its data in {data}. Ctrl-C stops it.")

    # Tools keep tokens back where there is no TLS: whoever asks for accounts gets it too.
    is_required = api_auth == AuthChoice.REQUIRED or (api_host is not None and not is_loopback(api_host))
    tls_host = api_host or (host if is_required or api_tls_port is not None else None)
    arguments = ["--api-auth", "required"] if is_required else []
    for name in api_name or ():
        arguments += ["--api-name", name]
    if (pair := certificate_pair(api_cert, api_key, "--api-cert, --api-key")) is not None:
        arguments += ["--api-cert", str(pair[0]), "--api-key", str(pair[1])]
    arguments += ["--audit-level", audit_level.value]
    if audit_log is not None:
        arguments += ["--audit-log", str(audit_log.absolute())]
    if oidc_settings(api_oidc_issuer, api_oidc_audience, api_oidc_groups_claim, api_oidc_ca) is not None:
        arguments += ["--api-oidc-issuer", str(api_oidc_issuer), "--api-oidc-audience", str(api_oidc_audience)]
        arguments += ["--api-oidc-groups-claim", api_oidc_groups_claim]
        if api_oidc_ca is not None:
            arguments += ["--api-oidc-ca", str(api_oidc_ca.absolute())]
    if (pair := certificate_pair(wildcard_cert, wildcard_key, "--wildcard-cert, --wildcard-key")) is not None:
        arguments += ["--wildcard-cert", str(pair[0]), "--wildcard-key", str(pair[1])]
    settings = UpSettings(
        data=data,
        api_arguments=tuple(arguments),
        domain=domain.lower(),
        api_tls_host="127.0.0.1" if tls_host == "localhost" else tls_host,
        api_tls_port=api_tls_port,
        host="127.0.0.1" if host == "localhost" else host,
        automatic_ports=ports == PortChoice.AUTO,
        amqp_port=amqp_port,
        api_port=api_port,
        log_format=log_format.value,
        users=users,
        web_origins=tuple(web_origin or ()),
        allow_insecure_plain=allow_insecure_plain,
        with_pipelines=pipelines,
    )
    raise typer.Exit(run_supervisor(settings, on_ready=ready, tell=writer.note))
