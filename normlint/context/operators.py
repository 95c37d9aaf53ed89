"""Operators by what they do to a stream of features; those of com.microsoft included."""

from __future__ import annotations

from onnx import TensorProto

OF_SHAPE = frozenset(("Shape", "Size"))
"""Depend on extents, not on data."""

TESTS = frozenset(
    (
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Not",
        "And",
        "Or",
        "Xor",
        "IsNaN",
        "IsInf",
        "ArgMax",
        "ArgMin",
        "NonZero",
    )
)
"""Make masks and numbers out of features."""

INTEGERS_OF_WEIGHTS = frozenset((TensorProto.INT8, TensorProto.UINT8, 0))

CARRIES_FIRST = frozenset(
    (
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Expand",
        "Identity",
        "Cast",
        "CastLike",
        "Dropout",
        "Slice",
        "Pad",
        "Tile",
        "SpaceToDepth",
        "DepthToSpace",
        "Gather",
        "GatherND",
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Neg",
        "Roll",
        "ReverseSequence",
        "BitmaskDropout",
        "RotaryEmbedding",
        "Compress",
    )
)
"""Pass their first input on."""

SUMS = frozenset(("Add", "Sum", "QLinearAdd"))
COMBINES = frozenset(
    (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Sum",
        "Where",
        "Concat",
        "QLinearAdd",
        "QLinearMul",
        "QLinearConcat",
        "BiasAdd",
        "BiasSplitGelu",
    )
)
"""Pass data on where all else is known."""

POINTWISE = frozenset(
    (
        "Relu",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "Gelu",
        "FastGelu",
        "BiasGelu",
        "Swish",
        "QuickGelu",
        "HardSwish",
        "HardSigmoid",
        "Mish",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Clip",
        "ThresholdedRelu",
        "Erf",
        "Softsign",
        "Max",
        "Min",
        "Mul",
        "Add",
        "Sub",
        "Div",
        "Pow",
        "Exp",
        "Abs",
        "Where",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearMul",
        "QLinearAdd",
        "Sqrt",
        "Reciprocal",
    )
)
"""Activation functions and what they are spelled with."""

ROTATES = frozenset(("Split", "Concat", "Mul", "Sub", "Where", "QLinearMul", "QLinearConcat"))
"""What position embeddings that rotate are spelled with, besides sums."""

STATISTICS = frozenset(
    (
        "ReduceMean",
        "ReduceSum",
        "ReduceSumSquare",
        "ReduceL2",
        "ReduceL1",
        "ReduceMax",
        "ReduceMin",
        "QLinearReduceMean",
    )
)
"""What normalisations that nobody recognised are spelled with besides."""

MIXERS = frozenset(("AveragePool", "DFT", "STFT"))
"""Mix tokens with no weights: what stands for attention in PoolFormer and FNet."""

POOLS = frozenset(
    (
        "ReduceMean",
        "ReduceMax",
        "ReduceSum",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "AveragePool",
        "MaxPool",
        "LpPool",
        "QLinearGlobalAveragePool",
        "QLinearAveragePool",
    )
)

CONVOLUTIONS: dict[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "ConvInteger": (1,),
    "QLinearConv": (3,),
    "FusedConv": (1,),
    "NhwcFusedConv": (1,),
    "NhwcConv": (1,),
    "DeformConv": (1,),
    "ConvTransposeWithDynamicPads": (1,),
}
PRODUCTS: dict[str, tuple[int, ...]] = {
    "MatMul": (0, 1),
    "Einsum": (0, 1),
    "Gemm": (0, 1),
    "FusedMatMul": (0, 1),
    "FusedGemm": (0, 1),
    "TransposeMatMul": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearMatMul": (0, 3),
    "QGemm": (0, 3),
    "MatMulIntegerToFloat": (0, 1),
    "DynamicQuantizeMatMul": (0, 1),
    "MatMulNBits": (1,),
    "MatMulBnb4": (1,),
    "MatMulFpQ4": (1,),
    "GemmFloat8": (0, 1),
}
RECURRENCES: dict[str, tuple[int, ...]] = {
    "LSTM": (1,),
    "GRU": (1,),
    "RNN": (1,),
    "DynamicQuantizeLSTM": (1,),
}
_WEIGHTED_ATTENTIONS: dict[str, tuple[int, ...]] = {
    "QAttention": (1,),
    "PackedAttention": (1,),
    "LongformerAttention": (1,),
    "DecoderAttention": (2,),
    "DecoderMaskedSelfAttention": (1,),
}
LEARNED: dict[str, tuple[int, ...]] = {
    **CONVOLUTIONS,
    **PRODUCTS,
    **RECURRENCES,
    **_WEIGHTED_ATTENTIONS,
    "MoE": (2,),
    "QMoE": (2,),
}
"""Linear operators and recurrences, with the inputs that may be weights."""

ATTENTIONS = frozenset(
    (
        "Attention",
        "MultiHeadAttention",
        "GroupQueryAttention",
        "PackedMultiHeadAttention",
        "DecoderMaskedMultiHeadAttention",
        "SparseAttention",
        "PagedAttention",
        *_WEIGHTED_ATTENTIONS,
    )
)
"""Whole attentions."""

ADDED_OPERAND = {"Gemm": 2, "FusedGemm": 2, "FusedConv": 3, "NhwcFusedConv": 3}
"""Which input a fused linear operator adds to its product."""

SKIP_NORMS = {
    "SkipLayerNormalization": (0, 1, 4, 3),
    "SkipSimplifiedLayerNormalization": (0, 1, 3, 3),
    "SkipGroupNorm": (0, 3, 4, 1),
}
"""Normalisations that add first: two terms and the bias among the inputs, the sum's output."""
