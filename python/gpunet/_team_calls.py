"""The calls of teams in kernels.

The device functions (gpunet_team.h) take a team and symmetric memory as structures, by value, which
Triton and Numba cannot pass. So kernels call functions whose arguments are numbers. They are made
here, as PTX: each loads the structures that the numbers name, and calls the device function.

A team's number is the address of its `TeamState` on the device, memory's that of a
`gpunet_symmetric_t`; 0 is none, which the device functions refuse.
"""

from __future__ import annotations

import re

from gpunet._calls import ADDRESS, BLOCK_WARP_THREAD, LENGTH, NET, SOCKET, TIMEOUT, WIDTH

TEAM, MEMORY, VALUE = "team", "memory", "value"
SIGNAL, MEMBER = "signal", "member"

WIDTHS = {**WIDTH, TEAM: 64, MEMORY: 64, VALUE: 64, SIGNAL: 32, MEMBER: 32}
"""Bits of each kind of argument."""

HANDLES = {
    NET: "the launch's context, of 64 bits, and not {}: pass what `with attachment.launch(stream) as net` gives",
    TEAM: "the team's number, of 64 bits, and not {}: pass team.device_number()",
    MEMORY: "the number of symmetric memory, of 64 bits, and not {}: pass memory.device_number()",
}
"""Kinds that are addresses to the device, and what to pass."""

IDS = (SOCKET, SIGNAL, MEMBER)
"""Kinds of which a number that does not fit into 32 bits must not become another one."""

CALLS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "gpunet_team_put": (32, (NET, TEAM, MEMORY, VALUE, ADDRESS, LENGTH, MEMBER), BLOCK_WARP_THREAD),
    "gpunet_team_put_signal": (
        32,
        (NET, TEAM, MEMORY, VALUE, ADDRESS, LENGTH, SIGNAL, VALUE, MEMBER),
        BLOCK_WARP_THREAD,
    ),
    "gpunet_team_signal_set": (32, (NET, TEAM, SIGNAL, VALUE, MEMBER), BLOCK_WARP_THREAD),
    "gpunet_team_signal_wait": (64, (NET, TEAM, SIGNAL, MEMBER, VALUE, TIMEOUT), BLOCK_WARP_THREAD),
    "gpunet_team_barrier": (32, (NET, TEAM, TIMEOUT), BLOCK_WARP_THREAD),
}
"""Name: bits of the result, arguments, and the suffixes of its forms. Behind memory comes an offset."""

STRUCTURE = ".param .align 8 .b8 {}[32]"


def device_function(symbol: str) -> str:
    """The device function behind a call."""
    return symbol.replace("gpunet_team_", "gpunet_")


def device_types(kinds: tuple[str, ...]) -> list[str]:
    """The parameters of the device function behind a call, as PTX declares them."""
    parameters = [STRUCTURE]
    rest = list(kinds[2:])
    if kinds[2:3] == (MEMORY,):
        parameters.append(STRUCTURE)
        del rest[:2]
    if rest == [TIMEOUT]:  # the team's own
        rest.clear()
    return parameters + [f".param .b{WIDTHS[kind]} {{}}" for kind in rest]


def definition(symbol: str, form: str) -> str:
    """The PTX of a call."""
    bits, kinds, _ = CALLS[symbol]
    target, types = device_function(symbol) + form, device_types(kinds)
    declared = ", ".join(of.format(f"a{at}") for at, of in enumerate(types))
    parameters = ", ".join(f".param .b{WIDTHS[kind]} {symbol}{form}_{at}" for at, kind in enumerate(kinds))
    lines = [
        f".extern .func (.param .b{bits} r) {target}({declared});",
        f".visible .func (.param .b{bits} r) {symbol}{form}({parameters})",
        "{",
        "\t.reg .pred %none, %now;",
        f"\t.reg .b32 %rank, %size, %n<{len(kinds)}>;",
        f"\t.reg .b64 %time, %at, %m<4>, %w<{len(kinds)}>;",
        f"\t.reg .b{bits} %result;",
    ]
    register = [f"%{'w' if WIDTHS[kind] == 64 else 'n'}{at}" for at, kind in enumerate(kinds)]
    lines += [f"\tld.param.b{WIDTHS[kind]} {register[at]}, [{symbol}{form}_{at}];" for at, kind in enumerate(kinds)]
    lines += [
        "\tmov.b32 %rank, 0;",
        "\tmov.b32 %size, 0;",
        "\tmov.b64 %time, 0;",
        "\tsetp.eq.s64 %none, %w1, 0;",
        "\t@!%none ld.b32 %rank, [%w1+8];",
        "\t@!%none ld.b32 %size, [%w1+12];",
    ]
    rest = list(range(2, len(kinds)))
    arguments = ["t"]
    structures = ["\t.param .align 8 .b8 t[32];"]
    if kinds[2:3] == (MEMORY,):
        lines += [f"\tmov.b64 %m{at}, 0;" for at in range(4)]
        lines += ["\tsetp.eq.s64 %none, %w2, 0;"]
        lines += [f"\t@!%none ld.b64 %m{at}, [%w2+{8 * at}];" for at in range(4)]
        lines += ["\tmin.u64 %at, %w3, %m3;", "\tadd.s64 %m2, %m2, %at;", "\tsub.s64 %m3, %m3, %at;"]
        structures.append("\t.param .align 8 .b8 m[32];")
        structures += [f"\tst.param.b64 [m+{8 * at}], %m{at};" for at in range(4)]
        arguments.append("m")
        del rest[:2]
    if [kinds[at] for at in rest] == [TIMEOUT]:
        # As `call_timeout` of gpunet-posix: below 0 none, 0 is not to wait.
        time = register[rest.pop()]
        lines += [
            f"\tsetp.eq.s64 %now, {time}, 0;",
            f"\tmax.s64 %time, {time}, 0;",
            f"\tmin.s64 %time, %time, {(1 << 62) - 1};",
            f"\tselp.b64 %time, {1 << 62}, %time, %now;",
        ]
    values = []
    for at in rest:
        width = WIDTHS[kinds[at]]
        values += [f"\t.param .b{width} p{at};", f"\tst.param.b{width} [p{at}], {register[at]};"]
        arguments.append(f"p{at}")
    lines += [
        "\t{",
        *structures[:1],
        "\tst.param.b64 [t], %w0;",
        "\tst.param.b64 [t+8], %w1;",
        "\tst.param.b64 [t+16], %time;",
        "\tst.param.b32 [t+24], %rank;",
        "\tst.param.b32 [t+28], %size;",
        *structures[1:],
        *values,
        f"\t.param .b{bits} x;",
        f"\tcall (x), {target}, ({', '.join(arguments)});",
        f"\tld.param.b{bits} %result, [x];",
        "\t}",
        f"\tst.param.b{bits} [r], %result;",
        "\tret;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def all_definitions() -> bytes:
    """A module of PTX with all calls."""
    head = ".version 7.0\n.target sm_80\n.address_size 64\n"
    return (head + "".join(definition(symbol, form) for symbol, call in CALLS.items() for form in call[2])).encode()


def with_definitions(ptx: str) -> str:
    """A kernel with the calls that it declares."""

    def define(declared: re.Match[str]) -> str:
        form = declared[2] or ""
        return definition(declared[1], form) if declared[1] in CALLS else declared[0]

    names = "|".join(sorted(CALLS, key=len, reverse=True))
    return re.sub(rf"\.extern\s+\.func[^;]*?\b({names})(_warp|_thread)?\b[^;]*;", define, ptx)
