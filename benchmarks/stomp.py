"""STOMP: what it costs to take a message from one connection and give it to another."""

from __future__ import annotations

from benchmarks.cases import Case

__all__ = ["CASES"]

CASES = (
    Case("1:1, 100 B, auto-ack", "anycast", settled=True, target=6.0, protocol="stomp"),
    Case("1:1, 100 B, client ack, receipts", "anycast", target=15.0, protocol="stomp", acks="client-individual"),
    Case("queue 1:1, 100 B, auto-ack", "queue", settled=True, protocol="stomp"),
    Case("queue 1:1, 100 B, client ack, receipts", "queue", protocol="stomp", acks="client-individual"),
)
