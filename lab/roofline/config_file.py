"""A config.json on disk, with the hf_quant_config.json that older checkpoints keep beside it.

Without it a file that is cut off, nested without end or no config at all would end in a traceback.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.errors import InputError
from lab.files import typed_path
from lab.roofline.config_fields import Quantisation
from lab.roofline.fields import validated

MOST_BYTES = 1 << 26  # a config.json has some thousand


def config_path(name: str | Path) -> Path:
    """The config.json itself, of the folder that holds it where a folder is named."""
    path = typed_path(name)
    return path / "config.json" if path.is_dir() else path


def read(path: Path) -> dict[str, Any]:
    """The content; `quantization_config` from the file beside it where config.json has none.

    Raises InputError naming the file that is absent, cannot be read or holds something else.
    """
    config = _mapping(path)
    beside = path.with_name("hf_quant_config.json")
    if config.get("quantization_config") is None and beside.exists():
        declared = _mapping(beside).get("quantization")
        if declared is not None:
            validated(Quantisation, declared, str(beside), "quantization.")
        config = {**config, "quantization_config": declared}
    return config


def _mapping(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():
            what = "a folder" if file.is_dir() else "no such file"
            raise InputError(f"{file}: {what}; give a config.json or the folder that holds it")
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{file}: has {size:,} bytes, more than the {MOST_BYTES:,} of any config.json")
        content = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise InputError(f"{file}: cannot be read as JSON (nested too deeply)") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read as JSON ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{file}: cannot be read as JSON ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: holds no mapping; not a config.json")
    return content
