"""What carries the bytes of a connection: a socket as it is, or something that encrypts on top of one.

A connection reads and writes through its transport, and asks it which short ways it may take: only where the socket
carries the bytes as they are may the kernel send files, and the compiled shortcut use the descriptor by itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Transport(Protocol):
    """Never blocks: what cannot be done now is a BlockingIOError."""

    @property
    def socket(self) -> socket.socket:
        """What the loop watches."""
        ...

    @property
    def can_sendfile(self) -> bool:
        """Whether the kernel may send a file by itself; otherwise its bytes are read and sent."""
        ...

    @property
    def can_shortcut(self) -> bool:
        """Whether compiled code may receive from the descriptor and send to it, past this object."""
        ...

    @property
    def is_shaking_hands(self) -> bool:
        """Whether the next read goes on with a handshake, which takes long."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether bytes were received from the socket that nobody has taken: the loop does not see them."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """What the peer has shown of itself, if anything, in DER."""
        ...

    @property
    def recv_into(self) -> Callable[[Buffer], int]:
        """Receives what is available; 0 where the peer has closed its side."""
        ...

    @property
    def send(self) -> Callable[[Buffer], int]: ...

    @property
    def sendmsg(self) -> Callable[[Iterable[Buffer]], int]:
        """Sends several parts, as many of their bytes as there is room for."""
        ...

    def sendfile(self, descriptor: int, position: int, count: int) -> int:
        """Has the kernel send a range of a file, where it can."""
        ...

    def close(self) -> None: ...


OpenTransport: TypeAlias = Callable[[socket.socket], Transport]


class Plain:
    """A socket as it is."""

    __slots__ = ("can_sendfile", "can_shortcut", "recv_into", "send", "sendmsg", "socket")

    is_shaking_hands = False
    has_pending = False
    peer_certificate = None

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        # The kernel's own, and no subclass: that of TLS has the same descriptor and other bytes, a simulated one none.
        self.can_sendfile = self.can_shortcut = type(sock) is socket.socket
        # Its methods themselves: a call of ours around each of them would be paid for by every request.
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.sendmsg = sock.sendmsg

    def sendfile(self, descriptor: int, position: int, count: int) -> int:
        return os.sendfile(self.socket.fileno(), descriptor, position, count)

    def close(self) -> None:
        self.socket.close()
