"""Transactions: what a controller asks of a coordinator, and the states of what they are about [AMQP 4.5]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enmasse.wire.amqp.composites import ANY, BINARY, BOOLEAN, Performative, composite, field_of, register

__all__ = [
    "LOCAL_TRANSACTIONS",
    "MULTI_SESSIONS",
    "MULTI_TRANSACTIONS",
    "ROLLBACK",
    "TIMEOUT",
    "UNKNOWN_ID",
    "Declare",
    "Declared",
    "Discharge",
    "TransactionalState",
]

LOCAL_TRANSACTIONS = "amqp:local-transactions"
MULTI_TRANSACTIONS = "amqp:multi-txns-per-ssn"
MULTI_SESSIONS = "amqp:multi-ssns-per-txn"
"""What a coordinator is capable of [AMQP 4.5.7]."""

UNKNOWN_ID = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
"""What may be wrong with a transaction [AMQP 4.5.8]."""

_OUTCOME = composite("Accepted", "Rejected", "Released", "Modified", "Declared", "Described")


@dataclass(slots=True)
class Declare(Performative):
    """The body of a message that asks for a transaction [AMQP 4.5.2]; a global id is for distributed ones."""

    CODE = 0x31
    SYMBOL = "amqp:declare:list"
    global_id: Any = field_of(ANY, None)


@dataclass(slots=True)
class Discharge(Performative):
    """The body of a message that ends a transaction: by commit, or by rollback if ``fail`` [AMQP 4.5.3]."""

    CODE = 0x32
    SYMBOL = "amqp:discharge:list"
    txn_id: bytes = field_of(BINARY)
    fail: bool = field_of(BOOLEAN, False)


@dataclass(slots=True)
class Declared(Performative):
    """The outcome of a declare: the transaction has begun under this id [AMQP 4.5.5]."""

    CODE = 0x33
    SYMBOL = "amqp:declared:list"
    txn_id: bytes = field_of(BINARY)


@dataclass(slots=True)
class TransactionalState(Performative):
    """What a delivery is to be once its transaction is committed [AMQP 4.5.6]."""

    CODE = 0x34
    SYMBOL = "amqp:transactional-state:list"
    txn_id: bytes = field_of(BINARY)
    outcome: Any = field_of(_OUTCOME, None)


register(Declare, Discharge, Declared, TransactionalState)
