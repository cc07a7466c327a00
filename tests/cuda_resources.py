#!/usr/bin/env python3
"""cuda_resources.py BUILD: what the fat build's kernels take on each architecture, and whether that is well.

Reads what ptxas said while `ninja tokend-cuda-all.so` ran (kernels/cuda/compile.sh): a line for each
kernel with its registers by architecture. Fails where a kernel spills registers or has a stack that
SPILLS does not know, and where one is missing on an architecture that others have. With --sass PROGRAM
(NVIDIA's cuobjdump, which wants nvdisasm beside it or on the path) the instructions of kernels that live by the
tensor cores are counted, too: one without any on some architecture fails.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

# Spills that are known: pattern of the kernel, architecture, bytes of spill stores at most
SPILLS = [
    (r"rope_kernel<", "100", 4),
    # 128 registers let two blocks run on an SM
    (r"linear_kernel<quant_operand<quant_type<5, .*, 4, true>", "120", 44),
]

# Disassembling takes a second a megabyte: one of the files that share the quantised linears' template
SASS_OBJECTS = ["attention_*.all.o", "linear_4.all.o", "linear_float.all.o"]
# No such type: empty kernels, which are never launched, or multiplied without tensor cores
ABSENT = [(r"__nv_bfloat16", "75")]

# What is counted. mma: HMMA of 16-bit types, IMMA of int8; on 9.0 those of warp groups as well.
COUNTED = ["mma", "ldsm", "ldgsts", "ldg", "ldg.128"]
OPCODE = re.compile(r"\b([HIQ]G?MMA|LDSM|LDGSTS|UTMALDG|UBLKCP|LDG(?:\.[A-Z0-9]+)*)\b")
CLASS = {"LDSM": "ldsm", "LDGSTS": "ldgsts", "UTMALDG": "ldgsts", "UBLKCP": "ldgsts"}
NEEDS_TENSOR = re.compile(r"attention_mma_kernel|linear_kernel")


def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True)
    return dict(zip(names, map(short, done.stdout.splitlines())))


def short(name):
    """Without arguments, casts of enums and what every kernel has"""
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    return re.sub(r"\((?:bool|int|panel_\w+|[a-z_]+)\)", "", name)


def read_log(path):
    """(architecture, kernel, registers, stack, spill stores) of each kernel that ptxas compiled"""
    found, kernel, arch, stack, spills = [], None, None, 0, 0
    for line in path.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            kernel, arch, stack, spills = m[1], m[2], 0, 0
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            stack, spills = int(m[1]), int(m[2])
        elif (m := re.search(r"Used (\d+) registers", line)) and kernel:
            found.append((arch, kernel, int(m[1]), stack, spills))
            kernel = None
    return found


def allowed(kernel, arch):
    return max([most for pattern, of, most in SPILLS if of == arch and re.search(pattern, kernel)], default=0)


def arch_order(arch):
    return int(re.sub(r"\D", "", arch))


def check_registers(kernels, archs):
    """kernels: {name: {arch: [(registers, stack, spills)]}}; prints the table; what is wrong"""
    wrong = []
    print(f"{'registers':<100}" + "".join(f"{'sm_' + a:>8}" for a in archs))
    for name in sorted(kernels):
        cells = ""
        for arch in archs:
            of = kernels[name].get(arch)
            if not of and list(kernels[name]) == ["90a"]:  # has instructions of its own
                cells += f"{'':>8}"
                continue
            if not of:
                wrong.append(f"{name} was not compiled for sm_{arch}")
                cells += f"{'-':>8}"
                continue
            registers, stack, spills = max(of)
            cells += f"{str(registers) + ('*' if stack else ''):>8}"
            if spills > allowed(name, arch) or stack and not spills:
                wrong.append(f"{name} on sm_{arch}: {spills} bytes are spilled, a stack of {stack}")
            elif spills:
                print(f"known: {name} on sm_{arch} spills {spills} bytes")
        print(f"{name:<100}{cells}")
    return wrong


def count_sass(program, objects):
    """{(arch, kernel): Counter} of the machine code"""
    counts = collections.defaultdict(collections.Counter)
    env = dict(os.environ, PATH=f"{pathlib.Path(program).parent}:{os.environ['PATH']}")
    for path in objects:
        dump = subprocess.Popen([program, "-sass", str(path)], stdout=subprocess.PIPE, text=True, env=env)
        arch = of = None
        for line in dump.stdout:
            if m := re.search(r"code for sm_(\w+)", line):
                arch = m[1]
            elif m := re.search(r"Function : (\w+)", line):
                of = counts[arch, m[1]]
            elif of is not None and (m := OPCODE.search(line)):
                what = m[1]
                of[CLASS.get(what, "ldg" if what.startswith("LDG") else "mma")] += 1
                of["ldg.128"] += ".128" in what
        if dump.wait():
            sys.exit(f"{program} -sass {path} failed")
    return counts


def check_sass(counts, names, archs):
    wrong = []
    print(f"\n{'instructions: ' + ', '.join(COUNTED):<100}" + "".join(f"{'sm_' + a:>22}" for a in archs))
    by_name = collections.defaultdict(dict)
    for (arch, kernel), of in counts.items():
        by_name[names.get(kernel, kernel)][arch] = of
    for name in sorted(by_name):
        if not NEEDS_TENSOR.search(name):
            continue
        row = ""
        for arch in archs:
            of = by_name[name].get(arch, {})
            row += f"{' '.join(str(of.get(w, 0)) for w in COUNTED):>22}"
            absent = any(arch == a and re.search(p, name) for p, a in ABSENT)
            if not of.get("mma") and not absent:
                wrong.append(f"{name} on sm_{arch} uses no tensor core")
        print(f"{name:<100}{row}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sass", metavar="PROGRAM")
    args = parser.parse_args()
    logs = sorted((args.build / "kernels" / "cuda").glob("*.all.ptxas.txt"))
    found = [kernel for log in logs for kernel in read_log(log)]
    if not found:
        sys.exit(f"{args.build} has no fat build (ninja tokend-cuda-all.so)")
    names = demangled(sorted({f[1] for f in found}))
    archs = sorted({f[0] for f in found}, key=arch_order)
    kernels = collections.defaultdict(lambda: collections.defaultdict(list))
    for arch, kernel, *of in found:
        kernels[names[kernel]][arch].append(tuple(of))
    wrong = check_registers(kernels, archs)
    if args.sass:
        folder = args.build / "kernels" / "cuda"
        objects = sorted(path for pattern in SASS_OBJECTS for path in folder.glob(pattern))
        counts = count_sass(args.sass, objects)
        names |= demangled(sorted({kernel for _, kernel in counts} - set(names)))
        wrong += check_sass(counts, names, archs)
    print(f"\n{len(kernels)} kernels on {len(archs)} architectures")
    for line in wrong:
        print(f"FAILED: {line}")
    sys.exit(bool(wrong))


main()
