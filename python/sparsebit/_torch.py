"""torch.nn.Module to ONNX, with the paths of modules in node names."""

from __future__ import annotations

import inspect
import io
import warnings
from typing import Any, Mapping

from ._base import ArgumentError


def _arguments(module: Any, example: Any) -> tuple[tuple[Any, ...], list[str]]:
    """Positional arguments, and a name for each that is not None."""
    if isinstance(example, Mapping):  # in the order that forward() has
        bound = inspect.signature(module.forward).bind(**example)
        bound.apply_defaults()
        given = list(bound.arguments)[:len(bound.args)]
        return bound.args, [n for n in given
                            if bound.arguments[n] is not None]
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    return args, [f"input{i}" if len(args) > 1 else "input"
                  for i in range(len(args))]


def export_module(module: Any, example: Any) -> bytes:
    """The module in inference form.  Batch normalization is kept as it is."""
    import torch

    if example is None:
        raise ArgumentError("a torch.nn.Module needs an example_input, a tensor, "
                            "or a tuple or dict of them, to be exported")
    args, names = _arguments(module, example)
    was_training = module.training
    module.eval()
    forward = module.forward
    own = "forward" in vars(module)
    # The exporter would make tensors of further arguments' defaults.
    module.forward = lambda *given: forward(*given)
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
                dynamic_axes={n: {0: "N"} for n, a in zip(
                    names, (a for a in args if a is not None))
                              if getattr(a, "dim", lambda: 0)() > 0})
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward
        module.train(was_training)
    return file.getvalue()
