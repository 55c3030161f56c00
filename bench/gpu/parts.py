"""The parts of the check, by what is worth most to know first."""

from __future__ import annotations

from bench.gpu import correct, hardware, rounds, tensorrt, times
from bench.gpu.site import Part

PARTS = (
    Part("hardware", "What is here, and whether a graph runs on it.", 60, hardware.run),
    Part("parity", "The same graphs on the processor and on the device.", 90, correct.parity),
    Part("replay", "Captured runs with changed inputs against eager ones.", 60, correct.replay),
    Part("cost", "T_verify by rows and width, captured and eager.", 60, times.cost),
    Part("overhead", "A round outside its runs.", 60, rounds.overhead),
    Part("exactness", "Strict width, and flips without it.", 90, correct.exactness),
    Part("8b", "T_verify of an 8B shape in int4, both products.", 120, times.large_8b),
    Part("demo", "The real model, end to end.", 90, rounds.demo),
    Part("acceptance", "Speed-up by imposed acceptance.", 60, rounds.acceptance),
    Part("drafts", "A draft model's chains, captured and eager.", 45, correct.drafts),
    Part("weights", "One copy of the weights for all graphs.", 45, times.weights),
    Part("1b", "T_verify of a 1B shape by weights.", 120, times.large_1b),
    Part("tensorrt", "The standard lowering on TensorRT.", 120, tensorrt.run),
)

BY_NAME = {part.name: part for part in PARTS}
