"""A model of few layers cut out of the small real one, so that seconds of a slow machine hold many answers.

Without it a window of a few seconds holds so few answers on a slow machine that chance decides what a test sees.
"""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFWriter

from lab.requantize import copy_keys

LAYERS = 4


def cut(source: Path, target: Path, layers: int = LAYERS) -> None:
    """Write `target`: the first `layers` layers of `source`, its embedding, output and tokens unchanged.

    It answers nonsense at the speed of its size.
    """
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    copy_keys(reader, writer, {f"{architecture}.block_count": layers})
    for tensor in reader.tensors:
        block, _, rest = tensor.name.removeprefix("blk.").partition(".")
        if not (rest and block.isdecimal() and int(block) >= layers):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
