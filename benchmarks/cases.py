"""What is measured: one kind of traffic through one kind of address."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One kind of traffic.

    Attributes:
        name: as tables show it.
        kind: the type of the address.
        size: bytes of each body.
        pairs: senders, each with a receiver and an address of its own.
        senders: senders on one address, where nobody receives.
        fanout: receivers of each message, on one address.
        subscriptions: whether each of these receivers has a durable subscription of its own.
        settled: whether messages are sent settled.
        durable: whether messages are marked durable.
        stores: whether nobody receives: the sender's acceptance is the end.
        rate: messages a second in all; 0 is as many as go.
        outstanding: messages that may be on their way; 0 leaves that to credit.
        target: CPU microseconds per message that we want to stay under; 0 is without one.
        target_p99_ms: milliseconds that 99 of 100 messages are to stay under; 0 is without one.
        target_of: the role whose share the target is for; empty is all of them together.
        protocol: what clients speak.
        acks: how STOMP's subscribers acknowledge.
        qos: of MQTT's messages and subscriptions.
    """

    name: str
    kind: str
    size: int = 100
    pairs: int = 1
    senders: int = 1
    fanout: int = 1
    subscriptions: bool = False
    settled: bool = False
    durable: bool = False
    stores: bool = False
    rate: int = 0
    outstanding: int = 0
    target: float = 0.0
    target_p99_ms: float = 0.0
    target_of: str = ""
    protocol: str = "amqp"
    acks: str = "auto"
    qos: int = 0

    @property
    def address(self) -> str:
        """The address; ``%d`` stands for the number of the pair."""
        return f"{self.kind}.%d" if self.pairs > 1 else self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """Every address of the case; what has durable subscriptions is no other case's."""
        if self.subscriptions:
            return [f"{self.kind}.subscribed"]
        return [f"{self.kind}.{number}" for number in range(self.pairs)]

    @property
    def subscribed(self) -> list[str]:
        """Every durable subscription of the case, to its only address."""
        return [f"subscription.{number}" for number in range(self.fanout)] if self.subscriptions else []

    def stomp(self, port: int, destination: str, *more: str) -> tuple[str, ...]:
        """Arguments of ``stomp_load``; what is not settled asks for receipts."""
        arguments = ["--port", str(port), "--dest", destination, "--size", str(self.size), "--ack", self.acks, *more]
        if not self.settled:
            arguments.append("--receipts")
        if self.durable:
            arguments.append("--durable")
        return tuple(arguments)

    def mqtt(self, port: int, *more: str) -> tuple[str, ...]:
        """Arguments of ``mqtt_load``."""
        arguments = ["--port", str(port), "--topic", self.address, "--size", str(self.size), "--qos", str(self.qos)]
        arguments += ["--connections", str(self.pairs)]
        if self.fanout > 1:
            arguments += ["--fanout", str(self.fanout)]
        if self.rate:
            arguments += ["--rate", str(self.rate)]
        elif self.outstanding:
            arguments += ["--max-outstanding", str(self.outstanding)]
        return (*arguments, *more)

    def amqp(self, port: int, address: str, *more: str) -> tuple[str, ...]:
        """Arguments of ``amqp_load``."""
        arguments = ["--port", str(port), "--address", address, "--size", str(self.size), *more]
        if self.stores:
            arguments += ["--mode", "send"]
        if self.pairs > 1:
            arguments += ["--connections", str(self.pairs)]
        if self.senders > 1:
            arguments += ["--senders", str(self.senders)]
        if self.fanout > 1:
            arguments += ["--receivers", str(self.fanout), "--multicast"]
        if self.settled:
            arguments.append("--settled")
        if self.durable:
            arguments.append("--durable")
        if self.rate:
            arguments += ["--rate", str(self.rate)]
        if self.outstanding and not self.stores:
            arguments += ["--max-outstanding", str(self.outstanding)]
        return tuple(arguments)
