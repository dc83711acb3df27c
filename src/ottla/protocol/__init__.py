"""The wire protocol: frames, headers, messages and their codec. Pure: bytes in, values out, and back.

`codec` has the functions that others call, `versions` the API table, `messages` every message as a typed
class that is its own schema, `schema` the words those classes are written in, and `compiler` turns a class
and a version into code.
"""
