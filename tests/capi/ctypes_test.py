"""docs/examples/attention_ctypes.py's own definitions on the CPU, without torch: what Python says
of the structs is what the library reads.

usage: ctypes_test.py SOURCE_DIR LIBSEGUE
"""

import array
import ctypes
import math
import pathlib
import random
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "docs" / "examples"))
import attention_ctypes as api  # noqa: E402

HEADS, DIM, LENGTHS, TEXT, IMAGE = 2, 8, [5, 0, 3], 5, 11


class Stream:
    """[batch, rows, q | k | v, heads, dim] and an output [batch, rows, heads, dim]."""

    def __init__(self, rows):
        self.rows = rows
        count = len(LENGTHS) * rows * HEADS * DIM
        self.fused = array.array("f", (random.uniform(-1, 1) for _ in range(3 * count)))
        self.out = array.array("f", [-1e30] * count)

    def form(self):
        address = self.fused.buffer_info()[0]
        width = HEADS * DIM
        views = [api.DenseView(api.RowsView(address + 4 * i * width, 3 * width, DIM),
                               self.rows * 3 * width) for i in range(3)]
        return self.rows, views + [api.DenseView(
            api.RowsView(self.out.buffer_info()[0], width, 0), self.rows * width)]

    def input(self, b, row, part, head):
        begin = (((b * self.rows + row) * 3 + part) * HEADS + head) * DIM
        return self.fused[begin:begin + DIM]

    def output(self, b, row, head):
        begin = ((b * self.rows + row) * HEADS + head) * DIM
        return self.out[begin:begin + DIM]


def largest_error(text, image):
    worst = 0.0
    for b, length in enumerate(LENGTHS):
        rows = [(text, row) for row in range(length)] + [(image, row) for row in range(IMAGE)]
        for head in range(HEADS):
            keys = [(s.input(b, row, 1, head), s.input(b, row, 2, head)) for s, row in rows]
            for s, row in rows:
                q = s.input(b, row, 0, head)
                weights = [math.exp(sum(map(float.__mul__, q, k)) / math.sqrt(DIM))
                           for k, _ in keys]
                for i, got in enumerate(s.output(b, row, head)):
                    want = sum(w * v[i] for w, (_, v) in zip(weights, keys)) / sum(weights)
                    worst = max(worst, abs(got - want))
        for row in range(length, TEXT):
            assert all(x == 0 for x in text.output(b, row, 1)), "padding is not zero"
    return worst


def main():
    random.seed(1)
    segue = api.Segue(sys.argv[2])
    text, image = Stream(TEXT), Stream(IMAGE)
    options = api.make(api.Options, q_heads=HEADS, kv_heads=HEADS, head_dim=DIM,
                       softmax_scale=1 / math.sqrt(DIM), element_type=api.FLOAT32)
    batch = segue.joint_batch(api.joint_form(text.form(), image.form(), LENGTHS), options)
    settings = api.make(api.PlanSettings, place=api.CPU, batch=batch,
                        options=ctypes.pointer(options), backend=b"ref", threads=1)
    plan = segue.plan(settings)
    assert segue.lib.segue_attention_plan_backend(plan) == b"ref"
    assert segue.lib.segue_attention_plan_workspace_bytes(plan) == 0
    segue.call("segue_attention_plan_prepare", plan, None, None)
    segue.call("segue_attention_plan_set_batch", plan, batch, None, None)
    segue.call("segue_attention_plan_run", plan, ctypes.byref(api.make(api.Run, batch=batch)))
    error = largest_error(text, image)
    assert error < 1e-6, error

    settings.backend = b"no such"
    try:
        segue.plan(settings)
    except RuntimeError as refused:
        assert "backend: got no such, wanted one of" in str(refused), refused
    else:
        raise AssertionError("an unknown back end was accepted")
    segue.lib.segue_attention_batch_destroy(batch)
    segue.lib.segue_attention_plan_destroy(plan)

    listed = subprocess.run(["nm", "-D", "--defined-only", sys.argv[2]], check=True,
                            capture_output=True, text=True).stdout.split("\n")
    names = [line.split()[-1] for line in listed if line]
    others = [name for name in names if not name.lower().startswith("segue_")]
    assert len(names) > 20 and not others, others
    print(f"largest error {error:.3g}")


main()
