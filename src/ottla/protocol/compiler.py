"""Makes a decoder and an encoder for one class and version, by writing Python for it.

A generic decoder that asks each field for its type spends most of its time asking. Here the questions are
asked once: the source of a function for exactly this version is written and compiled. Neighbouring fields of
fixed size, with the length prefix that follows them, are read by one `struct` call; strings and loops stand
inline.

`python -m ottla.protocol.compiler ProduceRequest 9` prints what is made.

Rules that every decoder keeps, whatever the bytes: it raises nothing but `ProtocolError`; it checks a length
against what is left before it takes a slice, since a slice past the end is silent; it checks a count against
the array limit and against the least number of bytes that its elements need, so memory stays in
proportion to the frame. Tagged fields that the schema does not know are skipped.
"""

from __future__ import annotations

import linecache
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.errors import CannotEncodeError, ProtocolError, TooManyElementsError
from ottla.protocol import wire
from ottla.protocol.schema import REQUIRED, Field, MessageSchema, StructSchema, message_schema_of, schema_of
from ottla.protocol.wire import BYTES, RECORDS, STRING, UUID16, Primitive

# (buffer, position) -> (message, position after it); a bounded one takes the most elements that it may meet as well
Decoder = Callable[..., tuple[Any, int]]
# (message, parts) appends the encoded parts
Encoder = Callable[[Any, Any], None]

# How the three kinds of slices are taken from `b[p:q]`, for a buffer of bytes and for a memoryview.
BYTES_SLICES = {STRING: "b[p:q].decode()", BYTES: "b[p:q]", RECORDS: "memoryview(b)[p:q]"}
VIEW_SLICES = {STRING: "b[p:q].tobytes().decode()", BYTES: "b[p:q].tobytes()", RECORDS: "b[p:q]"}

_HELPERS: dict[str, Any] = {
    "CannotEncodeError": CannotEncodeError,
    "ProtocolError": ProtocolError,
    "TooManyElementsError": TooManyElementsError,
    "StructError": struct.error,
    "join": b"".join,
    "new": object.__new__,
    "read_uvarint": wire.read_uvarint,
    "read_string_length": wire.read_string_length,
    "read_array_count": wire.read_array_count,
    "read_tag_count": wire.read_tag_count,
    "read_tag": wire.read_tag,
    "skip_tags": wire.skip_tags,
    "uuid_of": wire.uuid_of,
    "array_unpacker": wire.array_unpacker,
    "array_packer": wire.array_packer,
    "encode_uvarint": wire.encode_uvarint,
    "UVARINT_BYTE": wire.UVARINT_BYTE,
    "ZERO_UUID": wire.ZERO_UUID,
    "IN_MEMORY": wire.IN_MEMORY,
}


def compile_decoder(cls: type, version: int, *, of_views: bool, is_bounded: bool = False) -> Decoder:
    """The decoder of one version, for memoryviews or for bytes."""
    slices = VIEW_SLICES if of_views else BYTES_SLICES
    writer = _DecoderWriter(_checked_schema(cls, version), version, slices, is_bounded=is_bounded)
    decoder: Decoder = _compile(writer.write(cls), writer)
    return decoder


def compile_encoder(cls: type, version: int) -> Encoder:
    """The encoder of one version."""
    writer = _EncoderWriter(_checked_schema(cls, version), version)
    encoder: Encoder = _compile(writer.write(), writer)
    return encoder


def source_of(cls: type, version: int) -> str:
    """The source of the decoder (for bytes) and of the encoder of one version."""
    schema = _checked_schema(cls, version)
    return _DecoderWriter(schema, version, BYTES_SLICES).write(cls) + "\n\n" + _EncoderWriter(schema, version).write()


def _checked_schema(cls: type, version: int) -> MessageSchema:
    schema = message_schema_of(cls)
    if version not in schema.versions:
        raise ProtocolError(f"{schema.name} has no version {version}: there are {schema.versions}")
    return schema


def _compile(source: str, writer: _Writer) -> Any:
    filename = f"<ottla.protocol {writer.function}>"
    # With the source at hand, tracebacks and debuggers show the line, which names the field.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = dict(writer.constants)
    exec(compile(source, filename, "exec"), namespace)
    return namespace[writer.function]


