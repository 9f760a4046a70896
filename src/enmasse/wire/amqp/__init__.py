"""AMQP 1.0, both roles: performatives, framing, frames of SASL, connection, session, link.

``Connection`` is the engine: feed it with ``receive``, write what ``pending_output`` gives, and call
``handle_deadline`` when ``next_deadline`` has come. Links call their sinks directly.
"""
