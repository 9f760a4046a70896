"""Protocol engines: bytes in, bytes and calls out; no socket, clock, thread or file."""
