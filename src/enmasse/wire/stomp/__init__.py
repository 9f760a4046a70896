"""STOMP 1.2, and 1.1 and 1.0 as far as they differ: bytes in, frames out, no sockets.

``connection`` is the server's end of one connection, ``frames`` writes and parses frames, ``trace`` reads traces.
"""
