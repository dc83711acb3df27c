# cython: language_level=3, boundscheck=False, wraparound=False
"""The short path through a connection: one small request arrives whole, and its response leaves whole, at once.

Almost every request is of that kind. It costs one `recv`, the handler and one `send`, and creates no object but the
request. Everything else (a frame in pieces, several at once, a response that has to wait, a socket that is full) is
left to the connection's own methods, which are the reference: they do the same for any request.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t

import os

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int descriptor, void *buffer, size_t size, int flags)
    ssize_t c_send "send"(int descriptor, const void *buffer, size_t size, int flags)
    int MSG_NOSIGNAL

cdef enum:
    LENGTH_BYTES = 4


cdef class Shortcut:
    """What a connection gives its loop to call when its socket is readable."""

    cdef object _connection
    cdef object _handler
    cdef object _time
    cdef object _buffer
    cdef uint8_t[::1] _bytes
    cdef int _descriptor
    cdef size_t _frame_bytes_max

    def __init__(self, connection, int descriptor, handler, time, listener):
        self._connection = connection
        self._handler = handler
        self._time = time
        self._buffer = listener.receive_buffer
        self._bytes = self._buffer
        self._descriptor = descriptor
        self._frame_bytes_max = listener.frame_bytes_max

    def __call__(self):
        cdef object connection = self._connection
        if connection._frame is not None:
            connection._readable()
            return
        if connection._is_holding_off:
            connection._came_early()
            return
        connection.last_active = self._time()
        cdef uint8_t *data = &self._bytes[0]
        cdef ssize_t count
        # Without giving up the GIL: the socket does not block, and the only other threads sync files.
        count = c_recv(self._descriptor, data, self._bytes.shape[0], 0)
        if count < 0:
            if errno != EAGAIN and errno != EINTR:
                connection._lost(OSError(errno, os.strerror(errno)))
            return
        if count == 0:
            connection._ended()
            return
        if not connection._is_reading:
            connection._is_sending_ahead = True
        if connection._deferred is not None:
            connection._received(self._buffer[:count])
            return
        cdef unsigned int length = 0
        if count >= LENGTH_BYTES:
            length = (<unsigned int> data[0] << 24) | (data[1] << 16) | (data[2] << 8) | data[3]
        # One frame that is allowed, and nothing else.
        if count < LENGTH_BYTES or length != <size_t> (count - LENGTH_BYTES) or length > self._frame_bytes_max:
            connection._received(self._buffer[:count])
            return
        try:
            reply = self._handler(connection, self._buffer[LENGTH_BYTES:count])
            if not self._try_send(reply):
                connection._accept(reply)
                connection._settle(b"")
        except Exception as error:
            connection._failed(error)

    cdef bint _try_send(self, object reply) except -1:
        """Sends a response that is one piece of bytes; False if the connection has to do it."""
        if type(reply) is not list or PyList_GET_SIZE(reply) != 1 or type((<list> reply)[0]) is not bytes:
            return False
        if self._connection.is_closed:
            return False  # by its handler: the descriptor may belong to something else by now
        cdef bytes answer = (<list> reply)[0]
        cdef ssize_t size = PyBytes_GET_SIZE(answer)
        cdef ssize_t sent = c_send(self._descriptor, PyBytes_AS_STRING(answer), size, MSG_NOSIGNAL)
        if sent == size:
            return True
        if sent > 0:
            (<list> reply)[0] = answer[sent:]
        return False  # an error comes again when the connection tries, and is handled there
