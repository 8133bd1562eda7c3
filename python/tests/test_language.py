"""Text out of language models."""

import json
import os
import shutil

import numpy as np
import pytest

import sparsebit as sb
from test_examples import ROOT, write_llama

TOKENIZER = os.path.join(ROOT, "tests/fixtures/llm/tok_smollm.json")


@pytest.fixture
def always(tmp_path):
    """Makes a generator that writes one token again and again."""
    def make(token):
        with open(TOKENIZER, encoding="utf-8") as f:
            wanted = json.load(f)["model"]["vocab"][token]

        def weight(name, shape):
            if name == "lm_head":
                return (np.arange(shape[0]) == wanted)[:, None] * np.ones(shape)
            is_layer = "proj" in name  # adds nothing
            return np.zeros(shape) if is_layer else np.ones(shape)

        shutil.copy(TOKENIZER, tmp_path / "tokenizer.json")
        write_llama(tmp_path, len(sb.Tokenizer(TOKENIZER)), weight=weight)
        return sb.Generator(tmp_path)
    return make


def test_text_that_ends_inside_of_a_character(always):
    pieces = []
    made = always("\u00c3")("one", max_tokens=3, text=pieces.append)  # byte c3
    assert made.tokens == 3
    assert made.text == (b"\xc3" * 3).decode("utf-8", "backslashreplace")
    assert "".join(pieces) == made.text


def test_stop_may_be_one_string(always):
    generator = always("a")
    assert generator("one", max_tokens=8).text == "a" * 8
    made = generator("one", max_tokens=8, stop="aaa")
    assert made.tokens == 3
    assert made.text == generator("one", max_tokens=8, stop=["aaa"]).text


def test_wrong_numbers_are_named(always, tmp_path):
    generator = always("a")
    for name in ("max_tokens", "top_k"):
        with pytest.raises(sb.ArgumentError, match=name + ": found -1"):
            generator("one", **{name: -1})
    with pytest.raises(sb.ArgumentError, match="length: found -1"):
        sb.Generator(tmp_path, length=-1)
    with pytest.raises(sb.ArgumentError, match="shard_bytes: found -1"):
        sb.convert(tmp_path, tmp_path / "f", format="float", shard_bytes=-1)
    with pytest.raises(TypeError, match="text: found 3"):
        generator("one", text=3)
