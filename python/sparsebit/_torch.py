"""torch.nn.Module to ONNX, with the paths of modules in node names."""

from __future__ import annotations

import io
import warnings
from typing import Any

from ._base import ArgumentError


def export_module(module: Any, example: Any) -> bytes:
    """The module in inference form.  Batch normalization is kept as it is."""
    import torch

    if example is None:
        raise ArgumentError("a torch.nn.Module needs an example_input, a tensor "
                            "or a tuple of them, to be exported")
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    was_training = module.training
    module.eval()
    names = [f"input{i}" if len(args) > 1 else "input" for i in range(len(args))]
    file = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # This exporter writes the paths of modules into node names; without
            # PRESERVE it would fold batch normalization.
            torch.onnx.export(
                module, args, file, input_names=names, dynamo=False,
                do_constant_folding=False, opset_version=17,
                training=torch.onnx.TrainingMode.PRESERVE,
                dynamic_axes={n: {0: "N"} for n, a in zip(names, args)
                              if getattr(a, "dim", lambda: 0)() > 0})
    finally:
        module.train(was_training)
    return file.getvalue()
