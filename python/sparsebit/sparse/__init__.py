"""The names of the original Sparsebit for pruning."""

from .sparse_model import SparseModel, parse_sconfig

__all__ = ["SparseModel", "parse_sconfig"]
