"""Compiles kernels/module.cpp once for each kind of processor; `llmendpoint_native.load` takes the one that fits."""

import platform

from setuptools import Extension, setup

AVX2 = ["-mavx2", "-mfma"]
AVX512 = ["-march=skylake-avx512", "-mprefer-vector-width=512"]
VARIANTS = {
    "avx2": AVX2,
    "avx512": AVX512,
    "avx512_bf16": [*AVX512, "-mavx512bf16"],
    "amx": [*AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
}
COMMON = [
    "-std=c++17",
    "-O3",
    "-fopenmp",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wall",
]
QUIET = ["-Wno-psabi", "-Wno-maybe-uninitialized"]
"""The first is about calls between translation units, and there is one. The second is GCC 12's own headers."""


def extension(variant: str, flags: list[str]) -> Extension:
    name = f"_{variant}"
    return Extension(
        f"llmendpoint_native.{name}",
        ["kernels/module.cpp"],
        depends=[
            f"kernels/{part}.h"
            for part in (
                *(
                    "vector",
                    "scratch",
                    "product",
                    "tiles",
                    "int4",
                    "linear",
                    "eight_bits",
                    "attention",
                    "glue",
                    "layer",
                ),
                *("weights", "row", "kept", "sampling"),
            )
        ],
        define_macros=[("MODULE_INIT", f"PyInit_{name}"), ("STRINGIZED_NAME", f'"{name}"')],
        extra_compile_args=[*COMMON, *QUIET, *flags],
        extra_link_args=["-fopenmp", "-s"],
        py_limited_api=True,
    )


setup(
    ext_modules=[extension(*variant) for variant in VARIANTS.items()]
    if platform.machine() == "x86_64"
    else [],
)
