"""Makes the models of this folder: real exports of small PyTorch networks, and files that are none.

    pip install torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
    python sample_models/make.py

Weights are random. Scales, biases and running statistics are moved away from 1 and 0, as training
would, because a fold that does nothing proves nothing. PyTorch is needed here and nowhere else.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import networks
import numpy as np
import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
EVALUATION = torch.onnx.TrainingMode.EVAL
# Keeps the BatchNormalization nodes, which the exporter folds when it knows that it evaluates.
PRESERVE = torch.onnx.TrainingMode.PRESERVE
TRAINING = torch.onnx.TrainingMode.TRAINING
SOURCE_PATH = re.compile(r'File "[^"]*?(?:site-packages/)?((?:torch/[^"]*|[^"/]*)\.py)"')


def main() -> None:
    """Write every model beside this script, the faulty ones under `broken/`."""
    torch.manual_seed(7)
    image = torch.randn(1, 3, 16, 16)
    tokens = torch.randint(0, 32, (1, 8))

    export("bert_12_layers", jitter(networks.Bert(layers=12)), tokens, opset=17)
    export("vit_opset_13", jitter(networks.VisionTransformer()), image, opset=13)
    export("unet_conv_transpose", jitter(networks.UNet()), image, opset=13, training=PRESERVE)
    export("resnet_batch_norm", jitter(networks.ResNet()), image, opset=17, training=PRESERVE)
    export("resnet_folded", jitter(networks.ResNet()), image, opset=17)
    export("style_transfer", jitter(networks.StyleTransfer()), image, opset=13)
    export(
        "batch_norm_transformer",
        jitter(networks.BatchNormTransformer()),
        torch.randn(1, 10, 6),
        opset=13,
        training=PRESERVE,
    )
    export(
        "tabular_in_training_mode",
        jitter(networks.Tabular()),
        torch.randn(4, 13),
        opset=17,
        training=TRAINING,
    )
    export("own_layer_norm_keepdim", jitter(networks.OwnLayerNorm()), torch.randn(8, 8), opset=17)
    export(
        "misaligned_import",
        misaligned(jitter(networks.ResNet())),
        image,
        opset=13,
        training=PRESERVE,
    )
    quantize("encoder_int8", jitter(networks.Encoder()), torch.randn(1, 8, 16))

    export_dynamo("gpt2_blocks", jitter(networks.Gpt2()), tokens)
    export_dynamo("llama_opset_18", jitter(networks.Llama()), tokens)
    export_dynamo("swin_v2_block", jitter(networks.SwinV2()), torch.randn(1, 16, 12))
    export_dynamo("preact_resnet", jitter(networks.PreActResNet()), image, optimize=False)

    faulty_files(HERE / "broken")


def jitter(network: nn.Module) -> nn.Module:
    """Return the network in evaluation mode, its norms as if trained; always the same values."""
    generator = torch.Generator().manual_seed(7)

    def normal(tensor: torch.Tensor, centre: float, spread: float) -> torch.Tensor:
        return centre + spread * torch.randn(tensor.shape, generator=generator)

    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                fan_in = parameter[0].numel()
                parameter.copy_(normal(parameter, 0.0, fan_in**-0.5))
            else:
                parameter.copy_(normal(parameter, 0.0, 0.1))
        for module in network.modules():
            if hasattr(module, "weight") and "Norm" in type(module).__name__:
                module.weight.copy_(normal(module.weight, 1.0, 0.2))
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.copy_(normal(module.running_mean, 0.0, 0.3))
                module.running_var.copy_(normal(module.running_var, 1.0, 0.2).abs() + 0.1)
    return network.eval()


def misaligned(network: nn.Module) -> nn.Module:
    """Give every BatchNorm a negative first variance, as an importer does that is one value off."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_var[0] = -0.5
    return network


def export(
    name: str,
    network: nn.Module,
    inputs: torch.Tensor,
    *,
    opset: int,
    training: torch.onnx.TrainingMode = EVALUATION,
) -> None:
    """Export with the older, TorchScript-based exporter."""
    if training is TRAINING:
        network.train()
    path = HERE / f"{name}.onnx"
    torch.onnx.export(
        network,
        (inputs,),
        path,
        dynamo=False,
        opset_version=opset,
        training=training,
        do_constant_folding=training is EVALUATION,
        input_names=["input"],
        output_names=["output"],
    )
    finish(path)


def export_dynamo(
    name: str, network: nn.Module, inputs: torch.Tensor, *, optimize: bool = True
) -> None:
    """Export with the newer exporter, which notes module and source line at every node."""
    path = HERE / f"{name}.onnx"
    torch.onnx.export(
        network,
        (inputs,),
        path,
        dynamo=True,
        opset_version=18,
        optimize=optimize,
        external_data=False,
        verbose=False,
        input_names=["input"],
        output_names=["output"],
    )
    finish(path)


def quantize(name: str, network: nn.Module, inputs: torch.Tensor) -> None:
    """Export, then quantise to int8, with QuantizeLinear and DequantizeLinear around every op."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "float.onnx"
        torch.onnx.export(
            network,
            (inputs,),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["input"],
            output_names=["output"],
        )
        quantize_static(
            path, HERE / f"{name}.onnx", Samples(inputs.shape), quant_format=QuantFormat.QDQ
        )
    finish(HERE / f"{name}.onnx")


class Samples(CalibrationDataReader):
    """Eight random inputs to calibrate with."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(7)
        self.samples: Iterator[np.ndarray] = iter(
            random.standard_normal((8, *shape)).astype(np.float32)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next input by name, None at the end."""
        sample = next(self.samples, None)
        return None if sample is None else {"input": sample}


def finish(path: Path) -> None:
    """Keep the file names of the exporter's stack traces, drop this machine's folders."""
    model = onnx.load(path)
    for node in model.graph.node:
        for entry in node.metadata_props:
            entry.value = SOURCE_PATH.sub(r'File "\1"', entry.value)
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(path)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} kB, {len(model.graph.node)} nodes")


def faulty_files(folder: Path) -> None:
    """Write what people really hand to a linter by accident."""
    folder.mkdir(exist_ok=True)
    good = (HERE / "style_transfer.onnx").read_bytes()
    (folder / "lfs_pointer.onnx").write_text(
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4cac19622fc3ada9c0fdeadb33f88f367b541f38b89102a3f1261ac81fd5bcb5\n"
        "size 102442450\n"
    )
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "web_page.onnx").write_text(
        "<!DOCTYPE html>\n<html><body>Sign in to download</body></html>\n"
    )
    (folder / "interrupted_download.onnx").write_bytes(good[: len(good) // 2])
    with_side_file(folder / "side_file_missing.onnx", "side_file_missing.onnx.data")
    with_side_file(folder / "side_file_outside.onnx", "../../../weights.bin")


def with_side_file(path: Path, location: str) -> None:
    """Write a model whose weights are said to be at `location`; nothing is."""
    model = onnx.load(HERE / "style_transfer.onnx")
    offset = 0
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < 256:
            continue
        length = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
