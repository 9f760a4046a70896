"""Addresses of another AMQP container, link by link."""
