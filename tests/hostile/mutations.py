"""Models made wrong on purpose: their bytes, or what is written in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from hostile.garbling import garbled
from hostile.originals import Random, originals
from onnx import AttributeProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Mutation = Callable[["Random", onnx.ModelProto], None]

HUGE = (0, -1, 1, 7, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
OPS = (
    *("Reshape", "Transpose", "ReduceMean", "Mul", "Div", "Sqrt", "Pow", "Conv", "MatMul", "Gemm"),
    *("BatchNormalization", "LayerNormalization", "Expand", "Tile", "ConstantOfShape", "Range"),
    *("Pad", "Concat", "Split", "Slice", "Gather", "Resize", "OneHot", "EyeLike", "Einsum", "Loop"),
    *("If", "Scan", "Cast", "QuantizeLinear", "DequantizeLinear", "Unsqueeze", "Squeeze", "Shape"),
    *("InstanceNormalization", "GroupNormalization", "RMSNormalization", "Constant", "Nonsense"),
    *("ReduceSum", "ReduceL2", "Sub", "Add", "Sum", "Softmax", "LSTM", "Flatten", "Where", "Size"),
)


def bytes_of(seed: int) -> bytes:
    """Give the bytes of an input: a model whose bytes, or whose content, were changed."""
    random = Random(seed)
    if random.one(0.3):
        return garbled(random, model_of(seed).SerializeToString())
    return garbled(random, random.choice(originals()))


def model_of(seed: int) -> onnx.ModelProto:
    """Give a model in which a few things are not as they should be."""
    random = Random(seed)
    readable = [data for data in originals() if len(data) < 60_000]
    model = onnx.ModelProto()
    while not model.graph.node:
        try:
            model = onnx.ModelProto.FromString(random.choice(readable))
        except Exception:  # noqa: BLE001, S112 - one of the samples that are no models
            continue
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        random.choice(MUTATIONS)(random, model)
    return model


# What is written in a model ------------------------------------------------------------------


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(a.g for node in graph.node for a in node.attribute if a.HasField("g"))


def _graph(random: Random, model: onnx.ModelProto) -> onnx.GraphProto:
    return random.choice([graph for graph in _graphs(model) if graph.node] or [model.graph])


def _node(random: Random, model: onnx.ModelProto) -> onnx.NodeProto:
    graph = _graph(random, model)
    return random.choice(graph.node) if graph.node else graph.node.add(op_type="Relu")


def _tensor(random: Random, model: onnx.ModelProto) -> TensorProto:
    found = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    found += [
        attribute.t
        for graph in _graphs(model)
        for node in graph.node
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    return random.choice(found) if found else model.graph.initializer.add(name="t", data_type=1)


def _names(model: onnx.ModelProto) -> list[str]:
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    return names or ["x"]


def lying_extents(random: Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(random, model)
    if not tensor.dims or random.one(0.3):
        tensor.dims.append(random.choice(HUGE))
    else:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(HUGE)


def other_type(random: Random, model: onnx.ModelProto) -> None:
    _tensor(random, model).data_type = random.choice((*range(30), -1, 1 << 30))


def short_values(random: Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(random, model)
    if tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: random.randrange(len(tensor.raw_data))]
    else:
        tensor.ClearField("float_data")


def strange_values(random: Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(random, model)
    try:
        values = numpy_helper.to_array(tensor).copy()
    except Exception:  # noqa: BLE001 - it is broken already
        return
    flat = values.reshape(-1)
    if flat.size == 0 or values.dtype.kind not in "fiu":
        return
    choices = HUGE if values.dtype.kind in "iu" else (0.0, np.nan, np.inf, -1.0, 1e38, 1e-45)
    wanted = random.choice(choices)
    with np.errstate(all="ignore"):
        info = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        flat[random.randrange(flat.size)] = (
            wanted if info is None else min(max(wanted, info.min), info.max)
        )
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def external(random: Random, model: onnx.ModelProto) -> None:
    tensor = _tensor(random, model)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    places = ("side.data", "../up.data", "/etc/passwd", "", "a/../../b", "C:\\x", "\0", "x" * 5000)
    for key, value in (
        ("location", random.choice(places)),
        ("offset", random.choice(("0", "-1", "1e3", str(1 << 62), "x", ""))),
        ("length", random.choice(("4", "-4", str(1 << 62), "0", "0x10", ""))),
    ):
        if random.one(0.8):
            tensor.external_data.add(key=key, value=value)


def wrong_inputs(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    way = random.randrange(4)
    if way == 0 and node.input:
        node.input[random.randrange(len(node.input))] = random.choice(_names(model))
    elif way == 1:
        del node.input[random.randrange(len(node.input) + 1) :]
    elif way == 2:
        node.input.extend(random.choice((["", "x"], ["nowhere"], _names(model)[:3])))
    elif node.input:
        node.input[random.randrange(len(node.input))] = random.choice(("", "absent", "a\nb\0"))


def wrong_outputs(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    way = random.randrange(4)
    if way == 0 and node.output:
        node.output[0] = random.choice(_names(model))
    elif way == 1:
        del node.output[:]
    elif way == 2:
        node.output.extend(["", "extra", random.choice(_names(model))])
    elif node.output and node.input:
        node.output[0] = node.input[0]


def other_operator(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    node.op_type = random.choice(OPS)
    if random.one(0.2):
        node.domain = random.choice(("", "ai.onnx", "com.microsoft", "local", "ünknown\n"))


def wrong_attribute(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    if not node.attribute or random.one(0.3):
        names = ("axis", "axes", "perm", "group", "epsilon", "keepdims", "to", "value", "alpha")
        node.attribute.add(name=random.choice((*names, "body", "pads", "num_groups", "equation")))
    attribute = random.choice(node.attribute)
    way = random.randrange(6)
    if way == 0:
        attribute.type = random.choice(range(15))
    elif way == 1:
        attribute.i = random.choice(HUGE)
        attribute.type = AttributeProto.INT
    elif way == 2:
        attribute.ints.extend(random.choice(HUGE) for _ in range(random.choice((1, 3, 9))))
        attribute.type = AttributeProto.INTS
    elif way == 3:
        attribute.f = random.choice((0.0, float("nan"), float("inf"), -1.0, 1e-45))
        attribute.type = AttributeProto.FLOAT
    elif way == 4:
        attribute.s = random.choice((b"\xff\xfe", b"SAME_UPPER", b"ij,jk->ik", b""))
        attribute.type = AttributeProto.STRING
    else:
        attribute.ref_attr_name = "absent"


def no_attributes(random: Random, model: onnx.ModelProto) -> None:
    del _node(random, model).attribute[:]


def lying_types(random: Random, model: onnx.ModelProto) -> None:
    graph = _graph(random, model)
    values = [*graph.input, *graph.output, *graph.value_info]
    names = [name for node in graph.node for name in node.output] or ["x"]
    if not values or random.one(0.3):
        values = [graph.value_info.add(name=random.choice(names))]
    value = random.choice(values)
    way = random.randrange(4)
    tensor = value.type.tensor_type
    if way == 0:
        tensor.elem_type = random.choice((*range(26), 1 << 20))
    elif way == 1:
        tensor.shape.dim.add(dim_value=random.choice(HUGE))
    elif way == 2 and tensor.shape.dim:
        random.choice(tensor.shape.dim).dim_value = random.choice(HUGE)
    else:
        value.type.Clear()
        if random.one(0.5):
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def cycle(random: Random, model: onnx.ModelProto) -> None:
    graph = _graph(random, model)
    if not graph.node:
        return
    first, last = random.choice(graph.node), random.choice(graph.node)
    if first.input and last.output:
        first.input[random.randrange(len(first.input))] = last.output[0]


def other_order(random: Random, model: onnx.ModelProto) -> None:
    graph = _graph(random, model)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    random.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def fewer_nodes(random: Random, model: onnx.ModelProto) -> None:
    graph = _graph(random, model)
    if graph.node:
        del graph.node[random.randrange(len(graph.node))]


def same_names(random: Random, model: onnx.ModelProto) -> None:
    graph = _graph(random, model)
    if random.one(0.5) and len(graph.initializer) > 1:
        graph.initializer[0].name = graph.initializer[-1].name
    for node in graph.node:
        node.name = random.choice(("same", "", "[bold]x[/]\n\t\N{SNOWMAN}"))


def other_opset(random: Random, model: onnx.ModelProto) -> None:
    way = random.randrange(4)
    if way == 0:
        del model.opset_import[:]
    elif way == 1 and model.opset_import:
        model.opset_import[0].version = random.choice(
            (0, 1, 5, 6, 8, 10, 12, 23, 30, 10**6, -1, 1 << 62)
        )
    elif way == 2:
        model.opset_import.add(domain="", version=random.choice((7, 13, 23)))
    else:
        model.ir_version = random.choice((0, 1, 2, 3, 4, 7, 99, -1))


def missing_ends(random: Random, model: onnx.ModelProto) -> None:
    way = random.randrange(4)
    if way == 0:
        del model.graph.input[:]
    elif way == 1:
        del model.graph.output[:]
    elif way == 2:
        model.graph.output.add(name="nowhere")
    else:
        model.graph.output.extend(list(model.graph.output))


def recursion(random: Random, model: onnx.ModelProto) -> None:
    """Add functions that call themselves, or each other, or two of the next each."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    way = random.randrange(3)
    calls = {"F0": ["F0"]} if way == 0 else {"F0": ["F1"], "F1": ["F0"]}
    if way == 2:
        calls = {f"F{k}": [f"F{k + 1}"] * 2 for k in range(40)} | {"F40": []}
    for name, called in calls.items():
        nodes = [
            helper.make_node(other, ["a"], [f"b{k}"], domain="own")
            for k, other in enumerate(called)
        ]
        nodes.append(helper.make_node("Relu", ["a"], ["b"]))
        function = helper.make_function("own", name, ["a"], ["b"], nodes, opset)
        model.functions.append(function)
    model.opset_import.extend([helper.make_opsetid("own", 1)])
    model.graph.node.extend([helper.make_node("F0", [_names(model)[0]], ["called"], domain="own")])


