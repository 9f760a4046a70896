"""The version of the package, read by the command line and the AMQP product property."""

__version__ = "0.1.0"
