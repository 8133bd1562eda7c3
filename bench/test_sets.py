"""The data sets that the scripts beside this file measure accuracy on:
calibration and test images, or sentences, as data files for our command and as
arrays for other programs."""
import gzip
import os
import sys

import numpy as np
from PIL import Image

from side_by_side import fixtures

# Pixels become (v / scale - mean) / std, in the order of COLOR.
PHOTOS = {
    "mobilenet_v1": dict(crop=224, color="RGB", offset=1, scale=1.0,
                         mean=[127.5] * 3, std=[127.5] * 3),
    "squeezenet1_1": dict(crop=227, color="BGR", offset=0, scale=1.0,
                          mean=[103.939, 116.779, 123.68], std=[1.0] * 3),
}
CIFAR = dict(color="RGB", scale=255.0, mean=[0.485, 0.456, 0.406],
             std=[0.229, 0.224, 0.225])


def normalize(pixels, how):
    """[n,3,h,w] of bytes in RGB to what the network wants."""
    x = pixels.astype(np.float32)
    if how["color"] == "BGR":
        x = x[:, ::-1]
    mean, std = (np.array(how[k], np.float32).reshape(1, 3, 1, 1)
                 for k in ("mean", "std"))
    return np.ascontiguousarray((x / np.float32(how["scale"]) - mean) / std)


def photo(path, crop, draw=None):
    """Short side 256, bilinear with antialias, center crop; or one that is
    drawn, mirrored or not."""
    image = Image.open(path).convert("RGB")
    w, h = image.size
    small = min(w, h)
    image = image.resize((max(256, int(256 * w / small)),
                          max(256, int(256 * h / small))), Image.BILINEAR)
    w, h = image.size
    right, down, mirror = draw.random(3) if draw else (0.5, 0.5, 1)
    x, y = round((w - crop) * right), round((h - crop) * down)
    pixels = np.asarray(image.crop((x, y, x + crop, y + crop)))
    return (pixels[:, ::-1] if mirror < 0.5 else pixels).transpose(2, 0, 1)


def keys(how):
    return (f"SCALE: {how['scale']}\nMEAN: {how['mean']}\nSTD: {how['std']}\n"
            f"COLOR: {how['color']}\nBATCH: 8\n")


def photo_sets(folder, name, crops=1, draw=0):
    """Data files for ours, arrays for theirs: calibration and test, of which
    there are the center and other crops.  Calibration takes photos that are
    evenly spread, or drawn."""
    how = PHOTOS[name]
    place = fixtures.find("data/imagenet300")
    if not place:
        sys.exit("no labeled photos among the fixtures")
    with open(os.path.join(place, "labels.txt")) as f:
        lines = [line.split() for line in f if line.strip()]
    chosen = (set(np.random.default_rng(draw).permutation(len(lines))[:64])
              if draw else {i * len(lines) // 64 for i in range(64)})
    files, arrays = {}, {}
    for part in ("calib", "test"):
        mine = [line for i, line in enumerate(lines)
                if (i in chosen) == (part == "calib")]
        listing = os.path.join(folder, f"{part}.txt")
        with open(listing, "w") as f:
            f.writelines(f"{place}/{n} {label}\n" for n, label in mine)
        files[part] = os.path.join(folder, f"{name}-{part}.yaml")
        with open(files[part], "w") as f:
            f.write(f"SOURCE: image_list\nPATH: {listing}\nRESIZE: 256\n"
                    f"CROP: {how['crop']}\nLABEL_OFFSET: {how['offset']}\n"
                    + keys(how))
        other, times = np.random.default_rng(7), crops if part == "test" else 1
        pixels = np.stack([
            photo(os.path.join(place, n), how["crop"], other if k else None)
            for k in range(times) for n, _ in mine])
        arrays[part] = (normalize(pixels, how),
                        np.array([int(label) + how["offset"]
                                  for _, label in mine] * times))
    return files, arrays


def cifar_sets(folder, calib):
    place, why = fixtures.cifar10()
    if not place:
        sys.exit(why)
    files, arrays = {}, {}
    for part, name, count in (("calib", "data_batch_1", calib),
                              ("test", "test_batch", 10000)):
        path = os.path.join(place, name + ".bin")
        raw = np.fromfile(path, np.uint8).reshape(-1, 3073)[:count]
        arrays[part] = (normalize(raw[:, 1:].reshape(-1, 3, 32, 32), CIFAR),
                        raw[:, 0].astype(np.int64))
        files[part] = os.path.join(folder, f"cifar-{part}.yaml")
        with open(files[part], "w") as f:
            f.write(f"SOURCE: cifar10\nPATH: {path}\n" + keys(CIFAR))
    return files, arrays


FASHION_PLACE = "/usr/share/datasets/fashion-mnist"  # Debian's package


def fashion_sets(folder, calib):
    files, arrays = {}, {}
    for part, name, count in (("calib", "train", calib),
                              ("test", "t10k", 10000)):
        images, labels = (os.path.join(FASHION_PLACE, f"{name}-{what}-ubyte.gz")
                          for what in ("images-idx3", "labels-idx1"))
        if not os.path.exists(images):
            sys.exit("Fashion-MNIST is in Debian's dataset-fashion-mnist")
        with gzip.open(images) as f:
            pixels = np.frombuffer(f.read(), np.uint8, offset=16)
        with gzip.open(labels) as f:
            y = np.frombuffer(f.read(), np.uint8, offset=8)
        x = (pixels.reshape(-1, 1, 28, 28)[:count].astype(np.float32) /
             np.float32(255) - np.float32(0.2860)) / np.float32(0.3530)
        arrays[part] = (x, y[:count].astype(np.int64))
        files[part] = os.path.join(folder, f"fashion-{part}.yaml")
        with open(files[part], "w") as f:
            f.write(f"SOURCE: idx\nPATH: {images}\nLABELS: {labels}\n"
                    "SCALE: 255\nMEAN: [0.2860]\nSTD: [0.3530]\nBATCH: 8\n")
    return files, arrays


def sentence_sets(folder, tokenizer):
    """Paragraphs of WikiText-2, their first 32 tokens: 64 and 200 of them."""
    from tokenizers import Tokenizer
    text = fixtures.find("data/text/wikitext2-test-joined.txt")
    if not text or not tokenizer:
        sys.exit("minilm_l6 needs WikiText-2 among the fixtures, and "
                 "--tokenizer")
    encoder = Tokenizer.from_file(tokenizer)
    encoder.no_padding()
    encoder.enable_truncation(32)
    with open(text, encoding="utf-8") as f:
        found = [encoder.encode(line.strip()).ids for line in f
                 if len(line) > 100]
    ids = np.array([i for i in found if len(i) == 32], np.int64)
    ids = ids[np.arange(264) * (len(ids) // 264)]
    files, arrays = {}, {}
    for part, rows in (("calib", ids[::4][:64]),
                       ("test", np.delete(ids, np.s_[:256:4], 0))):
        x = {"input_ids": rows, "attention_mask": np.ones_like(rows),
             "token_type_ids": np.zeros_like(rows)}
        files[part] = os.path.join(folder, f"sentences-{part}.npz")
        np.savez(files[part], **x)
        arrays[part] = (x, None)
    return files, arrays


def sets(folder, name, calib=64, tokenizer=None, crops=1, draw=0):
    """files and arrays of "calib" and "test" for a network by its name."""
    if name in PHOTOS:
        return photo_sets(folder, name, crops, draw)
    if name == "minilm_l6":
        return sentence_sets(folder, tokenizer)
    if name == "fashion_mnist":
        return fashion_sets(folder, calib)
    return cifar_sets(folder, calib)
