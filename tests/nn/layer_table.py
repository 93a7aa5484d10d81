"""Every layer with a small configuration and an input: what the tests of all layers, and the comparisons, go over."""

from dataclasses import dataclass, field

import numpy as np

import numtape as nt
from numtape import nn


def values(*shape, seed=0):
    """Return numbers away from 0, where many activations have kinks, and from each other."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    spread = np.linspace(0.07, 1.9, count) * np.where(np.arange(count) % 2, 1.0, -1.0)
    return rng.permutation(spread).reshape(shape)


@dataclass
class Case:
    """One configuration of one layer."""

    name: str
    arguments: dict
    inputs: tuple
    shape: tuple
    #: An input of a shape that the layer must refuse; None if any shape is right.
    wrong: object = None
    #: Whether PyTorch has the layer, with the same arguments.
    has_peer: bool = True
    #: Keyword arguments of the call.
    options: dict = field(default_factory=dict)
    #: How near PyTorch's own float64 comes to the exact value.
    peer_error: float = 1e-10

    def __str__(self):
        given = ",".join(f"{k}={v}" for k, v in self.arguments.items() if not hasattr(v, "shape"))
        return f"{self.name}({given})"

    def make(self, dtype=nt.float64, rng=0):
        """Return the layer with random values in all parameters, so that none hides at 0 or 1."""
        nt.seed(rng)
        layer = getattr(nn, self.name)(**self.arguments).to(dtype)
        generator = np.random.default_rng(rng)
        with nt.no_grad():
            for parameter in layer.parameters():
                parameter[...] = (0.5 * generator.standard_normal(parameter.shape)).astype(dtype)
            for path, buffer in layer.named_buffers():
                if path.endswith(("running_mean", "running_var")):
                    buffer[...] = generator.uniform(0.5, 1.5, buffer.shape).astype(dtype)
        return layer


def case(name, inputs, shape, wrong=None, has_peer=True, options=None, peer_error=1e-10, **arguments):
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return Case(name, arguments, inputs, shape, wrong, has_peer, options or {}, peer_error)


SEQUENCE = values(3, 2, 2)
IMAGE = values(2, 4, 5, 5)
MATRIX = values(3, 4)
MASK = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.array([[False, False, True], [False, True, False]])
TOKENS = values(2, 3, 4)

LAYERS = [
    case("Linear", values(3, 4), (3, 2), values(3, 5), in_features=4, out_features=2),
    case("Linear", values(2, 3, 4), (2, 3, 2), values(4, 3), in_features=4, out_features=2, bias=False),
    case("Linear", values(4), (2,), values(3), in_features=4, out_features=2),
    case("Conv1d", values(2, 4, 6), (2, 3, 5), values(2, 3, 6), in_channels=4, out_channels=3, kernel_size=2),
    case(
        "Conv1d",
        values(4, 6),
        (2, 6),
        values(1, 3, 6),
        in_channels=4,
        out_channels=2,
        kernel_size=3,
        padding="same",
        groups=2,
        bias=False,
    ),
    case("Conv2d", IMAGE, (2, 3, 3, 3), values(2, 3, 5, 5), in_channels=4, out_channels=3, kernel_size=3),
    case(
        "Conv2d",
        IMAGE,
        (2, 2, 3, 2),
        values(5, 5),
        in_channels=4,
        out_channels=2,
        kernel_size=(3, 2),
        stride=2,
        padding=(1, 0),
        groups=2,
    ),
    *(
        case(
            "Conv2d",
            IMAGE,
            (2, 3, 5, 5),
            values(2, 3, 5, 5),
            in_channels=4,
            out_channels=3,
            kernel_size=(3, 2),
            padding="same",
            padding_mode=mode,
        )
        for mode in ("reflect", "replicate", "circular")
    ),
    case(
        "Conv1d",
        values(2, 4, 5),
        (2, 3, 4),
        values(2, 3, 5),
        in_channels=4,
        out_channels=3,
        kernel_size=3,
        stride=2,
        padding=2,
        padding_mode="circular",
    ),
    case("Conv2d", IMAGE, (2, 1, 3, 3), values(4, 5), in_channels=4, out_channels=1, kernel_size=2, dilation=2),
    case(
        "ConvTranspose1d",
        values(2, 4, 3),
        (2, 3, 6),
        values(4, 4, 4, 4),
        in_channels=4,
        out_channels=3,
        kernel_size=2,
        stride=2,
    ),
    case(
        "ConvTranspose2d", values(2, 4, 3, 3), (2, 3, 4, 4), values(3, 3), in_channels=4, out_channels=3, kernel_size=2
    ),
    case(
        "ConvTranspose2d",
        values(1, 2, 3, 3),
        (1, 4, 6, 6),
        values(1, 3, 3, 3),
        in_channels=2,
        out_channels=4,
        kernel_size=3,
        stride=2,
        padding=1,
        output_padding=1,
        groups=2,
    ),
    case("BatchNorm1d", values(5, 3), (5, 3), values(5, 4), num_features=3),
    case("BatchNorm1d", values(2, 3, 4), (2, 3, 4), values(3), num_features=3, affine=False),
    case("BatchNorm2d", IMAGE, IMAGE.shape, values(2, 4), num_features=4),
    case("BatchNorm2d", IMAGE, IMAGE.shape, values(2, 3, 5, 5), num_features=4, track_running_stats=False),
    case("BatchNorm2d", IMAGE, IMAGE.shape, values(4, 5, 5), num_features=4, momentum=None),
    case("LayerNorm", MATRIX, MATRIX.shape, values(3, 5), normalized_shape=4),
    case("LayerNorm", values(2, 3, 4), (2, 3, 4), values(3, 2, 4), normalized_shape=(3, 4), bias=False),
    case("GroupNorm", IMAGE, IMAGE.shape, values(2, 3, 5, 5), num_groups=2, num_channels=4),
    case("InstanceNorm2d", IMAGE, IMAGE.shape, values(2, 3, 5, 5), num_features=4, affine=True),
    case("InstanceNorm2d", IMAGE, IMAGE.shape, values(2, 4), num_features=4),
    case("RMSNorm", MATRIX, MATRIX.shape, values(3, 5), normalized_shape=4),
    case("RMSNorm", MATRIX, MATRIX.shape, values(4, 3), normalized_shape=(4,), eps=1e-3),
    case("MaxPool1d", values(2, 3, 6), (2, 3, 3), values(2, 3, 4, 6), kernel_size=2),
    case("MaxPool2d", IMAGE, (2, 4, 3, 3), values(5, 5), kernel_size=3, stride=2, padding=1),
    case("MaxPool2d", IMAGE, (2, 4, 3, 3), values(5, 5), kernel_size=2, ceil_mode=True),
    case("MaxPool2d", IMAGE, (2, 4, 3, 3), values(5, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True),
    case("MaxPool2d", IMAGE, (2, 4, 2, 2), values(5, 5), kernel_size=2, stride=3, dilation=2, ceil_mode=True),
    case("AvgPool2d", IMAGE, (2, 4, 3, 3), values(5, 5), kernel_size=3, stride=2, padding=1, divisor_override=2),
    case("AvgPool1d", values(2, 3, 6), (2, 3, 2), values(2, 3, 4, 6), kernel_size=3),
    case("AvgPool2d", IMAGE, (2, 4, 3, 3), values(5, 5), kernel_size=3, stride=2, padding=1, count_include_pad=False),
    case("AdaptiveAvgPool1d", values(2, 3, 7), (2, 3, 3), values(7), output_size=3),
    case("AdaptiveAvgPool2d", IMAGE, (2, 4, 2, 3), values(5, 5), output_size=(2, 3)),
    case("Dropout", MATRIX, MATRIX.shape, p=0.0),
    case("Dropout1d", SEQUENCE, SEQUENCE.shape, values(3), p=0.0),
    case("Dropout2d", IMAGE, IMAGE.shape, values(3, 3), p=0.0),
    case("Embedding", np.array([[0, 2], [3, 2]]), (2, 2, 3), np.array([5]), num_embeddings=4, embedding_dim=3),
    case("Embedding", np.array([0, 1, 1]), (3, 3), np.array([0.5]), num_embeddings=4, embedding_dim=3, padding_idx=1),
    case("RNNCell", values(3, 2), (3, 4), values(3, 3), input_size=2, hidden_size=4),
    case("RNNCell", values(2), (4,), values(3), input_size=2, hidden_size=4, nonlinearity="relu", bias=False),
    case("LSTMCell", values(3, 2), (3, 4), values(3, 3), input_size=2, hidden_size=4),
    case("LSTMCell", values(2), (4,), values(3), input_size=2, hidden_size=4, bias=False),
    case("GRUCell", values(3, 2), (3, 4), values(3, 3), input_size=2, hidden_size=4),
    case("GRUCell", values(2), (4,), values(3), input_size=2, hidden_size=4, bias=False),
    case("RNN", SEQUENCE, (3, 2, 4), values(3, 2, 3), input_size=2, hidden_size=4),
    case("RNN", SEQUENCE, (3, 2, 3), values(3), input_size=2, hidden_size=3, nonlinearity="relu", bias=False),
    case("RNN", values(3, 2), (3, 4), values(3, 3), input_size=2, hidden_size=2, num_layers=2, bidirectional=True),
    case("LSTM", SEQUENCE, (3, 2, 3), values(3, 2, 3), input_size=2, hidden_size=3),
    case(
        "LSTM",
        (values(2, 3, 2), (values(4, 2, 1, seed=1), values(4, 2, 1, seed=2))),
        (2, 3, 2),
        input_size=2,
        hidden_size=1,
        num_layers=2,
        bidirectional=True,
        batch_first=True,
    ),
    case("GRU", SEQUENCE, (3, 2, 3), values(3, 2, 3), input_size=2, hidden_size=3),
    case(
        "GRU",
        (SEQUENCE, values(4, 2, 1, seed=1)),
        (3, 2, 2),
        input_size=2,
        hidden_size=1,
        num_layers=2,
        bidirectional=True,
        bias=False,
    ),
    case("MultiheadAttention", (TOKENS,) * 3, (2, 3, 4), values(2, 3, 5), embed_dim=4, num_heads=2, batch_first=True),
    case(
        "MultiheadAttention",
        (TOKENS, values(2, 3, 4, seed=1), values(2, 3, 4, seed=2)),
        (2, 3, 4),
        embed_dim=4,
        num_heads=4,
        batch_first=True,
        bias=False,
        options=dict(attn_mask=MASK, key_padding_mask=PADDING, average_attn_weights=False),
    ),
    case(
        "MultiheadAttention",
        (values(3, 2, 4), values(5, 2, 3, seed=1), values(5, 2, 2, seed=2)),
        (3, 2, 4),
        embed_dim=4,
        num_heads=2,
        kdim=3,
        vdim=2,
        options=dict(need_weights=False),
    ),
    case(
        "MultiheadAttention",
        (values(4, 4),) * 3,
        (4, 4),
        embed_dim=4,
        num_heads=2,
        options=dict(attn_mask=values(4, 4, seed=5)),
    ),
    case(
        "TransformerEncoderLayer",
        TOKENS,
        (2, 3, 4),
        values(2, 3, 5),
        d_model=4,
        nhead=2,
        dim_feedforward=3,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        options=dict(src_mask=MASK, src_key_padding_mask=PADDING),
    ),
    case(
        "TransformerEncoderLayer",
        TOKENS,
        (2, 3, 4),
        values(2, 3, 5),
        d_model=4,
        nhead=2,
        dim_feedforward=3,
        dropout=0.0,
        activation="gelu",
        norm_first=True,
    ),
    case("Flatten", IMAGE, (2, 100)),
    case("Unflatten", MATRIX, (3, 2, 2), values(3, 5), dim=1, unflattened_size=(2, 2)),
    case("Identity", MATRIX, MATRIX.shape),
    case("ReLU", MATRIX, MATRIX.shape),
    case("ReLU6", values(3, 4) * 4.0, MATRIX.shape),
    case("LeakyReLU", MATRIX, MATRIX.shape, negative_slope=0.2),
    case("PReLU", MATRIX, MATRIX.shape),
    case("PReLU", IMAGE, IMAGE.shape, values(2, 3, 5), num_parameters=4),
    case("ELU", MATRIX, MATRIX.shape, alpha=0.7),
    case("CELU", MATRIX, MATRIX.shape, alpha=0.5),
    case("SELU", MATRIX, MATRIX.shape),
    case("GELU", MATRIX, MATRIX.shape),
    case("GELU", MATRIX, MATRIX.shape, approximate="tanh"),
    case("SiLU", MATRIX, MATRIX.shape),
    case("Mish", MATRIX, MATRIX.shape),
    case("Sigmoid", MATRIX, MATRIX.shape),
    case("LogSigmoid", MATRIX, MATRIX.shape),
    case("Tanh", MATRIX, MATRIX.shape),
    case("Tanhshrink", MATRIX, MATRIX.shape),
    case("Softsign", MATRIX, MATRIX.shape),
    case("Softplus", MATRIX, MATRIX.shape, beta=2.0),
    case("Softplus", MATRIX, MATRIX.shape, beta=2.0, threshold=1.0),
    # PyTorch's derivative is 1/6 in float32, whatever the dtype.
    case("Hardsigmoid", MATRIX, MATRIX.shape, peer_error=1e-7),
    case("Hardswish", MATRIX, MATRIX.shape),
    case("Hardtanh", MATRIX, MATRIX.shape, min_val=-0.5, max_val=1.5),
    case("Hardshrink", MATRIX, MATRIX.shape),
    case("Softshrink", MATRIX, MATRIX.shape, lambd=0.3),
    case("Threshold", MATRIX, MATRIX.shape, threshold=0.2, value=-1.0),
    case("Softmax", MATRIX, MATRIX.shape, dim=0),
    case("LogSoftmax", MATRIX, MATRIX.shape, dim=1),
    case("Softmin", MATRIX, MATRIX.shape, dim=1),
    case("GLU", MATRIX, (3, 2), values(3, 5), dim=-1),
]

CLASSES = np.array([1, 3, 0])
SIGNS = np.array([1, -1, 1])
SHARES = np.abs(MATRIX) / np.abs(MATRIX).sum(1, keepdims=True)
LOGS = np.log(SHARES)
TARGET = values(3, 4, seed=3)

LOSSES = [
    case("L1Loss", (MATRIX, TARGET), ()),
    case("MSELoss", (MATRIX, TARGET), (), reduction="sum"),
    case("SmoothL1Loss", (MATRIX, TARGET), (), beta=0.5),
    case("HuberLoss", (MATRIX, TARGET), (3, 4), delta=0.5, reduction="none"),
    case("HingeLoss", (values(3), SIGNS), (), has_peer=False),
    case("KLDivLoss", (LOGS, SHARES[::-1].copy()), (), reduction="batchmean"),
    case("KLDivLoss", (LOGS, LOGS[::-1].copy()), (), reduction="sum", log_target=True),
    case("PoissonNLLLoss", (MATRIX, np.round(np.abs(TARGET) * 3)), ()),
    case("GaussianNLLLoss", (MATRIX, TARGET, np.abs(values(3, 4, seed=4))), (), full=True),
    case("CosineEmbeddingLoss", (MATRIX, TARGET, SIGNS), (), margin=-0.5),
    case("TripletMarginLoss", (MATRIX, TARGET, values(3, 4, seed=6)), (), margin=2.0),
    case("BCELoss", (SHARES, np.round(SHARES)), ()),
    case("BCEWithLogitsLoss", (MATRIX, (TARGET > 0) * 1.0), (), pos_weight=np.array([1.0, 2.0, 0.5, 1.5])),
    case("CrossEntropyLoss", (MATRIX, CLASSES), (), weight=np.array([1.0, 2.0, 0.5, 1.5]), label_smoothing=0.1),
    case("CrossEntropyLoss", (MATRIX, SHARES), (3,), reduction="none"),
    case("CrossEntropyLoss", (MATRIX, CLASSES), (), ignore_index=3),
    case("NLLLoss", (LOGS, CLASSES), (), reduction="sum"),
]
