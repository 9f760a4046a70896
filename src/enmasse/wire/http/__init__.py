"""HTTP/1.1: bytes in, answers out, no sockets.

``connection`` is the server's end of one connection, ``heads`` parses and checks the heads of requests, ``answers``
writes what is answered, ``trace`` reads traces.
"""
