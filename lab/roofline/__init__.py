"""The speed limit of a deployment. Without it, a server at 2 % of what its memory allows looks fine."""

from lab.roofline.hardware import Hardware
from lab.roofline.layout import Layout
from lab.roofline.model import Model
from lab.roofline.step import Bound, bound

__all__ = ["Bound", "Hardware", "Layout", "Model", "bound"]
