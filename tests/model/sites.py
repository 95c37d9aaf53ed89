"""A server that hands out ranges and counts them, and models to put there."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from onnx import TensorProto, helper, numpy_helper

LAYERS = 6


class Site:
    """An HTTP server with some files, that counts the bytes it hands out."""

    def __init__(self, *, ranges: bool) -> None:
        self.files: dict[str, bytes] = {}
        self.served = 0
        self.requests = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self, *, with_body: bool) -> None:
                data = site.files.get(self.path.partition("?")[0])
                if data is None:
                    self.send_error(404)
                    return
                asked = self.headers.get("Range") if ranges else None
                start, stop = 0, len(data)
                if asked:
                    first, _, last = asked.removeprefix("bytes=").partition("-")
                    start, stop = int(first), min(int(last or stop) + 1, stop)
                self.send_response(206 if asked else 200)
                if ranges:
                    self.send_header("Accept-Ranges", "bytes")
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
                self.send_header("Content-Length", str(stop - start))
                self.end_headers()
                if with_body:
                    site.served += stop - start
                    site.requests += 1
                    self.wfile.write(data[start:stop])

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}{name}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def stack(megabytes: int) -> bytes:
    """Give a chain of MatMuls whose weights take so many megabytes each."""
    nodes, weights = [], []
    columns = max(megabytes << 20, 64) // (4 * 16)
    for index in range(LAYERS):
        weights.append(
            numpy_helper.from_array(np.full((16, columns), index, np.float32), f"w{index}")
        )
        nodes.append(helper.make_node("MatMul", ["x", f"w{index}"], [f"y{index}"]))
    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, [2, columns])],
        weights,
    )
    return helper.make_model(graph, ir_version=8).SerializeToString()
