"""Make the same model in another tensor format.

Without it a checkpoint lever needs a second download whose weights may differ in more than their format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.errors import LabError

RECIPE_VERSION = 1
FORMATS = ("F16", "Q8_0", "Q4_0")


def requantize(source: Path, target: Path, tensor_format: str) -> None:
    """Write `target`: every tensor of `source` that is not F32 in `tensor_format`, all else as it is.

    The result is as far from the original model as `source` is, or further: F16 made from Q4_1 keeps Q4_1's
    loss. Raises LabError for another format or a source that `gguf` cannot read.
    """
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, quants
    from tqdm import tqdm

    if tensor_format not in FORMATS:
        raise LabError(f"cannot make format {tensor_format}; known: {', '.join(FORMATS)}")
    try:
        reader = GGUFReader(source)
    except (OSError, ValueError) as error:
        raise LabError(f"{source}: cannot be read as GGUF ({error})") from error
    kind = GGMLQuantizationType[tensor_format]
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer, {"general.file_type": int(LlamaFileType[f"MOSTLY_{tensor_format}"])})
    total = sum(tensor.n_elements for tensor in reader.tensors)
    with tqdm(total=total, unit=" weights", unit_scale=True, desc=target.name, disable=None) as progress:
        for tensor in reader.tensors:
            if tensor.tensor_type == GGMLQuantizationType.F32:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            else:
                weights = quants.dequantize(tensor.data, tensor.tensor_type)
                data = weights.astype(np.float16) if tensor_format == "F16" else quants.quantize(weights, kind)
                writer.add_tensor(tensor.name, data, raw_dtype=kind)
            progress.update(int(tensor.n_elements))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_keys(reader: Any, writer: Any, changed: Mapping[str, Any]) -> None:
    """All metadata in its order and its types, with other values for the `changed` keys; the writer makes the rest."""
    from gguf import GGUFValueType

    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            element = entry.types[-1] if entry.types[0] == GGUFValueType.ARRAY else None
            value = changed[name] if name in changed else entry.contents()
            writer.add_key_value(name, value, entry.types[0], element)
