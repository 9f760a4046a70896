"""The control process's links to nodes, and which of them has a space."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from enmasse.api.app import NodeAccess
from enmasse.api.metrics.nodes import Canary
from enmasse.drivers.embedded.device_admin import AmqpDeviceAdmin
from enmasse.drivers.embedded.message_admin import AmqpMessageAdmin
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin, node_tls
from enmasse.drivers.embedded.traces import AmqpTracer
from enmasse.drivers.embedded.user_admin import AmqpUserAdmin

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from enmasse.client import Connection
    from enmasse.control.context import Context
    from enmasse.control.webhooks.posting import Visit
    from enmasse.drivers.data_directory import Layout


class NodeLinks:
    """The links to one node: for its entities, its users and its devices, and what is asked over them.

    Args:
        name: the node's name.
        url: the url of its management; None: its socket in the data directory.
        layout: the layout of that directory.
        jitter: gives a factor around 1 for delays.
    """

    def __init__(self, name: str, url: str | None, layout: Layout, jitter: Callable[[], float]) -> None:
        self.name = name
        self.url = url or f"amqp+unix://{layout.admin_socket(name)}"
        tls = node_tls(layout) if self.url.startswith("amqps") else None
        self.admin = AmqpNodeAdmin(name, self.url, jitter=jitter, tls=tls)
        self.users = AmqpUserAdmin(name, self.url, jitter=jitter, tls=tls)
        self.devices = AmqpDeviceAdmin(name, self.url, jitter=jitter, tls=tls)
        self.canary = Canary(self.admin)

    def access(self) -> NodeAccess:
        """Return what the API does with the node."""
        return NodeAccess(
            messages=AmqpMessageAdmin(self.admin),
            figures=self.admin,
            sessions=self.admin,
            retained=self.admin,
            canary=self.canary,
            traces=AmqpTracer(self.admin),
            users=self.users,
            connectors=self.admin,
        )


def visitor(nodes: Iterable[NodeLinks], context: Context) -> Visit:
    """Return a function that connects to a space, at the node that has it."""
    admins = {node.name: node.admin for node in nodes}

    def visit(space: str) -> AbstractAsyncContextManager[Connection]:
        return admins[context.node_of(space).name].visit(space)

    return visit
