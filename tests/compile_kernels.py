"""Compile every CUDA source for every architecture, without a GPU: python tests/compile_kernels.py.

Takes compute capabilities as arguments, by default 70, 80, 90 and 100. Needs CuPy and NVRTC, which
the extra `nvrtc` installs. Exits with 1 and the compiler's log where a source does not compile.
"""

import sys
from pathlib import Path

ARCHITECTURES = ("70", "80", "90", "100")
OPTIONS = ("-std=c++17",)  # those of specialk_gpu.backend.gpu
KERNELS = Path(__file__).parents[1] / "specialk_gpu" / "backend" / "kernels"


def compile_for(path, architecture):
    """Return the bytes of PTX, or the compiler's log."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(path.read_text(), path.name, (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"--gpu-architecture=compute_{architecture}"))
        return len(nvrtc.getPTX(program)), ""
    except nvrtc.NVRTCError as error:
        return 0, f"{error}\n{nvrtc.getProgramLog(program)}"
    finally:
        nvrtc.destroyProgram(program)


def main(architectures):
    failed = False
    for path in sorted(KERNELS.glob("*.cu")):
        for architecture in architectures:
            size, log = compile_for(path, architecture)
            print(f"{path.name:<14} compute_{architecture:<4}", f"{size} bytes" if size else log)
            failed |= not size
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ARCHITECTURES))
