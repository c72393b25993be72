"""The checked syntax tree of an expression, as protobuf messages that can be read and rewritten.

The engine exports and imports a checked expression as `cel.expr.CheckedExpr`, a public format
(cel-spec: proto/cel/expr/checked.proto, syntax.proto). Only the fields that are used are declared
here; protobuf preserves the others.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "drawbridge.cel"

# In the encoding a map is a list of keys and values, and Any is a URL and bytes.
_PROTO: Final = """
message Constant {
  oneof kind {
    bool bool_value = 2;
    int64 int64_value = 3;
    string string_value = 6;
    bytes bytes_value = 7;
  }
}
message Ident { string name = 1; }
message Select { Expr operand = 1; string field = 2; bool test_only = 3; }
message Call { Expr target = 1; string function = 2; repeated Expr args = 3; }
message CreateList { repeated Expr elements = 1; repeated int64 optional_indices = 2; }
message Entry { int64 id = 1; Expr map_key = 3; Expr value = 4; bool optional_entry = 5; }
message CreateStruct { string message_name = 1; repeated Entry entries = 2; }
message Comprehension {
  string iter_var = 1;
  string iter_var2 = 8;
  Expr iter_range = 2;
  string accu_var = 3;
  Expr accu_init = 4;
  Expr loop_condition = 5;
  Expr loop_step = 6;
  Expr result = 7;
}
message Expr {
  int64 id = 2;
  oneof kind {
    Constant const_expr = 3;
    Ident ident_expr = 4;
    Select select_expr = 5;
    Call call_expr = 6;
    CreateList list_expr = 7;
    CreateStruct struct_expr = 8;
    Comprehension comprehension_expr = 9;
  }
}
message Empty { }
message ListType { Type elem_type = 1; }
message MapType { Type key_type = 1; Type value_type = 2; }
message Type {
  oneof kind {
    Empty dyn = 1;
    int64 primitive = 3;
    int64 well_known = 5;
    ListType list_type = 6;
    MapType map_type = 7;
    string message_type = 9;
    AbstractType abstract_type = 14;
  }
}
message AbstractType { string name = 1; repeated Type parameter_types = 2; }
message Reference { string name = 1; repeated string overload_id = 3; }
message Referenced { int64 key = 1; Reference value = 2; }
message Typed { int64 key = 1; Type value = 2; }
message CheckedExpr {
  repeated Referenced reference_map = 2;
  repeated Typed type_map = 3;
  Expr expr = 4;
}
message ParsedExpr { Expr expr = 2; }
message Any { string type_url = 1; bytes value = 2; }
"""

# Numbers of PrimitiveType and WellKnownType.
PRIMITIVE_BOOL: Final = 1
PRIMITIVE_INT: Final = 2
PRIMITIVE_STRING: Final = 5
WELL_KNOWN_ANY: Final = 1

_DECLARATIONS: Final = re.compile(
    r"message (\w+)|(oneof) kind|(repeated )?(\w+) (\w+) = (\d+);|(\})"
)
_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


def _build_descriptor_pool() -> descriptor_pool.DescriptorPool:
    """Build a separate descriptor pool with the messages of `_PROTO`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="drawbridge/cel.proto", package=_PACKAGE, syntax="proto3"
    )
    message, in_oneof = file.message_type.add(), False
    del file.message_type[:]
    for name, oneof, is_repeated, kind, field_name, number, end in _DECLARATIONS.findall(_PROTO):
        if name:
            message = file.message_type.add(name=name)
        elif oneof:
            in_oneof = True
            message.oneof_decl.add(name="kind")
        elif end:
            in_oneof = False
        else:
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            if in_oneof:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL: Final = _build_descriptor_pool()


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


# The classes are created at run time, so type checkers do not know their fields.
Node = Any
Expr: Final = _message_class("Expr")
CheckedExpr: Final = _message_class("CheckedExpr")
_Parsed: Final = _message_class("ParsedExpr")
_Any: Final = _message_class("Any")


def decode_checked(encoded_tree: bytes) -> Any:
    """Decode the `CheckedExpr` that the engine serialized.

    Raises:
        google.protobuf.message.DecodeError: It is nested deeper than protobuf's limit.
    """
    return CheckedExpr.FromString(_Any.FromString(encoded_tree).value)


def decode_parsed(encoded_tree: bytes) -> Any:
    """Decode the `ParsedExpr` that the engine serialized without type checking."""
    return _Parsed.FromString(_Any.FromString(encoded_tree).value)


def encode_checked(checked_tree: Any) -> bytes:
    """Encode a `CheckedExpr` for the engine."""
    envelope = _Any(
        type_url="type.googleapis.com/cel.expr.CheckedExpr", value=checked_tree.SerializeToString()
    )
    encoded_tree: bytes = envelope.SerializeToString()
    return encoded_tree


def children(node: Node) -> Iterator[Node]:
    """Yield the children of a node, in the order of evaluation."""
    match node.WhichOneof("kind"):
        case "select_expr":
            yield node.select_expr.operand
        case "call_expr":
            if node.call_expr.HasField("target"):
                yield node.call_expr.target
            yield from node.call_expr.args
        case "list_expr":
            yield from node.list_expr.elements
        case "struct_expr":
            for entry in node.struct_expr.entries:
                if entry.HasField("map_key"):
                    yield entry.map_key
                yield entry.value
        case "comprehension_expr":
            loop = node.comprehension_expr
            yield loop.iter_range
            yield loop.accu_init
            yield loop.loop_condition
            yield loop.loop_step
            yield loop.result
        case _:
            pass


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants, each before its children.

    Not by recursion, in which each node would pass through the frames of all its ancestors: selectors may
    be chains of thousands.
    """
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(tuple(children(node))))


def string_value(node: Node) -> str | None:
    """Return the value of a string constant; None for other nodes."""
    is_text = node.WhichOneof("kind") == "const_expr" and node.const_expr.HasField("string_value")
    return str(node.const_expr.string_value) if is_text else None


def bool_value(node: Node) -> bool | None:
    """Return the value of a boolean constant; None for other nodes."""
    is_flag = node.WhichOneof("kind") == "const_expr" and node.const_expr.HasField("bool_value")
    return bool(node.const_expr.bool_value) if is_flag else None


def bytes_value(node: Node) -> bytes:
    """Return the value of a bytes constant; empty for other nodes."""
    return bytes(node.const_expr.bytes_value)


def ident(name: str) -> Node:
    """Return a node that names a variable."""
    node = Expr()
    node.ident_expr.name = name
    return node


def true_constant() -> Node:
    """Return the constant true."""
    node = Expr()
    node.const_expr.bool_value = True
    return node


def string_constant(value: str) -> Node:
    """Return a string constant."""
    node = Expr()
    node.const_expr.string_value = value
    return node


def empty_map() -> Node:
    """Return `{}`."""
    node = Expr()
    node.struct_expr.SetInParent()
    return node


def call(function: str, *args: Node) -> Node:
    """Return a function call."""
    node = Expr()
    node.call_expr.function = function
    for arg in args:
        node.call_expr.args.add().CopyFrom(arg)
    return node
