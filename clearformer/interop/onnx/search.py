"""Greedy search inside an ONNX graph, as a Loop whose body is the decoder.

    tokens = [first]
    repeat at most max_new times, until all rows have ended:
        next = argmax logits(tokens)                       EOS in rows that have ended
        logprob = log softmax(logits)[next]                0 in rows that have ended
        tokens = [tokens, next]

The body sees the values around it, such as the encoder's output, and all weights; equal weights are stored once. A
recurrent network reads only the last token, and the loop carries its state: logits, state = step(last, state).
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any


def translator(encoder: Any, decoder: Any, first: int, eos: int) -> Any:
    """Join an encoder (source, mask -> memory …) and a decoder to source, mask, max_new -> tokens, logprobs (B, T)."""
    from onnx import TensorProto, helper

    renamed(encoder, "encoder/")
    renamed(decoder, "decoder/")
    nodes = [
        *encoder.graph.node,
        helper.make_node("Shape", ["source"], ["batch"], start=0, end=1),
        constant("one_column", [1]),
        helper.make_node("Concat", ["batch", "one_column"], ["first_shape"], axis=0),
        helper.make_node(
            "ConstantOfShape", ["first_shape"], ["first"], value=helper.make_tensor("", TensorProto.INT64, [1], [first])
        ),
        *loop(decoder, "first", eos),
        constant("after_first", [1]),
        constant("end", [2**31 - 1]),
        constant("axis", [1]),
        helper.make_node("Slice", ["all_tokens", "after_first", "end", "axis"], ["tokens"]),
    ]
    inputs = [
        helper.make_tensor_value_info("source", TensorProto.INT64, ["batch", "source"]),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, ["batch", "source"]),
        helper.make_tensor_value_info("max_new", TensorProto.INT64, []),
    ]
    return model(nodes, inputs, [encoder, decoder])


def generator(decoder: Any, eos: int, start: Any = None) -> Any:
    """Turn a decoder (tokens -> logits) into prompt, max_new -> tokens, logprobs (B, T), a continuation with its EOS.

    `start` is the graph of a recurrent network that computes the state before the last token of the prompt.
    """
    from onnx import TensorProto, helper

    parts = [decoder] if start is None else [start, decoder]
    for part, prefix in zip(reversed(parts), ("decoder/", "start/")):
        renamed(part, prefix)
    nodes = [
        *([] if start is None else start.graph.node),
        *loop(decoder, "prompt", eos),
        helper.make_node("Shape", ["prompt"], ["prompt_length"], start=1, end=2),
        constant("end", [2**31 - 1]),
        constant("axis", [1]),
        helper.make_node("Slice", ["all_tokens", "prompt_length", "end", "axis"], ["tokens"]),
    ]
    inputs = [
        helper.make_tensor_value_info("prompt", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("max_new", TensorProto.INT64, []),
    ]
    return model(nodes, inputs, parts)


def loop(decoder: Any, first: str, eos: int) -> list[Any]:
    """The nodes that search from the tokens `first`, (B, t), on: they write `all_tokens` and `logprobs`, (B, T)."""
    from onnx import TensorProto, helper

    states = [value for value in decoder.graph.input if value.name == "state_before"]
    new_states = [value for value in decoder.graph.output if value.name == "state_after"]
    body = helper.make_graph(
        [
            *(last_token() if states else []),
            *decoder.graph.node,
            helper.make_node("ArgMax", ["logits"], ["best"], axis=1, keepdims=1),
            constant("eos_here", eos),
            helper.make_node("Where", ["ended_before", "eos_here", "best"], ["next"]),
            helper.make_node("Concat", ["tokens_before", "next"], ["tokens_after"], axis=1),
            helper.make_node("LogSoftmax", ["logits"], ["all_logprobs"], axis=1),
            helper.make_node("GatherElements", ["all_logprobs", "next"], ["logprob_of_next"], axis=1),
            constant("zero", 0.0),
            helper.make_node("Where", ["ended_before", "zero", "logprob_of_next"], ["logprob"]),
            helper.make_node("Equal", ["next", "eos_here"], ["is_eos"]),
            helper.make_node("Or", ["ended_before", "is_eos"], ["ended_after"]),
            helper.make_node("Cast", ["ended_after"], ["ended_number"], to=TensorProto.INT64),
            helper.make_node("ReduceMin", ["ended_number"], ["all_ended"], keepdims=0),
            helper.make_node("Cast", ["all_ended"], ["is_over"], to=TensorProto.BOOL),
            helper.make_node("Not", ["is_over"], ["goes_further"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("tokens_before", TensorProto.INT64, ["batch", None]),
            helper.make_tensor_value_info("ended_before", TensorProto.BOOL, ["batch", 1]),
            *states,
        ],
        [
            helper.make_tensor_value_info("goes_further", TensorProto.BOOL, []),
            helper.make_tensor_value_info("tokens_after", TensorProto.INT64, ["batch", None]),
            helper.make_tensor_value_info("ended_after", TensorProto.BOOL, ["batch", 1]),
            *new_states,
            helper.make_tensor_value_info("logprob", TensorProto.FLOAT, ["batch", 1]),
        ],
    )
    carried, results = (["state"], ["last_state"]) if states else ([], [])
    return [
        constant("column", 0),
        helper.make_node("Gather", [first, "column"], ["first_column"], axis=1),
        constant("column_axis", [1]),
        helper.make_node("Unsqueeze", ["first_column", "column_axis"], ["one_each"]),
        constant("no_token", -1),
        helper.make_node("Equal", ["one_each", "no_token"], ["none_ended"]),  # (B, 1), all False
        helper.make_node(
            "Loop",
            ["max_new", "", first, "none_ended", *carried],
            ["all_tokens", "ended", *results, "logprobs_by_step"],  # the last one is (T, B, 1)
            body=body,
        ),
        constant("logprob_axis", [2]),
        helper.make_node("Squeeze", ["logprobs_by_step", "logprob_axis"], ["logprobs_by_time"]),
        helper.make_node("Transpose", ["logprobs_by_time"], ["logprobs"], perm=[1, 0]),
    ]


def last_token() -> list[Any]:
    """The nodes that write `last`, (B, 1), the last column of the tokens so far."""
    from onnx import helper

    ends = [constant("minus_one", [-1]), constant("no_end", [2**31 - 1]), constant("token_axis", [1])]
    return [*ends, helper.make_node("Slice", ["tokens_before", "minus_one", "no_end", "token_axis"], ["last"])]


def constant(name: str, value: float | list[int]) -> Any:
    from onnx import TensorProto, helper

    values: list[Any] = value if isinstance(value, list) else [value]
    shape = [len(values)] if isinstance(value, list) else []
    dtype = TensorProto.FLOAT if isinstance(value, float) else TensorProto.INT64
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", dtype, shape, values))


# Names that mean the same in all parts. A decoder without a state reads all tokens before the next one.
KEPT = ("source", "mask", "memory", "keys", "state", "prompt", "last", "state_before", "state_after", "logits")
NAMES = {name: name for name in KEPT} | {"target": "tokens_before", "tokens": "tokens_before"}


def renamed(part: Any, prefix: str) -> None:
    """Rename all values of a model in place: the inputs and outputs as in `NAMES`, all others with a prefix."""
    assert not part.functions, "the exporter has written functions"
    names = {value.name: NAMES[value.name] for value in (*part.graph.input, *part.graph.output)}
    rename(part.graph, prefix, names)


def rename(graph: Any, prefix: str, names: Mapping[str, str]) -> None:
    def new(name: str) -> str:
        return names.get(name, prefix + name) if name else name

    for node in graph.node:
        node.name = prefix + node.name
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
        for inner in (attribute.g for attribute in node.attribute if attribute.HasField("g")):  # the body of a Scan
            del inner.value_info[:]
            for value in (*inner.input, *inner.output):
                value.name = new(value.name)
            rename(inner, prefix, names)
    for weight in graph.initializer:
        weight.name = new(weight.name)


def model(nodes: list[Any], inputs: list[Any], parts: list[Any]) -> Any:
    """Make a checked model that writes `tokens` and `logprobs`, with the weights of its parts."""
    import onnx
    from onnx import TensorProto, helper

    weights: dict[Any, Any] = {}
    same: dict[str, str] = {}
    for weight in (weight for part in parts for weight in part.graph.initializer):
        key = weight.data_type, tuple(weight.dims), sha256(onnx.numpy_helper.to_array(weight).tobytes()).digest()
        same[weight.name] = weights.setdefault(key, weight).name
    share(nodes, same)
    outputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", None]),
        helper.make_tensor_value_info("logprobs", TensorProto.FLOAT, ["batch", None]),
    ]
    graph = helper.make_graph(nodes, "search", inputs, outputs, initializer=list(weights.values()))
    opsets = {(entry.domain, entry.version): entry for part in parts for entry in part.opset_import}
    result = helper.make_model(graph, opset_imports=list(opsets.values()), producer_name="clearformer")
    result.ir_version = parts[0].ir_version
    onnx.checker.check_model(result)
    return result


def share(nodes: list[Any], same: Mapping[str, str]) -> None:
    """Let the nodes, also those inside loops, read the weight that is kept of several equal ones."""
    for node in nodes:
        node.input[:] = [same.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                share(attribute.g.node, same)