class _Writer:
    """Lines of source, names they use, and the run of fixed-size values that becomes one `struct` call."""

    def __init__(self, schema: MessageSchema, version: int, verb: str) -> None:
        self.schema = schema
        self.version = version
        self.flexible = schema.is_flexible(version)
        self.function = f"{verb}_{schema.name}_v{version}"
        self.constants = dict(_HELPERS)
        self.lines: list[str] = []
        self.indent = 0
        self.run: list[tuple[str, str]] = []

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.emit(opening)
        self.indent += 1
        yield
        self.indent -= 1

    def struct_method(self, method: str, codes: str) -> str:
        """The name under which the function finds `Struct(codes).pack` or `.unpack_from`."""
        name = f"{method.removesuffix('_from')}_{codes.replace('?', 'bool_')}"
        self.constants[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def is_compact(self, field: Field) -> bool:
        return self.flexible and field.compact

    def refuse(self, why: str, error: str = "ProtocolError") -> None:
        self.emit(f"raise {error}({f'{self.schema.name} v{self.version}: {why}'!r})")


class _DecoderWriter(_Writer):
    """Writes `decode(b, p) -> (message, p)`.

    In the source `b` is the buffer, `p` the position, `end` the length of the buffer, `q` the end of a
    string, `n` a length or count, `o` the message and `o1`, `o2`, ... the structs inside it, by depth.

    A bounded decoder is `decode(b, p, room)`: `room` elements, of all arrays together, are the most that it makes.
    """

    def __init__(
        self, schema: MessageSchema, version: int, slices: dict[Primitive, str], *, is_bounded: bool = False
    ) -> None:
        super().__init__(schema, version, "decode_bounded" if is_bounded else "decode")
        self.slices = slices
        self.is_bounded = is_bounded

    def write(self, cls: type) -> str:
        name = f"{self.schema.name} v{self.version}"
        with self.block(f"def {self.function}(b, p{', room' if self.is_bounded else ''}):"):
            self.emit("end = len(b)")
            with self.block("try:"):
                self.read_struct(cls, "o", depth=1)
                self.flush()
                self.emit("return o, p")
            with self.block("except (StructError, IndexError) as error:"):
                self.emit(f"raise ProtocolError({f'{name} ends early'!r}) from error")
            with self.block("except UnicodeDecodeError as error:"):
                self.emit(f"raise ProtocolError({f'{name} has a string that is not UTF-8'!r}) from error")
        return "\n".join(self.lines) + "\n"

    def read_struct(self, cls: type, target: str, depth: int) -> None:
        schema = schema_of(cls)
        self.constants[cls.__name__] = cls
        self.emit(f"{target} = new({cls.__name__})")
        tagged = schema.tagged(self.version)
        for field in [*schema.absent(self.version), *tagged]:
            self.emit(f"{target}.{field.name} = {self.default(field)}")
        for field in schema.untagged(self.version):
            self.read_field(field, f"{target}.{field.name}", depth)
        if self.flexible:
            self.read_tags(tagged, target, depth)

    def default(self, field: Field) -> str:
        assert field.default is not REQUIRED, f"{self.schema.name}: {field.name} needs a default"
        return "ZERO_UUID" if field.wire_type is UUID16 and not field.is_array else repr(field.default)

    def read_fixed(self, code: str, target: str) -> None:
        self.run.append((code, target))

    def flush(self) -> None:
        """Reads the waiting run of fixed-size values."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        if codes == "B":
            self.emit(f"{self.run[0][1]} = b[p]")
        else:
            # The 16 bytes of a UUID land in a variable and are converted once the run is read.
            names = [f"raw{at}" if code == "16s" else target for at, (code, target) in enumerate(self.run)]
            left = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
            self.emit(f"{left} = {self.struct_method('unpack_from', codes)}(b, p)")
        self.emit(f"p += {struct.calcsize('>' + codes)}")
        for at, (code, target) in enumerate(self.run):
            if code == "16s":
                self.emit(f"{target} = uuid_of(raw{at})")
        self.run.clear()

    def read_field(self, field: Field, target: str, depth: int) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.read_array(field, target, nullable, depth)
        elif field.struct is not None:
            self.read_nested(field, target, nullable, depth)
        elif isinstance(field.wire_type, Primitive):
            self.read_primitive(field.wire_type, field, target, nullable)

    def read_primitive(self, primitive: Primitive, field: Field, target: str, nullable: bool) -> None:
        if primitive.code:
            self.read_fixed(primitive.code, target)
            return
        if self.is_compact(field):
            self.read_fixed("B", "n")
            self.flush()
            with self.block("if n > 127:"):
                self.emit(f"n, p = {'read_string_length' if primitive is STRING else 'read_uvarint'}(b, p - 1)")
            is_present, is_null, size = "n", "", "n - 1"
        else:
            self.read_fixed("h" if primitive is STRING else "i", "n")
            self.flush()
            is_present, is_null, size = "n >= 0", " n == -1", "n"
        with self.block(f"if {is_present}:"):
            self.emit(f"q = p + {size}")
            with self.block("if q > end:"):
                self.refuse(f"{field.name} runs past the end")
            self.emit(f"{target} = {self.slices[primitive]}")
            self.emit("p = q")
        self.close_null(field, target, nullable, is_null)

    def close_null(self, field: Field, target: str, nullable: bool, is_null: str) -> None:
        """The branches after the one of a value that is present: null where it is allowed, and refusal.

        `is_null` is the test for null, empty when nothing else is left.
        """
        if nullable:
            with self.block(f"elif{is_null}:" if is_null else "else:"):
                self.emit(f"{target} = None")
            if not is_null:
                return
        with self.block("else:"):
            self.refuse(f"the length of {field.name} is negative" if is_null else f"{field.name} must not be null")

    def read_nested(self, field: Field, target: str, nullable: bool, depth: int) -> None:
        assert field.struct is not None
        nested = f"o{depth}"
        if not nullable:
            self.read_struct(field.struct, nested, depth + 1)
            self.flush()  # before the next sibling takes the name `nested`
            self.emit(f"{target} = {nested}")
            return
        self.read_fixed("b", "n")
        self.flush()
        with self.block("if n == 1:"):
            self.read_struct(field.struct, nested, depth + 1)
            self.flush()
            self.emit(f"{target} = {nested}")
        with self.block(f"elif n == {_null_mark(field)}:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self.refuse(f"{field.name} is neither null nor present")

    def read_array(self, field: Field, target: str, nullable: bool, depth: int) -> None:
        if self.is_compact(field):
            self.read_fixed("B", "n")
            self.flush()
            with self.block("if n > 127:"):
                self.emit("n, p = read_array_count(b, p - 1)")
            is_present, is_null = "n", ""
        else:
            self.read_fixed("i", "n")
            self.flush()
            is_present, is_null = "n >= 0", " n == -1"
        with self.block(f"if {is_present}:"):
            if self.is_compact(field):
                self.emit("n -= 1")
            size = element_size_min(field, self.version, self.flexible)
            # An element of no bytes would let four bytes ask for a million objects.
            assert size > 0, f"{self.schema.name} v{self.version}: elements of {field.name} take no room"
            needed = "n" if size == 1 else f"n * {size}"
            over_limit = "" if self.is_compact(field) else f" or n > {wire.ARRAY_ELEMENTS_MAX}"
            with self.block(f"if {needed} > end - p{over_limit}:"):
                self.refuse(f"{field.name} has more elements than the frame can hold or than are allowed")
            if self.is_bounded:
                self.emit("room -= n")
                with self.block("if room < 0:"):
                    self.refuse("has more elements in all than one request may have", "TooManyElementsError")
            self.read_elements(field, target, depth)
        self.close_null(field, target, nullable, is_null)

    def read_elements(self, field: Field, target: str, depth: int) -> None:
        if isinstance(field.wire_type, Primitive) and field.wire_type.code and field.wire_type is not UUID16:
            self.emit(f"{target} = list(array_unpacker({field.wire_type.code!r}, n)(b, p))")
            self.emit(f"p += n * {field.wire_type.size}" if field.wire_type.size > 1 else "p += n")
            return
        self.emit(f"{target} = items{depth} = []")
        # Most arrays have one element, for which this is faster than making a range.
        self.emit(f"left{depth} = n")
        with self.block(f"while left{depth}:"):
            self.emit(f"left{depth} -= 1")
            element = f"o{depth}"
            if isinstance(field.wire_type, Primitive):
                self.read_primitive(field.wire_type, field, element, nullable=False)
            else:
                self.read_struct(field.wire_type, element, depth + 1)
            self.flush()
            self.emit(f"items{depth}.append({element})")

    def read_tags(self, tagged: list[Field], target: str, depth: int) -> None:
        """Reads the tag section that closes a struct; nearly always it is one byte that says that it is empty."""
        if self.run:
            self.read_fixed("B", "n")
            self.flush()
            with self.block("if n:"):
                self.emit("p -= 1")
                self.read_known_tags(tagged, target, depth)
            return
        with self.block("if b[p]:"):
            self.read_known_tags(tagged, target, depth)
        with self.block("else:"):
            self.emit("p += 1")

    def read_known_tags(self, tagged: list[Field], target: str, depth: int) -> None:
        if not tagged:
            self.emit("p = skip_tags(b, p)")
            return
        self.emit("n, p = read_tag_count(b, p)")
        with self.block("for _ in range(n):"):
            self.emit(f"tag, p, end{depth} = read_tag(b, p)")
            for field in tagged:
                with self.block(f"{'if' if field is tagged[0] else 'elif'} tag == {field.tag}:"):
                    self.read_field(field, f"{target}.{field.name}", depth)
                    self.flush()
                    with self.block(f"if p != end{depth}:"):
                        self.refuse(f"tagged field {field.name} has another size than it says")
            with self.block("else:"):
                self.emit(f"p = end{depth}")


def _null_mark(field: Field) -> int:
    """The byte before a nullable struct that is null, where 1 says that it is present."""
    return -1 if field.tag is None else 0


def struct_size_min(schema: StructSchema, version: int, flexible: bool) -> int:
    """The least number of bytes that a struct takes on the wire."""
    size = sum(_field_size_min(field, version, flexible) for field in schema.untagged(version))
    return size + 1 if flexible else size


def element_size_min(field: Field, version: int, flexible: bool) -> int:
    """The least number of bytes that an element of an array, or a value that is not null, takes."""
    if not isinstance(field.wire_type, Primitive):
        return struct_size_min(schema_of(field.wire_type), version, flexible)
    if field.wire_type.code:
        return field.wire_type.size
    if flexible and field.compact:
        return 1
    return 2 if field.wire_type is STRING else 4


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None and version in field.nullable:
        return 1
    return element_size_min(field, version, flexible)


class _EncoderWriter(_Writer):
    """Writes `encode(o, parts)`.

    In the source `add` appends a part, `s` is the content of a string or of bytes, `n` a length or count, and
    `o1`, `o2`, ... are the structs inside the message, by depth.
    """

    def __init__(self, schema: MessageSchema, version: int) -> None:
        super().__init__(schema, version, "encode")
        self.add = "add"

    def write(self) -> str:
        with self.block(f"def {self.function}(o, parts):"):
            with self.block("try:"):
                self.emit("add = parts.append")
                self.write_struct(self.schema, "o", depth=1)
                self.flush()
            # A value of the wrong type or size is found by the call that packs it; the traceback shows its
            # line.
            with self.block("except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:"):
                prefix = f"{self.schema.name} v{self.version} cannot be encoded: "
                self.emit(f"raise CannotEncodeError(f'{prefix}{{error}}') from error")
        return "\n".join(self.lines) + "\n"

    def write_struct(self, schema: StructSchema, source: str, depth: int) -> None:
        for field in schema.absent(self.version):
            if not field.ignorable:
                with self.block(f"if {self.differs_from_default(field, f'{source}.{field.name}')}:"):
                    self.refuse(f"this version has no {field.name}")
        for field in schema.untagged(self.version):
            self.write_field(field, f"{source}.{field.name}", depth)
        if self.flexible:
            tagged = schema.tagged(self.version)
            if tagged:
                self.write_tags(tagged, source, depth)
            else:
                self.run.append(("x", ""))

    def differs_from_default(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if field.is_array or field.wire_type in (BYTES, RECORDS):
            return value
        if field.wire_type is UUID16:
            return f"{value} != ZERO_UUID"
        return f"{value} != {field.default!r}"

    def pack_run(self, extra: str = "") -> str:
        """The expression that packs the waiting run, with one more byte of the value `extra` if given."""
        codes = "".join(code for code, _ in self.run) + ("B" if extra else "")
        values = [value for _, value in self.run if value] + ([extra] if extra else [])
        if codes.strip("x"):
            return f"{self.struct_method('pack', codes)}({', '.join(values)})"
        return repr(bytes(len(codes)))

    def flush(self) -> None:
        if self.run:
            self.emit(f"{self.add}({self.pack_run()})")
            self.run.clear()

    def write_length(self, primitive: Primitive | None, *, compact: bool) -> None:
        """Writes `n`, the length of a string, of bytes or of an array, after the waiting run."""
        if not compact:
            self.run.append(("h" if primitive is STRING else "i", "n"))
            self.flush()
            return
        if self.run:
            self.emit(f"{self.add}({self.pack_run('n')} if n < 128 else {self.pack_run()} + encode_uvarint(n))")
            self.run.clear()
        else:
            self.emit(f"{self.add}(UVARINT_BYTE[n] if n < 128 else encode_uvarint(n))")

    def write_field(self, field: Field, value: str, depth: int) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.write_array(field, value, nullable, depth)
        elif field.struct is not None:
            self.write_nested(field, value, nullable, depth)
        elif isinstance(field.wire_type, Primitive):
            self.write_primitive(field.wire_type, field, value, nullable)

    def write_primitive(self, primitive: Primitive, field: Field, value: str, nullable: bool) -> None:
        if primitive.code:
            self.run.append((primitive.code, f"{value}.bytes" if primitive is UUID16 else value))
            return
        self.emit(f"s = {value}")
        if nullable:
            with self.block("if s is None:"):
                self.emit(f"s = b''; n = {0 if self.is_compact(field) else -1}")
            with self.block("else:"):
                self.measure(primitive, field)
        else:
            self.measure(primitive, field)
        self.write_length(primitive, compact=self.is_compact(field))
        self.emit(f"{self.add}(s)")

    def measure(self, primitive: Primitive, field: Field) -> None:
        """Turns the value `s` into what is written, and `n` into its length as the wire has it."""
        plus_one = " + 1" if self.is_compact(field) else ""
        if primitive is STRING:
            self.emit("s = s.encode()")
            self.emit(f"n = len(s){plus_one}")
            if plus_one:  # the old prefix cannot hold more, `struct` refuses it
                with self.block(f"if n > {wire.STRING_BYTES_MAX + 1}:"):
                    self.refuse(f"{field.name} is longer than {wire.STRING_BYTES_MAX} bytes")
        elif primitive is RECORDS:
            self.emit(f"n = (len(s) if type(s) in IN_MEMORY else s.size_bytes){plus_one}")
        else:
            self.emit(f"n = len(s){plus_one}")

    def write_nested(self, field: Field, value: str, nullable: bool, depth: int) -> None:
        assert field.struct is not None
        nested = f"o{depth}"
        self.emit(f"{nested} = {value}")
        if not nullable:
            self.write_struct(schema_of(field.struct), nested, depth + 1)
            self.flush()  # before the next sibling takes the name `nested`
            return
        self.flush()
        with self.block(f"if {nested} is None:"):
            self.run.append(("b", str(_null_mark(field))))
            self.flush()
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.write_struct(schema_of(field.struct), nested, depth + 1)
            self.flush()

    def write_array(self, field: Field, value: str, nullable: bool, depth: int) -> None:
        compact = self.is_compact(field)
        items = f"items{depth}"
        self.emit(f"{items} = {value}")
        if nullable:
            null = 0 if compact else -1
            self.emit(f"n = {null} if {items} is None else len({items}){' + 1' if compact else ''}")
        else:
            self.emit(f"n = len({items}){' + 1' if compact else ''}")
        self.write_length(None, compact=compact)
        with self.block(f"if {items}:"):
            self.write_elements(field, items, depth)

    def write_elements(self, field: Field, items: str, depth: int) -> None:
        if isinstance(field.wire_type, Primitive) and field.wire_type.code and field.wire_type is not UUID16:
            self.emit(f"{self.add}(array_packer({field.wire_type.code!r}, len({items}))(*{items}))")
            return
        element = f"o{depth}"
        with self.block(f"for {element} in {items}:"):
            if isinstance(field.wire_type, Primitive):
                self.write_primitive(field.wire_type, field, element, nullable=False)
            else:
                self.write_struct(schema_of(field.wire_type), element, depth + 1)
            self.flush()

    def write_tags(self, tagged: list[Field], source: str, depth: int) -> None:
        self.flush()
        values = [f"{source}.{field.name}" for field in tagged]
        conditions = [
            "True" if field.writes_null else self.differs_from_default(field, value)
            for field, value in zip(tagged, values, strict=True)
        ]
        with self.block(f"if {' or '.join(conditions)}:"):
            self.emit(f"tags{depth} = []")
            for field, value, condition in zip(tagged, values, conditions, strict=True):
                with self.block(f"if {condition}:"):
                    self.write_tag(field, value, depth)
            self.emit(f"{self.add}(encode_uvarint(len(tags{depth})))")
            self.emit(f"{self.add}(join(tags{depth}))")
        with self.block("else:"):
            self.emit(f"{self.add}(b'\\x00')")

    def write_tag(self, field: Field, value: str, depth: int) -> None:
        """Appends the number, the size and the value of one tagged field to the list of its section."""
        outer = self.add
        self.add = f"add_tagged{depth}"
        self.emit(f"tagged{depth} = []")
        self.emit(f"{self.add} = tagged{depth}.append")
        self.write_field(field, value, depth)
        self.flush()
        self.add = outer
        self.emit(f"tagged{depth} = join(tagged{depth})")
        number = f"encode_uvarint({field.tag}) + encode_uvarint(len(tagged{depth}))"
        self.emit(f"tags{depth}.append({number} + tagged{depth})")


def _main() -> None:
    from ottla.protocol.versions import message_class

    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("usage: python -m ottla.protocol.compiler MESSAGE VERSION")
    print(source_of(message_class(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    _main()
