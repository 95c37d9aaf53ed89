"""Say what a file is that is no model, from its first bytes and without loading onnx."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from normlint.model.fault import FileFault

if TYPE_CHECKING:
    from pathlib import Path

HEAD = 512
"""Bytes that are enough to tell."""

_EXPORT = "Export the model to ONNX and check that file."
_MAGIC = (
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint, or a packed download?)", _EXPORT),
    (0, b"PK\x05\x06", "an empty zip archive", _EXPORT),
    (0, b"\x1f\x8b", "compressed with gzip", "Unpack it first (gunzip)."),
    (0, b"BZh", "compressed with bzip2", "Unpack it first (bunzip2)."),
    (0, b"\xfd7zXZ\0", "compressed with xz", "Unpack it first (unxz)."),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first (unzstd)."),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    (257, b"ustar", "a tar archive", "Unpack it first."),
    (2, b"\0\0ORTM", "an ONNX Runtime .ort model", "Check the .onnx file it was converted from."),
    (2, b"\0\0TFL3", "a TensorFlow Lite model", _EXPORT),
    (0, b"\x89HDF", "an HDF5 (Keras) file", _EXPORT),
    (0, b"GGUF", "a GGUF file", _EXPORT),
    (0, b"%PDF", "a PDF document", _EXPORT),
    (0, b"\x89PNG", "a PNG image", _EXPORT),
    (0, b"\x7fELF", "an executable or a library (ELF)", _EXPORT),
    (0, b"ftrt", "a TensorRT engine", "Check the .onnx file that it was built from."),
    (0, b"-----BEGIN", "an encrypted or signed text (PEM, PGP)", "Decrypt it first."),
    (0, b"Salted__", "encrypted with OpenSSL", "Decrypt it first."),
    (0, b"age-encryption.org/", "encrypted with age", "Decrypt it first."),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x00-\xff]")
_SAFETENSORS = re.compile(rb'.{8}\{\s*"', re.DOTALL)
_MARKUP = re.compile(rb"\s*<(!doctype|html|head|body|\?xml|[a-z]+[ >])", re.IGNORECASE)
_JSON = re.compile(rb'\s*[\[{]\s*("|\{|\[|\}|\])')
_TEXT = re.compile(rb"\s*(<\s*ir_version|ir_version\s*:|producer_name\s*:|graph\s*\{)")
_LFS = re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/", re.ASCII)
_LFS_OID = re.compile(rb"^oid \w+:([0-9a-f]+)", re.MULTILINE)
_LFS_SIZE = re.compile(rb"^size (\d{1,18})\s*$", re.MULTILINE)
_BOM = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def sniff(head: bytes, size: int, name: str) -> FileFault | None:
    """Return why a file of `size` bytes that begins with `head` is no model, or None if it may be.

    The codes are NL902 (LFS pointer), NL903 (empty) and NL904 (something else, named).
    """
    if size == 0:
        message = "the file is empty (0 bytes): was an export or a download interrupted?"
        return FileFault("NL903", message)
    if _LFS.match(head):
        return _lfs(head, name)
    for offset, magic, what, advice in _MAGIC:
        if head.startswith(magic, offset):
            return FileFault("NL904", f"this is not an ONNX model but {what}. {advice}")
    text = head
    for mark in _BOM:
        text = text.removeprefix(mark)
    if mark_up := _MARKUP.match(text.replace(b"\0", b"")):
        return _markup(mark_up[1].lower())
    if _JSON.match(text):
        message = (
            "this is not an ONNX model but a JSON document: a download link that needed a login?"
        )
        return FileFault("NL904", message)
    return _other(head)


def missing_hint(path: Path) -> str | None:
    """Return the command that fetches a file which is versioned but not here, or None."""
    if path.with_name(f"{path.name}.dvc").is_file():
        return f'dvc pull "{path}"'
    if path.is_symlink() and ".git/annex/" in path.readlink().as_posix():
        return f'git annex get "{path}"'
    return None


def _lfs(head: bytes, name: str) -> FileFault:
    oid, size = _LFS_OID.search(head), _LFS_SIZE.search(head)
    known = []
    if size:
        known.append(f"real size {int(size[1]) / 1e6:.1f} MB")
    if oid:
        known.append(f"oid {oid[1][:8].decode()}…")
    details = f" ({', '.join(known)})" if known else ""
    message = (
        f'this is a Git LFS pointer, not the model{details}. Run: git lfs pull --include "{name}" '
        "(GitHub Actions: actions/checkout with lfs: true)."
    )
    return FileFault("NL902", message)


def _markup(tag: bytes) -> FileFault:
    what = "an XML file (OpenVINO IR?)" if tag == b"?xml" else "an HTML page"
    advice = _EXPORT if tag == b"?xml" else "A download link that needed a login?"
    return FileFault("NL904", f"this is not an ONNX model but {what}. {advice}")


def _other(head: bytes) -> FileFault | None:
    if _TEXT.match(head):
        what = "an ONNX model in text form"
        advice = "Convert it: onnx.save(onnx.load(NAME, format=...), NAME)."
        return FileFault("NL904", f"this is not a binary ONNX file but {what}. {advice}")
    if _PICKLE.match(head):
        what = "a Python pickle (PyTorch, joblib?)"
    elif _SAFETENSORS.match(head) and head[3:8].count(0) == 5:
        what = "a safetensors file"
    elif head.startswith(b"/annex/objects/"):
        return FileFault("NL904", "this is a git-annex pointer, not the model. Run: git annex get.")
    else:
        return None
    return FileFault("NL904", f"this is not an ONNX model but {what}. {_EXPORT}")
