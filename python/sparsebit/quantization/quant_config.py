"""qconfig.yaml, and configurations that are built key by key."""

from __future__ import annotations

from typing import Union

from .._base import Path
from .._config import Config, ConfigNode, check_config

#: What the original starts from; clone it and merge settings.
_C = ConfigNode({
    "BACKEND": "virtual",
    "SKIP_TRACE_MODULES": [],
    "SCHEDULE": {"FUSE_BN": False, "BN_TUNING": False,
                 "DISABLE_UNNECESSARY_QUANT": True},
    "W": {"QUANTIZER": {}, "OBSERVER": {}, "SPECIFIC": []},
    "A": {"QUANTIZER": {}, "OBSERVER": {}, "SPECIFIC": [], "QADD": {}},
})


def parse_qconfig(config: Union[Path, ConfigNode]) -> Config:
    """Reads a qconfig.yaml and checks every setting."""
    check_config(config)
    return Config(config)
