#!/usr/bin/env python3
"""Load and save every model at hand; ONNX's own checker is the judge. (slow)

    test_roundtrip.py SPARSEBIT

Models: the conformance suite of Debian's libonnx-testdata, the networks among
the fixtures, and a few made here that have what those lack.  Each is written back with `simplify --passes none`; the checker with
shape inference must accept the result (unless it refuses the original), and
what a reader can see must be the same: inputs and outputs with their types,
metadata, doc strings, weights that are used, imported domains.
"""
import glob
import os
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    from onnx import checker, helper, numpy_helper
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

SUITE = "/usr/share/libonnx-testdata/data"


def value(name, shape, dtype=onnx.TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), opset=21, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(weights))
    imports = [helper.make_opsetid("", opset)] + more.pop("imports", [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def rich_model():
    """Everything that has no effect and must survive."""
    x, y = value("x", ["N", 3, None]), value("y", ["N", 3, None])
    x.doc_string, y.doc_string = "the input", "the output"
    x.type.denotation = "TENSOR"
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    node = helper.make_node("Relu", ["x"], ["y"], name="n", doc_string="a node")
    node.metadata_props.add(key="node key", value="node value")
    m = model([node], [x], [y], producer_name="me", producer_version="7",
              doc_string="a model", model_version=5, domain="org.example")
    m.metadata_props.add(key="model key", value="model value")
    m.graph.doc_string = "a graph"
    m.graph.metadata_props.add(key="graph key", value="graph value")
    note = m.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    return m


def types_model():
    """A weight of every element type that is stored in bytes."""
    t = onnx.TensorProto
    weights, nodes, outputs = [], [], []
    for dtype in range(1, 27):
        if dtype in (t.STRING, t.UNDEFINED):
            continue
        name = t.DataType.Name(dtype)
        w = onnx.TensorProto(name=name, data_type=dtype, dims=[16])
        bits = {t.UINT4: 4, t.INT4: 4, t.FLOAT4E2M1: 4, t.UINT2: 2, t.INT2: 2}
        size = bits.get(dtype) or 8 * helper.tensor_dtype_to_np_dtype(dtype).itemsize
        w.raw_data = bytes(i % 2 for i in range(2 * size))
        weights.append(w)
        nodes.append(helper.make_node("Identity", [name], [name + "_out"]))
        outputs.append(value(name + "_out", [16], dtype))
    return model(nodes, [], outputs, weights, opset=25)


def sequence_model():
    m = model([helper.make_node("SequenceConstruct", ["x", "x"], ["s"])],
              [value("x", [2])], [])
    m.graph.output.append(helper.make_tensor_sequence_value_info("s", 1, [2]))
    return m


def custom_model():
    node = helper.make_node("Foo", ["x", "", "w"], ["y", "", "z"], domain="com.example",
                            i=1, f=2.5, s="text", ints=[1, 2], floats=[0.5], strings=["a", "b"],
                            t=numpy_helper.from_array(np.arange(40.0)),
                            tp=helper.make_tensor_type_proto(1, [2]))
    weight = numpy_helper.from_array(np.arange(60, dtype=np.int16), "w")
    return model([node], [value("x", [2])], [value("y", [2])], [weight],
                 imports=[helper.make_opsetid("com.example", 3)])


MADE = {f.__name__: f for f in (rich_model, types_model, sequence_model, custom_model)}


def accepts(path):
    try:
        checker.check_model(path, full_check=True)
        return None
    except Exception as e:  # the checker raises several kinds
        return str(e).replace("\n", " ")[:300]


def used_names(graph):
    names = {o.name for o in graph.output}
    for node in graph.node:
        names.update(node.input)
        for a in node.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                names |= used_names(g)
    return names


def texts(m):
    """What a reader sees, as comparable values."""
    constants = {t.name for t in m.graph.initializer}
    old = m.ir_version < 4
    seen = {
        "inputs": [(v.name, str(v.type), v.doc_string) for v in m.graph.input
                   if not (old and v.name in constants)],
        "outputs": [(v.name, str(v.type), v.doc_string) for v in m.graph.output],
        "producer": (m.producer_name, m.producer_version, m.domain, m.model_version),
        "docs": (m.doc_string, m.graph.doc_string, m.graph.name),
        "props": [(p.key, p.value) for p in m.metadata_props],
        "graph props": [(p.key, p.value) for p in m.graph.metadata_props],
        "annotations": [str(a) for a in m.graph.quantization_annotation],
        "domains": sorted(o.domain for o in m.opset_import if o.domain not in ("", "ai.onnx")),
        "node props": sorted((p.key, p.value) for n in m.graph.node for p in n.metadata_props),
        "node docs": sorted(n.doc_string for n in m.graph.node if n.doc_string),
    }
    return seen


def weights(m):
    used = used_names(m.graph)
    return {t.name: t for t in m.graph.initializer if t.name in used}


def same_weight(a, b):
    if a.data_type != b.data_type or list(a.dims) != list(b.dims):
        return False
    x, y = numpy_helper.to_array(a), numpy_helper.to_array(b)
    return x.tobytes() == y.tobytes() if x.dtype != object else (x == y).all()


def fill_dims(before, after):
    """Dimensions that the file leaves open may have become known."""
    for a, b in zip(before.graph.output, after.graph.output):
        dims = a.type.tensor_type.shape.dim
        others = b.type.tensor_type.shape.dim
        if a.name == b.name and len(dims) == len(others):
            for d, other in zip(dims, others):
                if d.dim_param or d.dim_value < 0:
                    d.CopyFrom(other)


def compare(before, after):
    """The first difference, or None."""
    fill_dims(before, after)
    a, b = texts(before), texts(after)
    for key in a:
        if a[key] != b[key] and not (key == "producer" and not a[key][0]):
            return f"{key}: {a[key]} became {b[key]}"
    kept, found = weights(before), weights(after)
    still_used = used_names(after.graph)
    for name, t in kept.items():
        if name not in found:
            if name in still_used:
                return f"weight '{name}' is gone"
        elif not same_weight(t, found[name]):
            return f"weight '{name}' is different"
    return None


def run_case(command, path, out):
    done = subprocess.run([command, "simplify", path, "-o", out, "--passes", "none",
                           "--keep-inputs"],
                          capture_output=True, text=True)
    if "Scan of opset 8 is not known" in done.stderr:
        return "skipped", "Scan of opset 8"
    if done.returncode != 0:
        return "failed", done.stderr.strip() or f"exit code {done.returncode}"
    problem = accepts(out)
    if problem:
        if accepts(path):
            return "skipped", "the checker refuses the original too"
        return "failed", problem
    before = onnx.load(path)
    if before.functions:  # inlined
        return "passed", None
    problem = compare(before, onnx.load(out))
    return ("failed", problem) if problem else ("passed", None)


def main():
    command = sys.argv[1]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for name, make in MADE.items():
            path = os.path.join(folder, name + ".onnx")
            onnx.save(make(), path)
            cases.append((name, path))
        for path in sorted(glob.glob(f"{SUITE}/*/*/model.onnx")):
            cases.append(("/".join(path.split("/")[-3:-1]), path))
        cases += fixtures.networks().items()
        for name, path in cases:
            verdict, why = run_case(command, path, os.path.join(folder, "out.onnx"))
            counts[verdict] += 1
            if verdict != "passed":
                print(f"{verdict} {name}: {why}")
    print(", ".join(f"{n} {v}" for v, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
