"""Which hardware this machine is, as the roofline sees it.

Without it a server on GPUs would be held against the memory of the processors beside them, and look a hundred times too
fast.
"""

from __future__ import annotations

from lab.errors import InputError
from lab.observe import bandwidth
from lab.observe.gpus import Gpus
from lab.roofline.hardware import Hardware
from lab.roofline.hardware_catalogue import by_nvml_name


def hardware_here(gpus: Gpus) -> Hardware:
    """The catalogue's entry of these GPUs; without any, the processors, measured (4 s).

    Raises InputError for GPUs that the catalogue does not know, or of several kinds.
    """
    names = sorted({str(gpu["name"]) for gpu in gpus.describe()})
    if not names:
        return bandwidth.probe()
    if len(names) > 1:
        raise InputError(f"hardware: this machine has {' and '.join(names)}; name the one that serves")
    found = by_nvml_name(names[0])
    if found is None:
        raise InputError(
            f"hardware: this machine's '{names[0]}' is not in the catalogue; name a GPU of the same figures, or a "
            "YAML file with its own"
        )
    return found
