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
        fanout: receivers of each message, on one address.
        settled: whether messages are sent settled.
        durable: whether messages are marked durable.
        stores: whether nobody receives: the sender's acceptance is the end.
        rate: messages a second in all; 0 is as many as go.
        outstanding: messages that may be on their way; 0 leaves that to credit.
        target: CPU microseconds per message that we want to stay under; 0 is without one.
    """

    name: str
    kind: str
    size: int = 100
    pairs: int = 1
    fanout: int = 1
    settled: bool = False
    durable: bool = False
    stores: bool = False
    rate: int = 0
    outstanding: int = 0
    target: float = 0.0

    @property
    def address(self) -> str:
        """The address; ``%d`` stands for the number of the pair."""
        return f"{self.kind}.%d" if self.pairs > 1 else f"{self.kind}.0"

    @property
    def addresses(self) -> list[str]:
        """Every address of the case."""
        return [f"{self.kind}.{number}" for number in range(self.pairs)]

    def amqp(self, port: int, address: str, *more: str) -> tuple[str, ...]:
        """Arguments of ``amqp_load``."""
        arguments = ["--port", str(port), "--address", address, "--size", str(self.size), *more]
        if self.stores:
            arguments += ["--mode", "send"]
        if self.pairs > 1:
            arguments += ["--connections", str(self.pairs)]
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
