"""The names of the original Sparsebit for quantization.

Scripts of the original run with them on the CPU::

    from sparsebit.quantization import QuantModel, parse_qconfig

    qmodel = QuantModel(model, parse_qconfig("qconfig.yaml"))
    qmodel.prepare_calibration()
    for data, _ in loader:
        qmodel(data)
    qmodel.calc_qparams()
    qmodel.set_quant(w_quant=True, a_quant=True)
    qmodel.export_onnx(data, "model.int8.onnx")
"""

from .quant_config import parse_qconfig
from .quant_model import QuantModel

__all__ = ["QuantModel", "parse_qconfig"]
