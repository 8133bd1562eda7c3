#!/usr/bin/env python3
"""The node cases of the newest onnx package, run by our conformance program.

usage: test_onnx_newest.py COMMAND

Debian's suite ends at opset 17; the onnx package carries the cases of every
opset since, as Python code that makes models with expected results.  Cases of
operators that this version does not have are counted and named; every other
one must pass or be in tests/conformance/newest.txt with the reason.  Exits 77
if onnx is not there.
"""
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import warnings

try:
    warnings.filterwarnings("ignore")
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    cases = collect_testcases(None)
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def proto(info, value):
    if isinstance(value, onnx.TensorProto):
        return value
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(list(value), info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write_case(case, folder):
    data = os.path.join(folder, "node", case.name, "test_data_set_0")
    os.makedirs(data)
    with open(os.path.join(data, "..", "model.onnx"), "wb") as f:
        f.write(case.model.SerializeToString())
    graph, (inputs, outputs) = case.model.graph, case.data_sets[0]
    for kind, infos, values in (("input", graph.input, inputs),
                                ("output", graph.output, outputs)):
        for i, (info, value) in enumerate(zip(infos, values)):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(proto(info, value).SerializeToString())


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])),
                           "tests", "conformance")
    if not os.access(program, os.X_OK):
        print(f"skipped: {program} is not built")
        return 77
    lists = os.path.join(ROOT, "tests", "conformance")
    with open(os.path.join(lists, "newest.txt")) as f:
        allowed = [line.split()[0] for line in f
                   if line.strip() and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            write_case(case, folder)
        done = subprocess.run(
            [program, folder, "--skip", os.path.join(lists, "skipped.txt")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failed = dict(re.findall(r"^FAIL node/(\S+?): (.*)$", done.stdout, re.M))
    unknown = {re.search(r"operator (\S+) cannot", why)[1]
               for why in failed.values() if "cannot be run by this" in why}
    wrong = [f"{name}: {why}" for name, why in failed.items()
             if "cannot be run by this" not in why
             and not any(fnmatch.fnmatchcase(name, p) for p in allowed)]
    for line in wrong:
        print("failed", line)
    for pattern in allowed:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in failed):
            print("listed in newest.txt, but no such case fails:", pattern)
    print("operators that we do not have:", ", ".join(sorted(unknown)))
    print(f"onnx {onnx.__version__}:", done.stdout.strip().split("\n")[-1])
    return 1 if wrong or done.returncode not in (0, 1) else 0


if __name__ == "__main__":
    sys.exit(main())
