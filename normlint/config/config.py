"""Everything that can be configured. The fields are the keys, with dashes for underscores."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from normlint.context.settings import Settings
from normlint.selection import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.suppress import Ignore


@dataclass(frozen=True)
class Config:
    """The configuration that holds for a model."""

    select: tuple[str, ...] = ()
    """Rules to run, by code, prefix or name; all but those in preview by default."""
    extend_select: tuple[str, ...] = ()
    """Rules to run besides."""
    ignore: tuple[str, ...] = ()
    """Rules not to run; the more precise of select and ignore wins."""
    preview: bool = False
    """Run rules in preview too."""
    severity: dict[str, str] = field(default_factory=dict)
    """Severity by rule: error, warning, info or off."""
    per_model_ignores: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules not to run on models whose path matches a glob."""
    ignore_nodes: tuple[Ignore, ...] = ()
    """Findings that do not count, by rule and place, with a reason and a last day."""
    allow_model_ignores: bool = True
    """Follow ignores that a model carries in its own metadata."""
    baseline: str | None = None
    """File of known findings, which do not count."""
    fail_on: str = "warning"
    """The least severity that fails a run: error, warning, info or never."""
    output_format: tuple[str, ...] = ("full",)
    """Formats, each as FMT or FMT=FILE."""
    exclude: tuple[str, ...] = ()
    """Globs of files and folders that are passed over when a folder is searched."""
    force_exclude: bool = False
    """Pass over excluded files even where they are named on the command line."""
    jobs: str = "auto"
    """Processes that check models side by side: a number, or auto."""
    timeout: float | None = None
    """Seconds that the check of one model may take; it then counts as unreadable."""
    max_model_size: int | None = None
    """Bytes above which a model is not opened; it then counts as unreadable."""
    unsafe_fixes: bool = False
    """Make and show repairs that change the function or need a judgement."""
    verify: str = "region"
    """How repairs are proved: region, model or none."""
    settings: Settings = field(default_factory=Settings)
    root: Path | None = None
    """The folder that relative paths are relative to: that of the file; None without one."""
    file: Path | None = None
    """The file that it was read from."""

    @property
    def selection(self) -> Selection:
        """Which rules run."""
        off = tuple(rule for rule, level in self.severity.items() if level == "off")
        return Selection(self.select, self.extend_select, (*self.ignore, *off), self.preview)


CHOICES = {
    "fail_on": ("error", "warning", "info", "never"),
    "verify": ("region", "model", "none"),
    "intent": ("infer", "train"),
    "targets": ("onnx", "onnxruntime", "tensorrt", "openvino", "qnn", "tflite", "coreml"),
    "rms_norm_policy": ("profitable", "always"),
    "quantized_repair": ("residual", "norm"),
}
BOUNDS = {
    "timeout": (0, 10**9),
    "max_model_size": (0, 2**63),
    "target_opset": (1, 2**31),
    "post_norm_depth": (0, 2**31),
    "rms_norm_ratio": (0, 10**9),
    "rms_norm_error": (0, 10**9),
    "smoothing_alpha": (0, 1),
}
"""The least and the largest number that a key may have."""
_INTERNAL = {"settings", "root", "file", "unsafe_fixes"}


def fields_of_config() -> dict[str, dataclasses.Field[object]]:
    """Give the fields of `Config` that are keys of a file, by name."""
    own = {f.name: f for f in dataclasses.fields(Config) if f.name not in _INTERNAL}
    return own | {"unsafe_fixes": _field(Config, "unsafe_fixes")}


def fields_of_settings() -> dict[str, dataclasses.Field[object]]:
    """Give the fields of `Settings` that are keys of a file, by name."""
    return {f.name: f for f in dataclasses.fields(Settings) if f.name != "unsafe_fixes"}


def _field(cls: type, name: str) -> dataclasses.Field[object]:
    return next(f for f in dataclasses.fields(cls) if f.name == name)


def build(values: dict[str, object], root: Path | None, file: Path | None) -> Config:
    """Make a configuration of validated values by field name."""
    unsafe = bool(values.get("unsafe_fixes", False))
    chosen = {name: values[name] for name in fields_of_settings() if name in values}
    settings = dataclasses.replace(Settings(), unsafe_fixes=unsafe, **chosen)  # type: ignore[arg-type]
    own = {name: values[name] for name in fields_of_config() if name in values}
    return dataclasses.replace(Config(), settings=settings, root=root, file=file, **own)  # type: ignore[arg-type]
