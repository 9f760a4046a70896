"""AMQP 1.0, both roles: types, performatives, framing, SASL, connection, session, link, sections."""
