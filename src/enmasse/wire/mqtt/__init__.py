"""MQTT 5.0 and 3.1.1, and 3.1 as far as it is the same: bytes in, packets out, no sockets.

``connection`` is the server's end of one connection and ``client`` a client's, ``engine`` what both share.
``packets`` says what packets hold, ``reading`` and ``writing`` parse and write them, ``trace`` reads traces.
"""
