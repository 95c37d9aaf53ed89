"""A report made by hand: every kind of finding that a format has to show."""

from __future__ import annotations

from dataclasses import replace

from normlint.fingerprint import with_fingerprints
from normlint.results import (
    Finding,
    FixReport,
    ModelReport,
    NotFixedReport,
    Report,
    Step,
    Suppressed,
    Verification,
    WrittenReport,
)
from normlint.rule import Severity

PICTURE = (
    Step("/in/Add", "Add", ("a", "b"), ("t0",), "near"),
    Step("/norm/ReduceMean", "ReduceMean", ("t0",), ("t1",)),
    Step("/norm/Sub", "Sub", ("t0", "t1"), ("t2",)),
    Step("/norm/Div", "Div", ("t2", "t1"), ("t3",)),
)
PROOF = Verification("region", 3e-7, 4e-7, 1e-5, 8)
FIX = FixReport(
    "safe",
    "replace by LayerNormalization(axis=-1, epsilon=1e-05)",
    picture=(PICTURE[0], Step("t3", "LayerNormalization", ("t0",), ("t3",), "new")),
)


def layer_norm(layer: int) -> Finding:
    return Finding(
        code="NL201",
        rule="decomposed-layer-norm",
        severity=Severity.WARNING,
        message="9 nodes can be one LayerNormalization",
        node=f"/layer.{layer}/norm/ReduceMean",
        op_type="ReduceMean",
        output=f"t{layer}",
        nodes=(f"/layer.{layer}/norm/ReduceMean", f"/layer.{layer}/norm/Add_1"),
        module=f"layer.{layer}.norm",
        source="model.py:118",
        evidence={"axes": [-1], "epsilon": 1e-5},
        fix=FIX,
        picture=PICTURE,
    )


FIXED = Finding(
    code="NL101",
    rule="unfolded-batch-norm",
    severity=Severity.WARNING,
    message="a BatchNorm can go into the Conv in front of it",
    node="bn1",
    nodes=("conv1", "bn1"),
    fix=FixReport("safe", "fold it into conv1", applied=True, verification=PROOF),
)
STAYS = Finding(
    code="NL111",
    rule="unfoldable-batch-norm",
    severity=Severity.INFO,
    message="a BatchNorm stays: an activation stands between",
    node="bn2",
    not_fixed=NotFixedReport("activation-between", "relu2", "Relu stands between"),
)
UNSAFE = Finding(
    code="NL401",
    rule="quantized-norm",
    severity=Severity.ERROR,
    message="a norm runs in INT8",
    graph="graph/loop.body",
    output="y",
    evidence={"scale": float("inf"), "steps": ["square", "root"]},
    fix=FixReport("unsafe", "lift it to float"),
)
KNOWN = Finding(
    code="NL201",
    rule="decomposed-layer-norm",
    severity=Severity.WARNING,
    message="known",
    node="old",
    suppressed=Suppressed("baseline", "normlint-baseline.json"),
)
UNREADABLE = Finding("NL903", "empty-file", Severity.ERROR, "the file is empty (0 bytes)")


def model(path: str, *findings: Finding, **fields: object) -> ModelReport:
    return ModelReport(
        path=path,
        producer="pytorch 2.13.0",
        opset={"ai.onnx": 17},
        nodes=120,
        norms={"LayerNorm": 12},
        findings=with_fingerprints(findings),
        **fields,  # type: ignore[arg-type]
    )


def report() -> Report:
    norm = {"kind": "LayerNorm", "placement": "pre", "form": "decomposed", "depth": 0, "stream": 0}
    inventory = ({**norm, "module": "layer.0.norm", "nodes": ["/layer.0/norm/ReduceMean"]},)
    return Report(
        (
            model(
                "models/enc.onnx",
                *(layer_norm(layer) for layer in range(12)),
                FIXED,
                STAYS,
                UNSAFE,
                KNOWN,
                inventory=inventory,
                written=WrittenReport("models/enc.onnx", "0" * 64, "1" * 64, 120, 12),
                changes=("@@ graph: 2 -> 1 nodes", "- a = Relu(x)", "+ a = Elu(x)"),
            ),
            model("models/clean.onnx"),
            ModelReport(
                "models/empty.onnx", findings=with_fingerprints([UNREADABLE]), readable=False
            ),
        )
    )


def measured(name: str = "/layer.0/norm") -> Report:
    """Give a report with what norms saw on data."""
    norm: dict[str, object] = {"kind": "LayerNorm", "node": name, "output": "t", "rows": 9}
    norm |= {"mean_over_deviation": {"p50": 0.1, "p99.9": 2.0}, "deviation": {"p50": 1.0}}
    norm |= {"range_over_deviation": 30.0, "outlier_channels": list(range(9)), "rms": 1.0}
    norm |= {"histogram": [1] * 160, "deviation_histogram": [1] * 160}
    norm |= {"range": [-9.0, 21.0], "channel_peaks": [1.0, 2.0, None, 4.0] * 12}
    models = report().models
    return Report((replace(models[0], measured=(norm,)), *models[1:]))


def hostile(name: str) -> Report:
    """Give a report whose every text from a model is a name that means to do harm."""
    finding = Finding(
        code="NL201",
        rule="decomposed-layer-norm",
        severity=Severity.WARNING,
        message=f"about {name}",
        graph=f"graph/{name}.body",
        node=name,
        op_type=name,
        output=name,
        nodes=(name, f"{name}2"),
        module=name,
        source=name,
        evidence={name: name},
        fix=FixReport(
            "safe", f"replace {name}", picture=(Step(name, name, (name,), ("z",), "new"),)
        ),
        not_fixed=NotFixedReport("opset", name, name),
        picture=(Step(name, name, (name,), ("u",)), Step("v", name, ("u",), ("w",))),
    )
    norm = {"kind": "LayerNorm", "placement": "pre", "form": "op", "depth": 0, "stream": 0}
    inventory = ({**norm, "module": name, "nodes": [name]},)
    return Report((model("models/m.onnx", finding, inventory=inventory, changes=(f"- {name}",)),))