def growth(random: Random, model: onnx.ModelProto) -> None:
    """Add constants that a few bytes make huge."""
    extents = numpy_helper.from_array(
        np.array([1 << 20, 1 << random.choice((4, 12, 20))]), "extents"
    )
    one = numpy_helper.from_array(np.ones((1, 1), np.float32), "one one")
    node = random.choice(
        (
            helper.make_node("ConstantOfShape", ["extents"], ["huge"]),
            helper.make_node("Expand", ["one one", "extents"], ["huge"]),
            helper.make_node("Tile", ["one one", "extents"], ["huge"]),
            helper.make_node("Pad", ["one one", "twice"], ["huge"]),
        )
    )
    model.graph.initializer.extend([extents, one])
    model.graph.node.append(node)
    target = _node(random, model)
    if target.input and target is not node:
        target.input[-1] = "huge"


def deep(random: Random, model: onnx.ModelProto) -> None:
    """Add subgraphs within subgraphs."""
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "inner", [], [])
    for _ in range(random.choice((5, 20, 30))):
        node = helper.make_node(
            "If", ["c"], ["y"], then_branch=graph, else_branch=onnx.GraphProto()
        )
        graph = helper.make_graph([node], "outer", [], [])
    model.graph.node.extend(graph.node)


def crowded(random: Random, model: onnx.ModelProto) -> None:
    """Add thousands of attributes or inputs to one node."""
    node = _node(random, model)
    count = random.choice((100, 3000))
    if random.one(0.5):
        for index in range(count):
            node.attribute.add(name=f"a{index}", i=index, type=AttributeProto.INT)
    else:
        node.input.extend(["x"] * count)


def sparse(random: Random, model: onnx.ModelProto) -> None:
    indices = numpy_helper.from_array(np.array([random.choice(HUGE)]), "i")
    values = numpy_helper.from_array(np.ones(1, np.float32), random.choice(_names(model)))
    model.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=values, indices=indices, dims=[random.choice(HUGE)])
    )


def initial_values(random: Random, model: onnx.ModelProto) -> None:
    """Give a graph input, or what a node computes, initial values."""
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(np.ones(random.choice((1, 3)), np.float32)))
    tensor.name = random.choice([*_names(model), *(value.name for value in model.graph.input)])


MUTATIONS: tuple[Mutation, ...] = (
    *(lying_extents, other_type, short_values, strange_values, strange_values, external),
    *(wrong_inputs, wrong_inputs, wrong_outputs, other_operator, other_operator),
    *(wrong_attribute, wrong_attribute, wrong_attribute, no_attributes, lying_types, lying_types),
    *(cycle, other_order, fewer_nodes, same_names, other_opset, missing_ends, recursion, growth),
    *(deep, crowded, sparse, initial_values),
)
