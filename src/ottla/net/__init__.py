"""Sockets: the server side of a listener, and connections to other brokers."""
