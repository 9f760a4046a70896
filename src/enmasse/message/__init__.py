"""The message format that all protocols share: AMQP's types, sections and outcomes, without any protocol.

Addresses keep messages as the encoded sections of AMQP 1.0, and answer with its outcomes; each protocol converts at
its edge.
"""
