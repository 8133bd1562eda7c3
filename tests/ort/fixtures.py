"""Where the tests find real networks and data: the folder $SPARSEBIT_FIXTURES,
or build/fixtures as tools/fetch-fixtures fills it."""
import glob
import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
HOW = "tools/py tools/fetch-fixtures gets them"
# For ONNX Runtime's session options: without VNNI it adds two products of bytes
# in 16 bits, which saturates, and no result with full 8-bit weights is what the
# operators say.  This makes it take its slower, exact kernels there.
EXACT = ("session.x64quantprecision", "1")
SATURATES = ("ONNX Runtime's sums of 8-bit products saturate on this processor, "
             "which has no VNNI")


def folders():
    given = os.environ.get("SPARSEBIT_FIXTURES")
    places = [given] if given else [os.path.join(ROOT, "build/fixtures"),
                                    os.path.join(ROOT, "../shared")]
    return [os.path.abspath(p) for p in places if os.path.isdir(p)]


def find(path):
    """The first that exists, or None."""
    for folder in folders():
        if os.path.exists(os.path.join(folder, path)):
            return os.path.join(folder, path)
    return None


def networks():
    """Paths of the networks, by name."""
    found = {}
    for folder in folders():
        for path in sorted(glob.glob(os.path.join(folder, "models/*.onnx"))):
            found.setdefault(os.path.basename(path)[:-len(".onnx")], path)
    return dict(sorted(found.items()))


def reference(path):
    """The folder with in.*.npy and out.*.npy of a network, or None."""
    folder, name = os.path.split(path)
    place = os.path.join(folder, "ref", name[:-len(".onnx")])
    return place if os.path.isdir(place) else None


def photos():
    """Files of photographs; none if there are none."""
    folder = find("data/imagenet300") or find("data/photos")
    return sorted(glob.glob(folder + "/*.jpg") + glob.glob(folder + "/*.png")
                  ) if folder else []


def cifar10():
    """The folder with CIFAR-10's binary files, fetched if need be; or None,
    and why."""
    done = subprocess.run([sys.executable,
                           os.path.join(ROOT, "tools/fetch-fixtures"),
                           "--cifar10"], stdout=subprocess.PIPE, text=True)
    last = (done.stdout.strip().splitlines() or ["no CIFAR-10"])[-1]
    return (last, "") if done.returncode == 0 else (None, last)


def saturates():
    """Whether ONNX Runtime's products of bytes are not exact on this processor
    (see EXACT, which helps where weights are constant)."""
    import numpy as np
    import onnx
    import onnxruntime as ort
    a = np.full((4, 64), 255, np.uint8)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (uint8[4,64] a, int8[64,16] b) => (int32[4,16] y) "
        "{ y = MatMulInteger(a, b) }")
    session = ort.InferenceSession(model.SerializeToString(),
                                   providers=["CPUExecutionProvider"])
    y = session.run(None, {"a": a, "b": np.full((64, 16), 127, np.int8)})[0]
    return bool((y != 255 * 127 * 64).any())


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def need_networks():
    found = networks()
    if not found:
        skip(f"no networks; {HOW}")
    return found
