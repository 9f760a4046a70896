"""Nodes on this machine, managed over their private sockets."""
