"""Configurations: qconfig.yaml and sconfig.yaml, as file, text or dict."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

from . import _core
from ._base import Context, Error, Path, default_context


class Config:
    """A configuration: what a file says, or a text, or a dict of its keys.

    It is checked when it is used, and by :func:`check_config`.
    """

    def __init__(self, source: "Union[Config, Path, Mapping[str, Any]]") -> None:
        self.path: Optional[str] = None
        self.text: Optional[str] = None
        if isinstance(source, Config):
            self.path, self.text = source.path, source.text
        elif isinstance(source, Mapping):
            keys = {k: v for k, v in _plain(source).items() if k != "DEVICE"}
            self.text = json.dumps(keys, indent=2,  # which is YAML as well
                                   default=plain_number)
        elif isinstance(source, str) and ("\n" in source or ": " in source):
            self.text = source
        else:
            self.path = os.fspath(source)

    def read(self) -> str:
        """The text."""
        if self.text is not None:
            return self.text
        with open(self.path or "", encoding="utf-8") as f:
            return f.read()

    def keywords(self) -> dict[str, Optional[str]]:
        return {"config": self.path, "config_text": self.text}

    def node(self) -> "ConfigNode":
        """Its keys, as they stand there; this needs PyYAML."""
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("to read single keys of a configuration PyYAML "
                              "must be installed") from None
        return ConfigNode(yaml.safe_load(self.read()) or {})

    def __getattr__(self, key: str) -> Any:
        """``config.A.QUANTIZER.BIT``: a key, or its preset."""
        if not key.isupper():
            raise AttributeError(key)
        node = ConfigNode()
        for row in explain_config():
            if row.key.split(".")[0] == key and not row.section:
                node.merge_from_list([row.key, _preset(row.preset)])
        return getattr(_merged(node, self.node()), key)

    def __repr__(self) -> str:
        return f"<sparsebit.Config {self.path or 'from text'}>"


class ConfigNode(dict[str, Any]):
    """A configuration that is built key by key; keys are attributes, too."""

    def __init__(self, keys: Mapping[str, Any] = {}) -> None:
        super().__init__({k: ConfigNode(v) if isinstance(v, Mapping) else v
                          for k, v in keys.items()})

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def clone(self) -> "ConfigNode":
        return ConfigNode(copy.deepcopy(_plain(self)))

    def defrost(self) -> None:
        """Nothing is ever frozen; for scripts that say so."""

    def freeze(self) -> None:
        """The same."""

    def merge_from_list(self, pairs: Sequence[Any]) -> None:
        """Sets ``["W.QUANTIZER.BIT", 4, ...]``."""
        for key, value in zip(pairs[::2], pairs[1::2]):
            node = self
            *above, last = key.split(".")
            for name in above:
                node = node.setdefault(name, ConfigNode())
            node[last] = value


ConfigSource = Union[None, Config, str, "os.PathLike[str]", Mapping[str, Any]]


def plain_number(value: Any) -> Any:
    """What NumPy counts with, as numbers of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"found {value!r}, want text, a number, a list or a dict")


def _plain(value: Any) -> Any:
    """Mappings of any kind (yacs has its own) as dicts; empty ones say
    nothing."""
    if isinstance(value, Mapping):
        made = {str(k): _plain(v) for k, v in value.items()}
        return {k: v for k, v in made.items() if v != {}}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _preset(text: Optional[str]) -> Any:
    """A preset as the type that it looks like."""
    words: dict[Optional[str], Any] = {"true": True, "false": False, "[]": [], None: None}
    if text in words:
        return words[text]
    for number in (int, float):
        try:
            return number(text or "")
        except ValueError:
            pass
    return text


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return ConfigNode({**below, **{k: _merged(below.get(k), v)
                                   for k, v in above.items()}})


def with_specific(config: "Union[Config, Path, Mapping[str, Any]]", section: str,
                  changes: Mapping[str, Any]) -> Config:
    """A configuration with further settings for nodes, before its own."""
    node = (ConfigNode(_plain(config)) if isinstance(config, Mapping)
            else Config(config).node())
    place = node.setdefault(section, ConfigNode())
    own = place.get("SPECIFIC") or {}
    for part in own if isinstance(own, list) else [own]:
        changes = {**changes, **{k: v for k, v in part.items()
                                 if k not in changes}}
    place["SPECIFIC"] = dict(changes)
    return Config(node)


def config_keywords(config: ConfigSource) -> dict[str, Optional[str]]:
    if config is None:
        return {"config": None, "config_text": None}
    return Config(config).keywords()


def check_config(config: Union[Config, Path, Mapping[str, Any]],
                 context: Optional[Context] = None) -> str:
    """What a configuration or a data file says, one line for each setting.

    Raises :class:`ConfigError` with file, line, key, what was found and what is
    allowed.
    """
    config = Config(config)
    context = context or default_context()
    if config.path is not None:
        return _core.config_check(context, config.path)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(config.read())
        try:
            return _core.config_check(context, path)
        except Error as error:  # nobody knows that file
            raise type(error)(str(error).replace(path, "config")) from None


def default_config(context: Optional[Context] = None) -> str:
    """A complete configuration, explained in comments."""
    return _core.config_default(context or default_context())


@dataclass(frozen=True)
class ConfigKey:
    """A key of a configuration, or of a data file."""

    key: str
    preset: Optional[str]  #: its value if it is left out
    allowed: str
    help: str
    more: str
    section: bool  #: it holds other keys


def explain_config(key: Optional[str] = None,
                   context: Optional[Context] = None) -> list[ConfigKey]:
    """A key and those below it; without one all of a configuration, with
    ``"data"`` those of a data file."""
    return [ConfigKey(**k) for k in
            _core.config_keys(context or default_context(), key)]
