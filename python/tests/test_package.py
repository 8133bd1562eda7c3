"""The package: version, stubs, what it needs and what it does not."""

import ast
import os
import re
import subprocess
import sys

import sparsebit
from sparsebit import _core

FOLDER = os.path.dirname(sparsebit.__file__)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def test_version_is_the_librarys():
    with open(os.path.join(ROOT, "include/sparsebit/version.h")) as f:
        numbers = re.findall(r"#define SB_VERSION_[A-Z]+ (\d+)", f.read())
    assert sparsebit.__version__ == ".".join(numbers)


def test_stubs_name_everything():
    with open(os.path.join(FOLDER, "_core.pyi")) as f:
        tree = ast.parse(f.read())
    named = {n.name for n in tree.body
             if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    there = {n for n in dir(_core) if not n.startswith("_")}
    assert named == there
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))


def test_stubs_have_the_arguments_of_the_extension():
    """As its own lines of help have them: names, order, what may be left out."""
    with open(os.path.join(FOLDER, "_core.pyi")) as f:
        tree = ast.parse(f.read())
    for stub in (n for n in tree.body if isinstance(n, ast.FunctionDef)):
        line = getattr(_core, stub.name).__doc__
        told = re.fullmatch(r"(\w+)\((.*?)\)(?:: .*)?", line, re.S)
        assert told and told[1] == stub.name, line
        names = [part.strip() for part in told[2].split(",") if part.strip()]
        args = stub.args
        if args.kwarg is not None or names[-1:] == ["**options"]:
            assert names[-1] == "**options" or args.kwarg is None, line
            names = [n for n in names if n != "**options"]
        fixed = len(args.args) - len(args.defaults)
        assert len(names) >= fixed, line
        assert sum("=" in n for n in names) in (0, len(args.defaults)), line


def test_stub_of_the_package_names_everything():
    with open(os.path.join(FOLDER, "__init__.pyi")) as f:
        tree = ast.parse(f.read())
    named = {(n.module, a.asname) for n in tree.body
             if isinstance(n, ast.ImportFrom) for a in n.names}
    assert named == {(home, name) for name, home in sparsebit._HOME.items()}
    assert set(sparsebit.__all__) <= set(dir(sparsebit))


def test_stubs_of_classes_name_everything():
    with open(os.path.join(FOLDER, "_core.pyi")) as f:
        tree = ast.parse(f.read())
    for cls in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        if cls.name not in ("Context", "Handle", "Tensor"):
            continue
        named = {n.name for n in cls.body if isinstance(n, ast.FunctionDef)}
        named |= {n.target.id for n in cls.body
                  if isinstance(n, ast.AnnAssign)}
        there = {n for n in vars(getattr(_core, cls.name))
                 if not n.startswith("__")}
        assert {n for n in named if not n.startswith("__")} == there


def test_everything_public_is_explained():
    for name in sparsebit.__all__:
        assert getattr(sparsebit, name).__doc__, name


def test_functions_of_the_extension_are_explained():
    for name in dir(_core):
        if not name.startswith("_"):
            assert getattr(_core, name).__doc__, name


def test_numpy_and_torch_are_not_needed():
    code = ("import sys\n"
            "for name in ('numpy', 'torch', 'onnx', 'tqdm'):\n"
            "    sys.modules[name] = None\n"
            "import sparsebit as sb\n"
            "m = sb.parse('graph g(x: f32[2]) -> (y) {\\n y = Relu(x)\\n}')\n"
            "x = memoryview(bytearray(8)).cast('f')\n"
            "x[0], x[1] = -1, 3\n"
            "assert sb.Session(m).run(x)[0].tolist() == [0, 3]\n"
            "try:\n"
            "    sb.Session(m).run([1, 2])\n"
            "except TypeError as e:\n"
            "    assert 'NumPy' in str(e)\n"
            "else:\n"
            "    raise SystemExit(1)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def test_public_headers_and_the_limited_api_alone():
    folder = os.path.join(ROOT, "python/src")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            includes = re.findall(r'#include ([<"])([^>"]+)[>"]', f.read())
        for kind, path in includes:
            assert kind == "<" or path == "core.h", (name, path)
            assert not path.startswith("sparsebit/") or path in (
                "sparsebit/plugin.h",), (name, path)
