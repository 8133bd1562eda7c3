"""Sparsebit: make trained neural networks small and fast, ONNX in, ONNX out.

The library's own names are here, one line for each thing one wants to do::

    import sparsebit as sb

    model = sb.load("model.onnx")
    small = sb.quantize(model, "photos.yaml", target="onnxruntime-x86")
    small.save("model.int8.onnx")
    print(sb.evaluate(small, "test.yaml", against=model))

The names of the original Sparsebit are in :mod:`sparsebit.quantization` and
:mod:`sparsebit.sparse`.
"""

from typing import Any

from ._core import version as _version

__version__: str = _version()

# What a name is defined in, which is imported when it is first used: most
# programs use a few.  Type checkers read __init__.pyi.
_HOMES = {
    "_analyze": ("Analysis", "Difference", "LayerError", "OutputError",
        "analyze"),
    "_base": ("ArgumentError", "BackendError", "ConfigError", "Context",
        "DataError", "Error", "FileError", "Interrupted", "ModelError",
        "NoMemoryError", "Tensor", "UnsupportedError", "default_context",
        "tensor"),
    "_config": ("Config", "ConfigKey", "check_config", "default_config",
        "explain_config"),
    "_data": ("Batch", "Data"),
    "_drop": ("Drop",),
    "_evaluate": ("Evaluation", "evaluate"),
    "_language": ("Generation", "Generator", "Tokenizer", "convert",
        "generate"),
    "_lint": ("Lint", "LintNode", "lint"),
    "_model": ("Model", "ModelInfo", "Node", "Value", "load", "new", "parse"),
    "_plugins": ("Param", "Values", "add_criterion", "add_observer",
        "add_quantizer"),
    "_prune": ("PruneGroup", "PrunePoint", "PruneScan", "Pruned", "PrunedLayer",
        "prune"),
    "_quantize": ("QuantizedModel", "Quantizer", "Step", "quantize"),
    "_search": ("Found", "SearchLayer", "SearchPoint", "search"),
    "_session": ("Session",),
    "_train": ("Learner", "Parameter", "TrainCheck", "TrainState", "train"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sparsebit' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module("." + _HOME[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
