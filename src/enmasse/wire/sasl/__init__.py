"""SASL, for every protocol: mechanisms of a client, SCRAM, SASLprep, and a server's verdicts [RFC 4422].

A protocol frames the exchange itself (``wire.amqp.sasl`` does for AMQP) and imports this room, which imports none.
"""
