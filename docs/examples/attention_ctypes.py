#!/usr/bin/env python3
"""Joint attention of text and image rows through libsegue.so, on torch's pointers and stream.

Text and image each have a fused [batch, rows, 3, heads, head_dim] projection; nothing is
concatenated or copied. Without a GPU the same runs on the CPU in float32. Prints the error against
torch's scaled_dot_product_attention in float32, both ours and that of torch in our own type.

usage: attention_ctypes.py [libsegue.so]
"""

import ctypes
import math
import pathlib
import sys
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_float, c_int32, c_int64, c_uint32
from ctypes import c_void_p, sizeof

OK = 0
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
CPU, CUDA = 0, 1


class Error(Structure):
    _fields_ = [("struct_size", c_uint32), ("result", c_int32), ("message", c_char * 2040)]


class Options(Structure):
    _fields_ = [("struct_size", c_uint32), ("q_heads", c_int32), ("kv_heads", c_int32),
                ("head_dim", c_int32), ("softmax_scale", c_float), ("causal", c_int32),
                ("element_type", c_int32)]


class RowsView(Structure):
    _fields_ = [("data", c_void_p), ("row_stride", c_int64), ("head_stride", c_int64)]


class DenseView(Structure):
    _fields_ = [("rows", RowsView), ("batch_stride", c_int64)]


class PrefixMain(Structure):
    _fields_ = [("struct_size", c_uint32), ("batch", c_int32), ("prefix_rows", c_int32),
                ("main_rows", c_int32), ("zero_padding", c_int32),
                ("prefix_q", DenseView), ("prefix_k", DenseView), ("prefix_v", DenseView),
                ("prefix_o", DenseView), ("main_q", DenseView), ("main_k", DenseView),
                ("main_v", DenseView), ("main_o", DenseView),
                ("prefix_lengths", POINTER(c_int32)), ("main_lengths", POINTER(c_int32)),
                ("mask", c_void_p)]


class PlanSettings(Structure):
    _fields_ = [("struct_size", c_uint32), ("place", c_int32), ("device_lengths", c_int32),
                ("wants_lse", c_int32), ("threads", c_int32), ("max_sequences", c_int32),
                ("max_segments", c_int32), ("tensor_count", c_int32), ("admitted_count", c_int32),
                ("tensors", c_void_p), ("max_query_rows", c_int64), ("batch", c_void_p),
                ("options", POINTER(Options)), ("backend", c_char_p), ("admitted", c_void_p),
                ("gpu_compute_capability", c_int32), ("gpu_multiprocessors", c_int32)]


class Run(Structure):
    _fields_ = [("struct_size", c_uint32), ("tensor_count", c_int32), ("tensors", c_void_p),
                ("batch", c_void_p), ("lse", c_void_p), ("lse_stride", c_int64),
                ("workspace", c_void_p), ("stream", c_void_p)]


def make(struct, **fields):
    """A struct that says its own size."""
    return struct(struct_size=sizeof(struct), **fields)


class Segue:
    """The library, with its errors as exceptions."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.segue_attention_plan_workspace_bytes.restype = c_int64
        self.lib.segue_attention_plan_workspace_bytes.argtypes = [c_void_p]
        self.lib.segue_attention_plan_backend.restype = c_char_p
        self.lib.segue_attention_plan_backend.argtypes = [c_void_p]
        self.lib.segue_attention_plan_destroy.argtypes = [c_void_p]
        self.lib.segue_attention_batch_destroy.argtypes = [c_void_p]

    def call(self, name, *arguments):
        error = make(Error)
        if getattr(self.lib, name)(*arguments, byref(error)) != OK:
            raise RuntimeError(error.message.decode())

    def joint_batch(self, form, options):
        batch = c_void_p()
        self.call("segue_attention_batch_from_prefix_main", byref(form), byref(options),
                  byref(batch))
        return batch

    def plan(self, settings):
        plan = c_void_p()
        self.call("segue_attention_plan_create", byref(settings), byref(plan))
        return plan


def joint_form(text, image, lengths):
    """`text` and `image`: (rows, [q, k, v, o] as DenseView); `lengths`: text rows in use."""
    names = [part + tensor for part in ("prefix_", "main_") for tensor in "qkvo"]
    return make(PrefixMain, batch=len(lengths), prefix_rows=text[0], main_rows=image[0],
                prefix_lengths=(c_int32 * len(lengths))(*lengths), zero_padding=1,
                **dict(zip(names, text[1] + image[1])))


def torch_view(tensor):
    """A [batch, rows, heads, head_dim] tensor."""
    batch, rows, heads, _ = tensor.stride()
    return DenseView(RowsView(tensor.data_ptr(), rows, heads), batch)


def main():
    import torch

    here = pathlib.Path(__file__).resolve()
    default = here.parents[2] / "build" / "libsegue.so"
    segue = Segue(sys.argv[1] if len(sys.argv) > 1 else default)
    cuda = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    heads, dim, lengths, text_rows, image_rows = 4, 128, [64, 14], 64, 1024
    torch.manual_seed(0)
    fused = [torch.randn(len(lengths), rows, 3, heads, dim, device=device).to(dtype)
             for rows in (text_rows, image_rows)]
    outputs = [torch.empty(x.shape[0], x.shape[1], heads, dim, device=device, dtype=dtype)
               for x in fused]

    options = make(Options, q_heads=heads, kv_heads=heads, head_dim=dim,
                   softmax_scale=1 / math.sqrt(dim), element_type=BFLOAT16 if cuda else FLOAT32)
    text, image = [(x.shape[1], [torch_view(x[:, :, i]) for i in range(3)] + [torch_view(o)])
                   for x, o in zip(fused, outputs)]
    batch = segue.joint_batch(joint_form(text, image, lengths), options)
    plan = segue.plan(make(PlanSettings, place=CUDA if cuda else CPU, batch=batch,
                           options=ctypes.pointer(options)))
    backend = segue.lib.segue_attention_plan_backend(plan).decode()

    # torch aligns allocations to 512 bytes, which is enough for a workspace.
    size = segue.lib.segue_attention_plan_workspace_bytes(plan)
    memory = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
    workspace = c_void_p(memory.data_ptr())
    stream = c_void_p(torch.cuda.current_stream().cuda_stream if cuda else None)
    segue.call("segue_attention_plan_prepare", plan, workspace, stream)
    segue.call("segue_attention_plan_set_batch", plan, batch, workspace, stream)
    run = make(Run, batch=batch, workspace=workspace, stream=stream)
    segue.call("segue_attention_plan_run", plan, byref(run))

    def sdpa(b, rows, as_type):
        joint = torch.cat([fused[0][b, :rows], fused[1][b]]).to(as_type)
        q, k, v = joint.permute(1, 2, 0, 3).unsqueeze(1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).float()

    ours = theirs = 0.0
    for b, rows in enumerate(lengths):
        want = sdpa(b, rows, torch.float32)
        got = torch.cat([outputs[0][b, :rows], outputs[1][b]]).float()
        ours = max(ours, (got - want).abs().max().item())
        theirs = max(theirs, (sdpa(b, rows, dtype) - want).abs().max().item())
        assert outputs[0][b, rows:].abs().sum().item() == 0, "padding is not zero"
    print(f"{backend}: largest error {ours:.3g}; torch in {dtype}: {theirs:.3g}")

    segue.lib.segue_attention_batch_destroy(batch)
    segue.lib.segue_attention_plan_destroy(plan)
    return 0 if ours <= max(2 * theirs, 1e-5) else 1


if __name__ == "__main__":
    sys.exit(main())
